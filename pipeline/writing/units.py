"""The units of a batch, by a column's values: each unit is written, and noted as written, at once (`transactions`)."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from odradek.pipeline.errors import OptionError, PipelineError

MOST = 64  # units of one task: each has a producer until the task ends
OPTION = "odradek.transactional.by"
_TYPES = ("tinyint", "smallint", "int", "bigint")


def check(schema: StructType, column: str | None) -> None:
    """OptionError, one line, for a missing column, or one without whole numbers."""
    types = {field.name: field.dataType.simpleString() for field in schema}
    if column is not None and types.get(column) not in _TYPES:
        found = f"has type {types[column]}" if column in types else "does not exist"
        raise OptionError(f"{OPTION}: the column '{column}' {found} but must be an integer column")


def split(batch: pa.RecordBatch, column: str) -> Iterator[tuple[int, pa.RecordBatch]]:
    """A batch's rows by unit, in order. PipelineError for a row without a unit."""
    values = batch.column(column)
    if values.null_count:
        raise PipelineError(f"{OPTION}: null in the column '{column}'")
    for value in pc.unique(values).to_pylist():
        yield value, batch.filter(pc.equal(values, value))
