"""Convert keys and values that are text, JSON too, with Spark's own expressions: `shapes`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from odradek.pipeline.errors import OptionError
from odradek.pipeline.jobs.archive.formats.formats import STRING, Format

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import ArrayType, MapType, StructType

_BROKEN = "_odradek_broken"  # the field in which Spark puts JSON that it could not parse
# Any option also stops Spark from replacing `to_json(from_json(text))` by `text`: see its OptimizeCsvJsonExprs.
_READ = {"columnNameOfCorruptRecord": _BROKEN, "mode": "PERMISSIVE", "timeZone": "UTC"}
_WRITE = {"ignoreNullFields": "true", "timeZone": "UTC"}


def shaped(df: DataFrame, name: str, form: Format) -> DataFrame:
    """Column `name` decoded, followed by `name`_raw."""
    from pyspark.sql import functions as F

    raw = df[name]
    decoded = _text(raw) if form.kind == STRING else _parsed(raw, form)
    kept = F.when(~_encoded(decoded, form).eqNullSafe(raw), raw)
    return _select(df, name, [decoded.alias(name), kept.alias(f"{name}_raw")])


def unshaped(df: DataFrame, name: str, form: Format) -> DataFrame:
    """The bytes of column `name`."""
    from pyspark.sql import functions as F

    raw = F.coalesce(df[f"{name}_raw"], _encoded(df[name], form))
    return _select(df, name, [raw.alias(name)]).drop(f"{name}_raw")


def types(text: str) -> StructType | ArrayType | MapType:
    """Types of JSON; needs a session, because Java parses DDL. OptionError, one line."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import ArrayType, DataType, MapType, StructType

    try:
        found = StructType.fromJson(json.loads(text)) if text.startswith("{") else DataType.fromDDL(text)
    except (PySparkException, ValueError, KeyError, TypeError) as error:
        raise OptionError(f"json: {_line(text)}: invalid types: {_line(str(error))}") from None
    if not isinstance(found, StructType | ArrayType | MapType):
        raise OptionError(f"json: {_line(text)}: the type must be a struct, an array or a map")
    return found


def _line(text: str) -> str:
    """The text on one line, shortened if long."""
    words = " ".join(text.split())
    return words if len(words) <= 200 else f"{words[:200]}…"


def _text(raw: Column) -> Column:
    from pyspark.sql import functions as F

    text = raw.cast("string")
    return F.when(F.is_valid_utf8(text), text)


def _parsed(raw: Column, form: Format) -> Column:
    """Null where it is no JSON of these types, even if some fields fit."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    wanted = types(form.schema)
    if not isinstance(wanted, StructType):
        any_type: Any = wanted  # also a map, which the annotation of from_json omits
        return F.from_json(_text(raw), any_type, _READ)
    parsed = F.from_json(_text(raw), StructType([*wanted.fields, StructField(_BROKEN, StringType())]), _READ)
    whole = parsed.isNotNull() & parsed[_BROKEN].isNull()
    return F.when(whole, F.struct(*(parsed.getField(one.name).alias(one.name) for one in wanted.fields)))


def _encoded(decoded: Column, form: Format) -> Column:
    from pyspark.sql import functions as F

    text = decoded if form.kind == STRING else F.to_json(decoded, _WRITE)
    return text.cast("binary")


def _select(df: DataFrame, name: str, columns: list[Column]) -> DataFrame:
    """`columns` where column `name` was."""
    return df.select(*(one for each in df.columns for one in (columns if each == name else [df[f"`{each}`"]])))
