"""Keys and values as text, JSON and Avro; each value that does not have the form is found, and no other."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.arrowtables.forms import Avro, Decoding, Json, Text, forms
from odradek.pipeline.decoding.arrow import SCHEMA_WITH_HEADERS
from odradek.pipeline.errors import OptionError

SCHEMA = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("ms")), ("tags", pa.list_(pa.string()))]
)
ORDER = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, {"name": "who", "type": "string"}]}
)
FRAGMENTS = [
    b'{"id":1}', b'{"id":1', b"}", b"{", b'{"id":', b"1}", b',"x":1', b'},{"v":{', b'}\n{"v":{"id":2}', b"\n", b" ",
    b'"', b"[", b"]", b"null", b"1", b'{"name":"', b'a"}', b'{"id":1}{"id":2}', b'{"id":"x"}', b"\xff", b"",
    b'{"id":1,"id":2}', b'{"other":{"id":[1,"a"]}}', b"{}",
]  # fmt: skip


def binaries(values: list[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary())


def test_text_is_decoded() -> None:
    assert Text().decode(binaries([b"a", None, "ä".encode(), b"\xff", b""])).to_pylist() == ["a", None, "ä", None, ""]


def test_json_becomes_a_struct() -> None:
    values = [b'{"id":1,"name":"ann","at":"2026-11-28T12:00:00","tags":["a"]}', None, b'{ "name":"bob",\n"more":[{}] }']
    found = Json(SCHEMA).decode(binaries(values)).to_pylist()
    assert [row and (row["id"], row["name"], row["tags"]) for row in found] == [
        (1, "ann", ["a"]),
        None,
        (None, "bob", None),
    ]
    assert str(found[0]["at"]) == "2026-11-28 12:00:00"


@pytest.mark.parametrize(
    "text",
    [
        b'{"id":9223372036854775808}',
        b'{"id":"1"}',
        b'{"at":"yesterday"}',
        b'{"tags":"a"}',
        b'{"id":NaN}',
        b"[" * 99_999,
    ],
)
def test_json_that_does_not_fit_the_schema_is_dead_and_others_are_not(text: bytes) -> None:
    found = Json(SCHEMA).decode(binaries([b'{"id":1}', text, b'{"id":3}'])).to_pylist()
    assert [row and row["id"] for row in found] == [1, None, 3]


def is_one_object(text: bytes) -> bool:
    """As Python reads JSON: an object whose id is a number and whose name is a text."""
    try:
        found = json.loads(text.decode())
    except ValueError:
        return False
    if not isinstance(found, dict):
        return False
    return type(found.get("id")) in (int, type(None)) and type(found.get("name")) in (str, type(None))


@given(st.lists(st.lists(st.sampled_from(FRAGMENTS), max_size=4).map(b"".join), max_size=8))
def test_exactly_the_texts_that_are_one_object_are_decoded(texts: list[bytes]) -> None:
    """Objects that are cut, or hang together, do not shift other rows."""
    form = Json(pa.schema([("id", pa.int64()), ("name", pa.string())]))
    found = form.decode(binaries([*texts]))
    assert len(found) == len(texts)
    assert [row is not None for row in found.to_pylist()] == [is_one_object(text) for text in texts]
    for text, row in zip(texts, found.to_pylist(), strict=True):
        if row is not None:
            assert row == {"id": json.loads(text).get("id"), "name": json.loads(text).get("name")}


def test_avro_is_decoded() -> None:
    whole = avro({"id": 7, "who": "ann"})
    values = [whole, None, whole[:-1], whole + b"x", b""]
    assert Avro(ORDER).decode(binaries(values)).to_pylist() == [{"id": 7, "who": "ann"}, None, None, None, None]


def test_avro_behind_the_bytes_of_confluent_is_decoded() -> None:
    whole = b"\0\0\0\0\x09" + avro({"id": 7, "who": "ann"})
    found = Avro(ORDER, confluent=True).decode(binaries([whole, b"\1" + whole[1:], whole[:3]]))
    assert found.to_pylist() == [{"id": 7, "who": "ann"}, None, None]


def avro(value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(ORDER)), value)
    return out.getvalue()


# -- record batches


def records(values: list[bytes | None], keys: list[bytes | None]) -> pa.RecordBatch:
    columns: dict[str, Any] = {"partition": [3] * len(values), "offset": [*range(10, 10 + len(values))]}
    columns |= {"key": keys, "value": values}
    return pa.RecordBatch.from_pydict(columns, pa.schema([SCHEMA_WITH_HEADERS.field(name) for name in columns]))


def test_dead_records_are_kept_apart_with_their_bytes_and_a_reason() -> None:
    decoding = Decoding(forms({"key": "text", "value": pa.schema([("id", pa.int64())])}), ("value", "key"))
    assert decoding.reads == ("value", "key", "partition", "offset")
    values: list[bytes | None] = [b'{"id":1}', b"{", None, b'{"id":4}']
    rows = decoding.rows(records(values, [b"a", b"b", None, b"\xff"]).select(decoding.reads))
    assert rows.good.schema == decoding.schema()
    assert rows.good.to_pylist() == [{"value": {"id": 1}, "key": "a"}, {"value": None, "key": None}]
    assert rows.dead is not None
    assert rows.dead.to_pylist() == [
        {"value": b"{", "key": b"b", "partition": 3, "offset": 11,
         "reason": "the value is not a JSON object of the given schema"},
        {"value": b'{"id":4}', "key": b"\xff", "partition": 3, "offset": 13, "reason": "the key is not UTF-8"},
    ]  # fmt: skip


def test_form_of_a_column_that_is_not_read_is_not_decoded() -> None:
    decoding = Decoding(forms({"value": "text"}), ("key",))
    assert decoding.reads == ("key",)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("json", "schema has 'json': it must be 'text', a pyarrow.Schema for JSON, Json"),
        ({"offset": "text"}, "schema has offset: it may have key and value"),
        ({"value": 7}, "schema has 7"),
    ],
)
def test_wrong_schema_is_told_in_one_line(schema: Any, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        forms(schema)


@pytest.mark.parametrize(
    "schema", ["{", '{"type":"what"}', '["null","string"]', '{"type":"record","name":"n","fields":[]}']
)
def test_wrong_avro_schema_is_told_in_one_line(schema: str) -> None:
    with pytest.raises(OptionError) as raised:
        Avro(schema)
    assert "\n" not in str(raised.value)


def test_schema_with_a_type_that_json_does_not_have_is_told_in_one_line() -> None:
    with pytest.raises(OptionError, match=r"^Json: the field 'f' has type .*binary, which JSON does not have$"):
        Json(pa.schema([("whole", pa.struct([("f", pa.binary())]))]))
