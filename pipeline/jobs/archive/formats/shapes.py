"""The formats of keys and values in an archive: bytes, text, or columns from JSON or Avro; and the way back.

    raw                  the bytes (the default)
    string               text, where they are UTF-8
    json:TYPES           a struct, array or map; TYPES is Spark's DDL (`id BIGINT, at STRING`), or a file with that, or
                         with Spark's JSON of a schema
    avro:FILE            values of the schema in FILE, without any header
    avro-confluent:FILE  the same behind Confluent's five bytes: 0 and the schema's id, which becomes value_schema_id
    avro-registry:URL    the same, with schemas from the registry: see `latest`

Nothing is ever dropped, and everything is restored byte for byte, by one rule: where encoding the decoded value again
would not give the same bytes, the column value_raw keeps them. So it has bytes that cannot be decoded, whose value is
null, but also JSON with a field that the types do not name, with blanks or in another order.

A column's metadata has its format, and Spark's Parquet files keep it: `unshape` and `of` need nothing else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from odradek.pipeline.jobs.archive.formats import avro_columns, text_codecs
from odradek.pipeline.jobs.archive.formats.formats import (
    AVRO,
    CONFLUENT,
    FORMS,
    JSON,
    RAW,
    REGISTRY,
    STRING,
    Format,
    Formats,
    Shape,
)
from odradek.pipeline.jobs.archive.formats.formats import parse as parse_formats

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COLUMNS = ("key", "value")
_FOREIGN = "_odradek_foreign_"
_KIND, _SCHEMA = "odradek.format", "odradek.schema"  # in the metadata of a column
_BY: dict[str, ModuleType] = dict.fromkeys((STRING, JSON), text_codecs)
_BY |= dict.fromkeys((AVRO, CONFLUENT, REGISTRY), avro_columns)


def options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--key-format` and `--value-format`: passed on as `formats`, of type Formats."""

    @click.option(
        "--key-format", "key_formats", multiple=True, metavar="[TOPIC=]FORMAT", help=f"Format of keys: {FORMS}."
    )
    @click.option(
        "--value-format", "value_formats", multiple=True, metavar="[TOPIC=]FORMAT", help="Format of values, likewise."
    )
    @functools.wraps(function)
    def with_formats(*args: Any, key_formats: tuple[str, ...], value_formats: tuple[str, ...], **rest: Any) -> Any:
        formats = Formats(parse_formats("--key-format", key_formats), parse_formats("--value-format", value_formats))
        return function(*args, formats=formats, **rest)

    return with_formats


def check(formats: Formats) -> None:
    """Check what needs a session: whether the types of JSON are valid. OptionError."""
    for one in {*formats.keys.values(), *formats.values.values()}:
        if one.kind == JSON:
            text_codecs.types(one.schema)


def shape(df: DataFrame, wanted: Shape) -> DataFrame:
    """Key and value in the formats of `wanted`, each followed by key_raw or value_raw; other columns unchanged."""
    for name, form in zip(COLUMNS, (wanted.key, wanted.value), strict=True):
        if form.kind != RAW:
            df = _BY[form.kind].shaped(df, name, form)
            df = _replaced(df, name, _labelled(df[name], name, {_KIND: form.kind, _SCHEMA: form.schema}))
    return df


def unshape(df: DataFrame) -> DataFrame:
    """The inverse: key and value as the original bytes."""
    shaped = of(df)
    for name, form in zip(COLUMNS, (shaped.key, shaped.value), strict=True):
        if form.kind != RAW:
            df = _BY[form.kind].unshaped(df, name, form)
            df = _replaced(df, name, _labelled(df[name], name, {}))
    return df


def of(df: DataFrame) -> Shape:
    """The formats of a frame that comes from `shape`, or from the files of one that does."""
    found = [df.schema[name].metadata for name in COLUMNS]
    return Shape(*(Format(each.get(_KIND, RAW), each.get(_SCHEMA, "")) for each in found))


def foreign(df: DataFrame) -> DataFrame:
    """Add a column for each registry format: whether its bytes are kept, because only the registry can decode these."""
    for name in _of_registry(df):
        df = df.withColumn(_FOREIGN + name, df[f"{name}_raw"].isNotNull())
    return df


def without_foreign(df: DataFrame) -> DataFrame:
    """Set values and bytes to null where `foreign` found that; drop its columns."""
    from pyspark.sql import functions as F

    for name in [each for each in COLUMNS if _FOREIGN + each in df.columns]:
        for column in (name, f"{name}_raw"):
            df = df.withColumn(column, F.when(~df[_FOREIGN + name], df[column]))
        df = df.drop(_FOREIGN + name)
    return df


def _of_registry(df: DataFrame) -> list[str]:
    shaped = of(df)
    return [name for name, form in zip(COLUMNS, (shaped.key, shaped.value), strict=True) if form.kind == REGISTRY]


def _labelled(column: Column, name: str, metadata: dict[str, str]) -> Column:
    return column.alias(name, metadata=metadata)


def _replaced(df: DataFrame, name: str, column: Column) -> DataFrame:
    return df.select(*(column if each == name else df[f"`{each}`"] for each in df.columns))
