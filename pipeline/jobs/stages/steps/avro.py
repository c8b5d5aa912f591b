"""Avro values of a schema registry as columns: those of the reader's schema, whatever schema their writers had.

In Python on Spark's Arrow batches, with the code that makes archives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from odradek.pipeline.errors import OptionError, PipelineError
from odradek.pipeline.jobs import in_arrow
from odradek.pipeline.jobs.archive.formats import avro_columns
from odradek.pipeline.jobs.archive.formats.avro import Codec
from odradek.pipeline.jobs.archive.formats.writers import Writers
from odradek.pipeline.jobs.stages.declaration.sql import RECORD
from odradek.pipeline.registry import client

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from odradek.pipeline.jobs.stages.declaration.declaration import Parse

WHY, FIELDS = "why", "fields"
"""Fields of a value's struct: a reason, null where there is none, and the columns."""


def known(how: Parse) -> Parse:
    """Add the subject's latest schema, unless it has one already. OptionError where the registry has none."""
    if how.schema:
        return how
    assert how.registry is not None
    try:
        schema = client.latest(how.registry, how.subject)
    except PipelineError as error:
        raise OptionError(str(error)) from None
    if schema is None:
        raise OptionError(f"{how.registry.url} has no subject {how.subject}")
    return replace(how, schema=schema)


def columns(how: Parse) -> StructType:
    """The columns of its schema. OptionError where Spark has no types for it, or it is no record."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructType

    try:
        found = from_arrow_type(Codec(how.schema).type, True)
    except OptionError as error:
        raise OptionError(f"the schema of {how.subject}: {error}") from None
    if not isinstance(found, StructType):
        raise OptionError(f"the schema of {how.subject} is not a record")
    return found


def parsed(rows: DataFrame, how: Parse, name: str) -> DataFrame:
    """Rows with `record`, and the struct `name` of WHY and FIELDS."""
    from pyspark.sql.types import StringType, StructField, StructType

    made = StructType([StructField(WHY, StringType()), StructField(FIELDS, columns(how))])
    schema = StructType([rows.schema[RECORD], StructField(name, made)])
    return in_arrow.mapped(rows.select(RECORD), Decoding(how, name), schema)


class Decoding:
    """Runs in a task."""

    def __init__(self, how: Parse, name: str) -> None:
        assert how.registry is not None
        self._subject, self._name = how.subject, name
        self._codec, self._writers = Codec(how.schema), Writers(how.registry, how.schema)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            records = batch.column(RECORD)
            yield pa.RecordBatch.from_pydict({RECORD: records, self._name: self.converted(records.field("value"))})

    def converted(self, data: pa.Array) -> pa.Array:
        """PipelineError where the registry does not answer."""
        ids, bodies = avro_columns.unframed(data)
        values = self._codec.decode(self._writers.resolved(ids, bodies), whole=True)
        rows = zip(data, ids.to_pylist(), values.is_valid(), strict=True)
        why = [None if good.as_py() else self._why(one.is_valid, number) for one, number, good in rows]
        return pa.StructArray.from_arrays([pa.array(why, pa.string()), values], [WHY, FIELDS])

    def _why(self, there: bool, number: int | None) -> str:
        if not there:
            return "the value is null"
        if number is None:
            return "the value does not begin with 0 and the id of a schema"
        if not self._writers.knows(number):
            return f"the registry has no Avro schema {number}"
        return f"the value is not Avro of schema {number}, or cannot be read by that of {self._subject}"
