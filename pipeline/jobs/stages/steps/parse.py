"""Step 1: a record's bytes become columns; a value that does not fit becomes a reason.

Spark says only that a value does not fit; the columns at fault are determined for such values alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType

from odradek.pipeline.errors import OptionError
from odradek.pipeline.jobs.stages.declaration.avro_declared import AVRO
from odradek.pipeline.jobs.stages.declaration.declaration import Parse
from odradek.pipeline.jobs.stages.declaration.sql import REASON, RECORD, Blame, every, first, literal, quoted
from odradek.pipeline.jobs.stages.steps import avro

_TEXT = f"string({RECORD}.value)"
# Spark's parsers stop after the first value and ignore the rest. So a text is one value only where it fills one place
# in an array and our marker is in the next place: the text's own digest, which the text cannot contain.
_ONE = f"""get_json_object(concat('[', {_TEXT}, ',"', md5({RECORD}.value), '"]'), '$[1]') <=> md5({RECORD}.value)"""
# That takes half as long as parsing. A text that begins with a brace and ends with its first closing one is exempt.
_FLAT = f"startswith({_TEXT}, '{{') AND instr({_TEXT}, '}}') = char_length({_TEXT})"
_WRAPPED = f"""concat('{{"v":', {_TEXT}, '}}')"""  # a field of an object that does not fit the schema is an error
_NOT_JSON = "'the value is not JSON'"
_ENDS = "\r\n"  # of lines
_LINE = f"rtrim({literal(_ENDS)}, {_TEXT})"
_PARSED = "__parsed"
_CORRUPT = StructField("__corrupt", StringType())


@dataclass(frozen=True)
class Reading:
    """How values are read, and the resulting columns."""

    how: Parse
    columns: StructType

    @classmethod
    def of(cls, how: Parse) -> Reading:
        """Needs a session. OptionError or ParseException where the schema is no DDL of Spark's, or is missing."""
        if how.format == AVRO:
            asked = avro.known(how)
            return cls(asked, avro.columns(asked))
        if how.format == "string":
            return cls(how, StructType([StructField(how.column, StringType())]))
        columns = StructType.fromDDL(how.schema)
        if not isinstance(columns, StructType):  # Spark also accepts the name of a type
            raise OptionError(f"must be columns and types such as 'id BIGINT, name STRING', not '{how.schema}'")
        return cls(how, columns)


def parsed(rows: DataFrame, reading: Reading) -> DataFrame:
    """Rows with `record` become rows with `record`, `__reason` and the columns."""
    if reading.how.format == AVRO:
        why = f"{_PARSED}.{avro.WHY}"
        return _columns(avro.parsed(rows, reading.how, _PARSED), reading, why, f"{_PARSED}.{avro.FIELDS}")
    made = _FORMATS[reading.how.format](reading)
    rows = rows.select(RECORD, made.column.alias(_PARSED))
    return _columns(rows, reading, first([*_ALWAYS, *made.blames]), made.struct)


def _columns(rows: DataFrame, reading: Reading, reason: str, struct: str) -> DataFrame:
    columns = [F.expr(f"{struct}.{quoted(name)}").alias(name) for name in reading.columns.names]
    return rows.select(RECORD, F.expr(reason).alias(REASON), *columns)


_ALWAYS = [
    (f"{RECORD}.value IS NULL", "'the value is null'"),
    (f"NOT is_valid_utf8({_TEXT})", "'the value is not UTF-8'"),
]


class _Made(NamedTuple):
    column: Column
    struct: str  # the fields' place in the column
    blames: list[Blame]


def _string(reading: Reading) -> _Made:
    return _Made(F.expr(f"struct({_TEXT} AS {quoted(reading.how.column)})"), _PARSED, [("FALSE", "''")])


def _csv(reading: Reading) -> _Made:
    schema = StructType([*reading.columns.fields, _CORRUPT])
    options = {"columnNameOfCorruptRecord": _CORRUPT.name, **dict(reading.how.csv)}
    column = F.from_csv(F.expr(_LINE), schema.toDDL(), options)
    no = f"{_PARSED}.{_CORRUPT.name} IS NOT NULL OR {_LINE} = '' OR {_lines(options.get('quote', chr(34)))}"
    return _Made(column, _PARSED, [(no, "'the value is not CSV of the schema'")])


def _lines(quote: str) -> str:
    """Whether there is a line end outside of quotes. Spark treats the whole text as one line."""
    rest = _without(rf"\\[^{_ENDS}]", _LINE)  # escaped quotes
    if quote:
        rest = _without(rf"\Q{quote}\E[^\Q{quote}\E]*+\Q{quote}\E", rest)
    return f"regexp_like({rest}, {literal(f'[{_ENDS}]')})"


def _without(pattern: str, text: str) -> str:
    return f"regexp_replace({text}, {literal(pattern)}, '')"


def _json(reading: Reading) -> _Made:
    schema = StructType([StructField("v", reading.columns), _CORRUPT])
    column = F.from_json(F.expr(_WRAPPED), schema, {"columnNameOfCorruptRecord": _CORRUPT.name})
    misfits = every(_misfit(field.name, field.dataType) for field in reading.columns)
    blames = [
        (f"NOT ({_FLAT} OR {_ONE})", _NOT_JSON),
        (f"{_PARSED}.{_CORRUPT.name} IS NULL AND {_PARSED}.v IS NOT NULL", "NULL"),
        (f"try_parse_json({_WRAPPED}) IS NULL", _NOT_JSON),
        ("TRUE", f"coalesce({misfits}, 'the value is not a JSON object of the schema')"),
    ]
    return _Made(column, f"{_PARSED}.v", blames)


def _misfit(name: str, kind: DataType) -> Blame:
    """The value has something under `name` that did not become a `kind`."""
    something = f"get_json_object({_TEXT}, {literal(f'$[{chr(39)}{name}{chr(39)}]')}) IS NOT NULL"
    return f"{something} AND {_PARSED}.v.{quoted(name)} IS NULL", literal(f"{name} is not {kind.simpleString()}")


_FORMATS = {"json": _json, "csv": _csv, "string": _string}
