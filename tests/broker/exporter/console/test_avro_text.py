"""Avro values as text: what fastavro encodes, in Avro's JSON encoding; hostile bytes and types cost little."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.exporter.console.avro_schema import parse
from odradek.broker.exporter.console.avro_text import DEEPEST, Text, ValueFault, text_of
from odradek.protocol.records import varint
from odradek.protocol.wire import INT32_MAX, INT64_MAX

MOST = 1000
EVERY = {
    "type": "record",
    "name": "Every",
    "namespace": "shop",
    "fields": [
        {"name": "none", "type": "null"},
        {"name": "yes", "type": "boolean"},
        {"name": "count", "type": "int"},
        {"name": "total", "type": "long"},
        {"name": "ratio", "type": "double"},
        {"name": "text", "type": "string"},
        {"name": "data", "type": "bytes"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 3}},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "list", "type": {"type": "array", "items": ["null", "Colour", "string"]}},
        {"name": "map", "type": {"type": "map", "values": "long"}},
        {"name": "next", "type": ["null", "Every"]},
    ],
}
LONGS = st.integers(-INT64_MAX - 1, INT64_MAX)
BRANCHES = st.none() | st.sampled_from([("shop.Colour", "RED"), ("shop.Colour", "BLUE")]) | st.text(max_size=9)
LEAF = st.fixed_dictionaries(
    {
        "none": st.none(),
        "yes": st.booleans(),
        "count": st.integers(-INT32_MAX - 1, INT32_MAX),
        "total": LONGS,
        "ratio": st.floats(allow_nan=False, allow_infinity=False),
        "text": st.text(max_size=20),
        "data": st.binary(max_size=20),
        "hash": st.binary(min_size=3, max_size=3),
        "colour": st.sampled_from(["RED", "BLUE"]),
        "list": st.lists(BRANCHES, max_size=4),
        "map": st.dictionaries(st.text(min_size=1, max_size=5), LONGS, max_size=4),  # fastavro cannot write "" as JSON
        "next": st.none(),
    }
)
VALUES = LEAF | st.tuples(LEAF, LEAF).map(lambda pair: {**pair[0], "next": pair[1]})


def encoded(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def text(data: bytes, schema: Any, most: int = MOST) -> Text:
    return text_of(data, parse(json.dumps(schema)), most)


@given(VALUES)
def test_values_are_those_of_avros_json_encoding(value: dict[str, Any]) -> None:
    found = text(encoded(EVERY, value), EVERY, 1 << 20)
    out = io.StringIO()
    fastavro.json_writer(out, fastavro.parse_schema(EVERY), [value])
    assert not found.is_cut
    assert json.loads(found.text) == json.loads(out.getvalue())


@pytest.mark.parametrize(
    ("schema", "data", "expected"),
    [
        ("string", b'\x06a"b', '"a\\"b"'),
        ("string", b"\x02\xff", '"�"'),
        ("bytes", b"\x04\x00\xff", '"\\u0000ÿ"'),
        ("float", b"\x00\x00\x80\x3f", "1.0"),
        (["null", "int"], b"\x02\x02", '{"int":1}'),
        (["null", "int"], b"\x00", "null"),
        ({"type": "record", "name": "R", "fields": []}, b"", "{}"),
        ({"type": "array", "items": "int"}, b"\x03\x04\x02\x04\x02\x06\x00", "[1,2,3]"),  # a block with its size
    ],
)
def test_a_value_is_compact_json(schema: Any, data: bytes, expected: str) -> None:
    assert text(data, schema) == Text(expected, False)


@pytest.mark.parametrize(
    ("schema", "data", "line"),
    [
        ("string", varint.encode(INT64_MAX) + b"abc", f"it claims {INT64_MAX} bytes where 3 are left"),
        ("bytes", varint.encode(-1), "it claims -1 bytes where 0 are left"),
        ({"type": "fixed", "name": "F", "size": INT64_MAX}, b"", f"it claims {INT64_MAX} bytes where 0 are left"),
        ("long", b"\xff" * 11, "it ends within a number, or has an invalid one"),
        ("long", b"\xff", "it ends within a number, or has an invalid one"),
        ("int", b"\x02\x02\x02", "2 bytes are behind the value"),
        (["null", "int"], b"\x04", "it has branch of a union 2 of 2"),
        ([], b"\x00", "it has branch of a union 0 of 0"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x01", "it has symbol of an enum -1 of 1"),
    ],
)
def test_bytes_that_are_no_value_are_one_line(schema: Any, data: bytes, line: str) -> None:
    with pytest.raises(ValueFault) as error:
        text(data, schema)
    assert str(error.value) == line


@pytest.mark.parametrize("count", [varint.encode(INT64_MAX), varint.encode(-INT64_MAX) + b"\x00"])
@pytest.mark.parametrize("items", ["null", {"type": "record", "name": "Empty", "fields": []}])
def test_items_without_bytes_end_with_the_text(count: bytes, items: Any) -> None:
    found = text(count, {"type": "array", "items": items})
    assert found.is_cut and MOST < len(found.text) < MOST + 10


def test_records_that_double_at_each_level_end_with_the_text() -> None:
    inner: Any = "null"
    for level in range(30):
        first = {"name": "a", "type": inner}
        again = {"name": "b", "type": f"R{level - 1}" if level else "null"}
        inner = {"type": "record", "name": f"R{level}", "fields": [first, again]}
    assert text(b"", inner).is_cut


def test_a_record_that_is_only_itself_is_refused() -> None:
    with pytest.raises(ValueFault, match=f"it nests more than {DEEPEST} values"):
        text(b"", {"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]})


def test_a_long_chain_of_records_is_refused() -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    with pytest.raises(ValueFault, match=f"it nests more than {DEEPEST} values"):
        text(b"\x02" * 1_000_000, node, 1 << 20)


def test_a_long_text_is_cut() -> None:
    found = text(encoded("string", "x" * 5000), "string")
    assert found == Text(f'"{"x" * MOST}"', True)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_one_line(data: bytes) -> None:
    try:
        found = text(data, EVERY)
        assert found.is_cut or json.loads(found.text)
    except ValueFault as error:
        assert "\n" not in str(error)
