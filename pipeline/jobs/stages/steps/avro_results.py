"""Results as Avro in Confluent's frame: the schema of their columns, and the step that encodes them.

Each column may be null. Times are encoded as Spark's own numbers: Spark has times that Python does not support.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as T

from odradek.pipeline.errors import OptionError, PipelineError
from odradek.pipeline.jobs import in_arrow
from odradek.pipeline.jobs.archive.formats.avro import Codec
from odradek.protocol import schema_prefix

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FIELDS = "__result"
"""The column with the struct of a result's columns, null where a row has no result."""
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TIMES = ("date", "timestamp-micros", "local-timestamp-micros")
_PLAIN: dict[type[T.DataType], Any] = {
    T.BooleanType: "boolean",
    T.ByteType: "int",
    T.ShortType: "int",
    T.IntegerType: "int",
    T.LongType: "long",
    T.FloatType: "float",
    T.DoubleType: "double",
    T.StringType: "string",
    T.BinaryType: "bytes",
    T.DateType: {"type": "int", "logicalType": "date"},
    T.TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    T.TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}


@dataclass(frozen=True)
class Output:
    """The schema of a stage's results, and its id in the registry; 0 until it is registered."""

    schema: str
    id: int = 0


def schema(columns: T.StructType, name: str) -> str:
    """The JSON of a record `name`. OptionError for a column without a name or type in Avro."""
    return json.dumps(_record(columns, name, ""), separators=(",", ":"))


def _record(columns: T.StructType, name: str, path: str) -> dict[str, Any]:
    fields = []
    for field in columns:
        where = f"{path}{field.name}"
        if not _NAME.fullmatch(field.name):
            raise OptionError(f"the column '{where}' has a name that Avro does not allow: only letters, digits and '_'")
        kind = _type(field.dataType, f"{name}_{field.name}", where)
        fields.append({"name": field.name, "type": ["null", kind], "default": None})
    return {"type": "record", "name": name, "fields": fields}


def _type(kind: T.DataType, name: str, path: str) -> Any:
    """`name` is for a record; each record needs its own."""
    if isinstance(kind, T.StructType):
        return _record(kind, name, f"{path}.")
    if isinstance(kind, T.ArrayType):
        return {"type": "array", "items": ["null", _type(kind.elementType, name, f"{path}[]")]}
    if isinstance(kind, T.MapType) and isinstance(kind.keyType, T.StringType):
        return {"type": "map", "values": ["null", _type(kind.valueType, name, f"{path}.*")]}
    if isinstance(kind, T.DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if type(kind) not in _PLAIN:
        raise OptionError(f"the column '{path}' is {kind.simpleString()}, for which Avro has no type")
    return _PLAIN[type(kind)]


def encoded(rows: DataFrame, output: Output) -> DataFrame:
    """Rows with FIELDS: where it is not null, it becomes the value; other values stay."""
    kept = [field for field in rows.schema.fields if field.name != FIELDS]
    return in_arrow.mapped(rows, Encoding(output), T.StructType(kept))


class Encoding:
    """Runs in a task."""

    def __init__(self, output: Output) -> None:
        self._prefix = schema_prefix.pack(output.id)
        self._codec = Codec(json.dumps(_without_times(json.loads(output.schema))))

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            values = self.converted(batch.column(FIELDS), batch.column("value"))
            others = {name: batch.column(name) for name in batch.schema.names if name != FIELDS}
            yield pa.RecordBatch.from_pydict(others | {"value": values})

    def converted(self, fields: pa.Array, values: pa.Array) -> pa.Array:
        """PipelineError for fields that do not fit the schema."""
        bodies = self._codec.encode(fields.cast(self._codec.type))
        if bodies.null_count != fields.null_count:
            raise PipelineError("a result does not match its Avro schema")
        pairs = zip(bodies.to_pylist(), values.to_pylist(), strict=True)
        return pa.array([value if body is None else self._prefix + body for body, value in pairs], pa.binary())


def _without_times(part: Any) -> Any:
    if isinstance(part, list):
        return [_without_times(each) for each in part]
    if not isinstance(part, dict):
        return part
    if part.get("logicalType") in _TIMES:
        return part["type"]
    return {key: _without_times(each) if key != "default" else each for key, each in part.items()}
