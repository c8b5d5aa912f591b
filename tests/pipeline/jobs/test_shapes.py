"""Any bytes survive shaping, Parquet and unshaping unchanged; matching values are decoded."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import fastavro
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.pipeline.errors import OptionError, PipelineError
from odradek.pipeline.jobs.archive.formats import shapes
from odradek.pipeline.jobs.archive.formats.avro import Codec
from odradek.pipeline.jobs.archive.formats.avro_columns import Decoding, Encoding
from odradek.pipeline.jobs.archive.formats.formats import Format, Formats, Shape, parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TYPES = "id BIGINT, name STRING, price DOUBLE, tags ARRAY<STRING>, more MAP<STRING, INT>, `a.b` BOOLEAN, at TIMESTAMP"
ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "before", "type": ["null", "State"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "on", "type": [{"type": "int", "logicalType": "date"}, "null"]},
        {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "what", "type": ["null", "int", "string", {"type": "array", "items": "float"}]},
        {"name": "more", "type": {"type": "map", "values": ["null", "double"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "who", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}


# -- Avro, without Spark


def plain(schema: Any) -> Any:
    """The schema without logical types, which allow any number."""
    if isinstance(schema, list):
        return [plain(each) for each in schema]
    if isinstance(schema, dict):
        return {key: plain(each) for key, each in schema.items() if key != "logicalType"}
    return schema


def avro(schema: Any, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


longs = st.integers(-(2**63), 2**63 - 1)
ints = st.integers(-(2**31), 2**31 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
orders = st.fixed_dictionaries(
    {
        "id": longs,
        "state": st.sampled_from(["NEW", "PAID"]),
        "before": st.none() | st.sampled_from(["NEW", "PAID"]),
        "at": longs | st.integers(0, 2 * 10**12),
        "on": st.none() | ints | st.integers(-1000, 1000),
        "sum": st.binary(max_size=6),
        "what": st.none() | ints | texts | st.lists(st.floats(width=32), max_size=3),
        "more": st.dictionaries(texts, st.none() | st.floats(), max_size=3),
        "hash": st.binary(min_size=2, max_size=2),
        "clock": ints,
        "who": texts,
    }
)
encoded = orders.map(lambda order: avro(plain(ORDER), order))
near = st.tuples(encoded, st.binary(max_size=3), st.integers(0, 40)).map(lambda one: one[0][: one[2]] + one[1])
values = st.none() | st.binary(max_size=40) | encoded | near
prefixed = values.map(lambda value: value and b"\0\0\0\0\7" + value)


@pytest.mark.parametrize("kind", ["avro", "avro-confluent"])
@settings(max_examples=150)
@given(data=st.data())
def test_decoded_avro_encodes_to_the_same_bytes(kind: str, data: Any) -> None:
    """For nulls, noise, valid, truncated and extended messages."""
    column = pa.array(data.draw(st.lists(values | prefixed, max_size=20)), pa.binary())
    form = Format(kind, json.dumps(ORDER))
    shaped = Decoding("value", form).converted({"value": column})
    assert Encoding("value", form).converted(shaped)["value"].equals(column)


def test_avro_values_are_decoded() -> None:
    codec = Codec(json.dumps(ORDER))
    order = {"id": 7, "state": "NEW", "before": "PAID", "at": 86_400_001, "on": 1, "sum": b"\xff\x38", "what": "x"}
    order |= {"more": {"k": 1.5, "l": None}, "hash": b"ab", "clock": 5, "who": "me"}
    data = [avro(plain(ORDER), order), avro(plain(ORDER), {**order, "what": [0.5]}), b"?", None]
    made = codec.decode(pa.array(data))
    one, two, *rest = made.to_pylist()
    assert one == {
        **{"id": 7, "state": "NEW", "before": "PAID", "hash": b"ab", "clock": 5, "who": "me"},
        **{"at": datetime(1970, 1, 2, 0, 0, 0, 1000, UTC), "on": date(1970, 1, 2), "sum": Decimal("-2.00")},
        **{"what": {"member0": None, "member1": "x", "member2": None}, "more": [("k", 1.5), ("l", None)]},
    }
    assert two["what"] == {"member0": None, "member1": None, "member2": [0.5]}
    assert rest == [None, None]
    assert codec.encode(made).to_pylist() == [*data[:2], None, None]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("{", "not an Avro schema"),
        ('"strong"', "not an Avro schema"),
        ('{"type": "fixed", "name": "f"}', "not an Avro schema"),
        ('{"type": "record", "name": "r", "fields": []}', "the record r has no fields"),
        ('["null"]', "always null"),
        (
            '{"type": "record", "name": "r", "fields": [{"name": "next", "type": ["null", "r"]}]}',
            "r is recursive",
        ),
    ],
)
def test_unusable_avro_schemas_are_refused(schema: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "s.avsc").write_text(schema)
    with pytest.raises(OptionError, match=f"--value-format avro:.*s.avsc: .*{words}"):
        parse("--value-format", [f"avro:{tmp_path}/s.avsc"])


def test_value_that_does_not_match_its_avro_schema_is_an_error() -> None:
    """From an archive file that was changed."""
    form = Format("avro", '{"type": "enum", "name": "e", "symbols": ["A"]}')
    changed = {"key": pa.array(["B"]), "key_raw": pa.array([None], pa.binary())}
    with pytest.raises(PipelineError, match="a key of the archive does not match its Avro schema"):
        Encoding("key", form).converted(changed)


# -- options


def asked(*words: str) -> Any:
    """The formats of a command line, or its error output."""
    found: list[Formats] = []

    @click.command()
    @shapes.options
    def command(formats: Formats) -> None:
        found.append(formats)

    result = CliRunner().invoke(command, words)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return found[0] if found else result.output


def test_formats_are_chosen_by_topic(tmp_path: Path) -> None:
    types = tmp_path / "types.ddl"
    types.write_text("a INT\n")
    formats = asked("--value-format", "string", "--value-format", f"orders=json:{types}", "--key-format", "a.b=string")
    assert formats.of("orders") == Shape(Format(), Format("json", "a INT"))
    assert formats.of("a.b") == Shape(Format("string"), Format("string"))
    assert formats.of("others").name == "raw/string"
    assert asked().of("orders").name == "raw/raw"
    assert asked("--value-format", "json:a=b").of("x").value == Format("json", "a=b")
    assert asked("--value-format", "x=json:a INT").of("x").name != asked("--value-format", "x=json:b INT").of("x").name


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--value-format", "yaml"], "--value-format must be raw, string, json:TYPES, .*not 'yaml'"),
        (["--value-format", "orders=json:"], "not 'json:'"),
        (["--key-format", "string:x"], "not 'string:x'"),
        (["--key-format", "avro:/not/there"], "--key-format avro:/not/there: cannot read /not/there: No such file"),
        (["--key-format", "json:/not/there"], "cannot read /not/there: No such file"),
        (["--key-format", "raw", "--key-format", "string"], "--key-format is given twice for all topics"),
        (["--key-format", "t=raw", "--key-format", "t=raw"], "--key-format is given twice for t"),
    ],
)
def test_invalid_formats_are_refused(words: list[str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        asked(*words)


@pytest.mark.live
@pytest.mark.parametrize("types", ["a NOTHING", "INT", '{"type": "struct"}', "{"])
def test_invalid_json_types_are_refused(spark: SparkSession, types: str) -> None:
    with pytest.raises(OptionError, match=r"json: .*(invalid types|the type must be a struct)") as caught:
        shapes.check(Formats({}, {"": Format("json", types)}))
    assert "\n" not in str(caught.value)


# -- in Spark


def frame(spark: SparkSession, values: list[bytes | None]) -> DataFrame:
    """Records as the source returns them."""
    rows = [(value, value, at) for at, value in enumerate(values)]
    return spark.createDataFrame(rows, "key binary, value binary, offset bigint")


def kept(df: DataFrame, folder: Path) -> DataFrame:
    """The frame after a round trip through Parquet."""
    df.write.parquet(str(folder))
    return df.sparkSession.read.parquet(str(folder))


def cells(df: DataFrame, *names: str) -> list[list[Any]]:
    """Columns or expressions as lists, in the order of offsets."""
    rows = df.orderBy("offset").selectExpr(*names).collect()
    columns = zip(*rows, strict=True)
    return [[bytes(each) if isinstance(each, bytearray) else each for each in column] for column in columns]


def round_trip(df: DataFrame, shape: Shape, folder: Path) -> DataFrame:
    """The archived form of `df`; asserts that it unshapes to the same bytes."""
    archived = kept(shapes.shape(df, shape), folder)
    assert shapes.of(archived) == shape
    back = shapes.unshape(archived)
    assert back.schema.simpleString() == df.schema.simpleString()
    assert cells(back, *shapes.COLUMNS) == cells(df, *shapes.COLUMNS)
    return archived


documents = st.recursive(
    st.none() | st.booleans() | longs | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=3,
)
fitting = st.fixed_dictionaries(
    {},
    optional={
        "id": longs,
        "name": texts,
        "price": st.floats(allow_nan=False, allow_infinity=False),
        "tags": st.lists(texts, max_size=2),
        "more": st.dictionaries(texts, ints, max_size=2),
        "a.b": st.booleans(),
    },
)
spaced = st.sampled_from([(",", ":"), (", ", ": ")])
jsons = st.builds(
    lambda one, separators, ascii_, end: (json.dumps(one, separators=separators, ensure_ascii=ascii_) + end).encode(),
    *(fitting | documents | st.dictionaries(st.sampled_from(["id", "name", "at", "more"]), documents), spaced),
    *(st.booleans(), st.sampled_from(["", "", "", " ", "}", " x", "{}"])),
)


@pytest.mark.live
@settings(max_examples=3, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_decoded_text_and_json_round_trip(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, data: Any
) -> None:
    values = data.draw(st.lists(st.none() | st.binary(max_size=8) | texts.map(str.encode) | jsons, min_size=150))
    form = data.draw(st.sampled_from([Format("json", TYPES), Format("json", "MAP<STRING, STRING>")]))
    round_trip(frame(spark, values), Shape(Format("string"), form), tmp_path_factory.mktemp("text") / "table")


@pytest.mark.live
def test_text_and_json_values_are_decoded(spark: SparkSession, tmp_path: Path) -> None:
    exact = b'{"id":1,"name":"\xc3\xa4","tags":["x",null],"more":{"k":2},"a.b":true,"at":"2026-11-23T01:00:00.000Z"}'
    values = [
        exact,
        b'{"name":"n", "id":2}',
        b'{"id":3,"new":4}',
        b'{"id":"x","name":"n"}',
        b'{"id":5} x',
        b"\xff",
        b"",
        None,
    ]
    archived = round_trip(frame(spark, values), Shape(Format("string"), Format("json", TYPES)), tmp_path / "table")
    key, key_raw, value_raw, ids, at = cells(
        archived, "key", "key_raw", "value_raw", "value.id", "value.at = timestamp '2026-11-23 01:00'"
    )
    assert key == [None if each in (None, b"\xff") else each.decode() for each in values]
    assert key_raw == [None, None, None, None, None, b"\xff", None, None]
    assert value_raw == [None, *values[1:]]
    assert ids == [1, 2, 3, None, 5, None, None, None]
    assert at[0]


@pytest.mark.live
def test_avro_round_trips_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    """All types through Parquet, next to values that are not Avro."""
    order = {"id": 7, "state": "NEW", "before": None, "at": 5, "on": -9, "sum": b"\x01", "what": [1.5], "clock": 5}
    order |= {"more": {"k": 1.5, "l": None, "": float("nan")}, "hash": b"ab", "who": "me"}
    good = [avro(plain(ORDER), {**order, "id": at, "what": what}) for at, what in enumerate([None, 4, "x", [0.5]])]
    for kind, prefix in (("avro", b""), ("avro-confluent", b"\0\0\0\1\2")):
        values = [*(prefix + each for each in good), good[0] + b"?", b"\0", b"", None]
        form = Format(kind, json.dumps(ORDER))
        archived = round_trip(frame(spark, values), Shape(form, form), tmp_path / kind)
        ids, raw, floats = cells(archived, "value.id", "value_raw", "value.what.member2")
        assert ids == [0, 1, 2, 3, *ids[4:5], None, None, None]
        assert raw == [None] * 4 + values[4:]
        assert floats[3] == [0.5]
    assert cells(archived, "key_schema_id")[0][:4] == [258] * 4


@pytest.mark.live
def test_raw_columns_are_unchanged(spark: SparkSession) -> None:
    df = frame(spark, [b"x", None])
    assert shapes.shape(df, Shape()).columns == shapes.unshape(df).columns == ["key", "value", "offset"]
