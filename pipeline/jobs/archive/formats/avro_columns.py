"""Decode and encode Avro keys and values in Python, on Spark's Arrow batches: `shapes`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import in_arrow
from odradek.pipeline.jobs.archive.formats.avro import Codec
from odradek.pipeline.jobs.archive.formats.formats import CONFLUENT, REGISTRY, Format
from odradek.pipeline.jobs.archive.formats.writers import Writers
from odradek.protocol import schema_prefix

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Columns = dict[str, pa.Array]


def shaped(df: DataFrame, name: str, form: Format) -> DataFrame:
    """Column `name` decoded, then `name`_raw, and with Confluent's prefix `name`_schema_id."""
    return _mapped(df, name, Decoding(name, form))


def unshaped(df: DataFrame, name: str, form: Format) -> DataFrame:
    """The bytes of column `name`. PipelineError, at their computation, for a value that does not fit the schema."""
    return _mapped(df, name, Encoding(name, form))


def _mapped(df: DataFrame, name: str, step: Decoding | Encoding) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    made = [StructField(one, from_arrow_type(type_, True)) for one, type_ in step.makes.items()]
    fields: list[StructField] = []
    for each in df.schema.fields:
        fields += made if each.name == name else [each] if each.name not in step.takes else []
    return in_arrow.mapped(df, step, StructType(fields))


class _Step(ABC):
    """The conversion of one column, batch by batch, in a task; `takes` and `makes` are columns."""

    takes: tuple[str, ...]
    makes: dict[str, pa.DataType]

    def __init__(self, name: str, form: Format) -> None:
        self.name, self.raw, self.id = name, f"{name}_raw", f"{name}_schema_id"
        self.framed = form.kind in (CONFLUENT, REGISTRY)
        self.codec = Codec(form.schema)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield self._batch(batch)

    def _batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns: Columns = {}
        for name in batch.schema.names:
            if name == self.name:
                columns |= self.converted({each: batch.column(each) for each in self.takes})
            elif name not in self.takes:
                columns[name] = batch.column(name)
        return pa.RecordBatch.from_pydict(columns)

    @abstractmethod
    def converted(self, taken: Columns) -> Columns:
        """Compute `makes` from `takes`."""

    def encoded(self, values: pa.Array, ids: pa.Array | None) -> pa.Array:
        """Null where there is no value."""
        bodies = self.codec.encode(values)
        if ids is None:
            return bodies
        pairs = zip(ids.to_pylist(), bodies.to_pylist(), strict=True)
        framed = [None if one is None or body is None else schema_prefix.pack(one) + body for one, body in pairs]
        return pa.array(framed, pa.binary())


class Decoding(_Step):
    """Bytes to values."""

    def __init__(self, name: str, form: Format) -> None:
        super().__init__(name, form)
        self._writers = Writers(form.registry, form.schema) if form.registry else None
        self.takes = (name,)
        self.makes = {name: self.codec.type, self.raw: pa.binary()} | ({self.id: pa.int32()} if self.framed else {})

    def converted(self, taken: Columns) -> Columns:
        """Keep the bytes where the values would not encode to them again."""
        data = taken[self.name]
        ids, bodies = unframed(data) if self.framed else (None, data)
        values = self.codec.decode(bodies if self._writers is None else self._writers.resolved(ids, bodies))
        again = pc.fill_null(pc.equal(self.encoded(values, ids), data), False)
        made = {self.name: values, self.raw: pc.if_else(again, pa.scalar(None, pa.binary()), data)}
        return made if ids is None else {**made, self.id: ids}


class Encoding(_Step):
    """Values to bytes."""

    def __init__(self, name: str, form: Format) -> None:
        super().__init__(name, form)
        self.takes = (name, self.raw, *([self.id] if self.framed else []))
        self.makes = {name: pa.binary()}

    def converted(self, taken: Columns) -> Columns:
        """PipelineError for a value that cannot be encoded; `Decoding` leaves none."""
        values, raw = taken[self.name], taken[self.raw]
        data = pc.coalesce(raw, self.encoded(values, taken.get(self.id)))
        lost = pc.and_(values.is_valid(), data.is_null())
        if pc.any(lost).as_py():
            raise PipelineError(f"a {self.name} of the archive does not match its Avro schema")
        return {self.name: data}


def unframed(data: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Schemas' ids, and the bytes behind them; both null where the bytes lack Confluent's prefix."""
    pairs = [schema_prefix.split(each) for each in data.to_pylist()]
    ids, bodies = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.array(ids, pa.int32()), pa.array(bodies, pa.binary())
