"""Avro schema resolution: a writer's Avro converted to the reader's schema, and cases without a result."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import fastavro
import pytest

from odradek.pipeline.jobs.archive.formats.avro import Codec
from odradek.pipeline.jobs.archive.formats.avro_resolution import Resolution, resolution

MISMATCH = fastavro.read.SchemaResolutionError
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
STATE = {"type": "enum", "name": "State", "symbols": ["NEW", "LOST"]}


def record(fields: dict[str, Any], name: str = "shop.Order", **defaults: Any) -> dict[str, Any]:
    """A record schema; fields with a default are named twice."""
    made = [{"name": one, "type": kind} for one, kind in fields.items()]
    return {
        "type": "record",
        "name": name,
        "fields": [one | ({"default": defaults[one["name"]]} if one["name"] in defaults else {}) for one in made],
    }


def decimal(scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": scale}


def avro(schema: Any, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def resolved(writer: Any, reader: Any, value: Any) -> Any:
    """The value in the archive: the reader's Avro, decoded by its codec."""
    import pyarrow as pa

    data = Resolution(json.dumps(writer), json.dumps(reader))(avro(writer, value))
    return Codec(json.dumps(reader)).decode(pa.array([data])).to_pylist()[0]


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        ({"a": "int", "b": "string"}, record({"b": "string", "a": "double"}), {"a": 7, "b": "x"}, {"b": "x", "a": 7.0}),
        ({"a": "int"}, record({"a": "int", "b": "string"}, b="new"), {"a": 7}, {"a": 7, "b": "new"}),
        ({"a": "int"}, record({"a": "int", "b": "bytes"}, b="\u00ff"), {"a": 7}, {"a": 7, "b": b"\xff"}),
        ({"a": "int"}, record({"b": ["null", "int"]}, b=None), {"a": 7}, {"b": None}),
        ({"a": STATE}, record({"a": STATE | {"symbols": ["OLD", "NEW"]}}), {"a": "NEW"}, {"a": "NEW"}),
        (
            {"a": STATE},
            record({"a": STATE | {"symbols": ["OLD", "NEW"], "default": "OLD"}}),
            {"a": "LOST"},
            {"a": "OLD"},
        ),
        ({"a": "int"}, record({"a": ["null", "string", "long"]}), {"a": 7}, {"a": {"member0": None, "member1": 7}}),
        ({"a": ["null", STATE]}, record({"a": STATE}), {"a": "NEW"}, {"a": "NEW"}),
    ],
)
def test_values_are_resolved_to_the_readers_schema(writer: Any, reader: Any, value: Any, expected: Any) -> None:
    assert resolved(record(writer), reader, value) == expected


def test_field_alias_is_resolved() -> None:
    reader = record({})
    reader["fields"] = [{"name": "who", "type": "string", "aliases": ["name"]}]
    assert resolved(record({"name": "string"}), reader, {"name": "x"}) == {"who": "x"}


@pytest.mark.parametrize(
    ("writer", "reader", "sent", "got"),
    [
        (MILLIS, MICROS, 1500, 1_500_000),
        (MICROS, MILLIS, 1_500_000, 1500),
        (MILLIS, "long", 2**62, 2**62),
        ("long", MILLIS, 1500, 1500),
        (MILLIS, "double", 1500, 1500.0),
        (["null", MILLIS], ["null", MICROS], 1500, 1_500_000),
        (MILLIS, ["null", MICROS], 1500, 1_500_000),
        (decimal(2), decimal(2), b"\x7b", b"\x7b"),
        (decimal(2), "bytes", b"\x7b", b"\x7b"),
    ],
)
def test_logical_types_are_converted(writer: Any, reader: Any, sent: Any, got: Any) -> None:
    """Compared as plain values on both sides."""

    def plain(kind: Any) -> Any:
        if isinstance(kind, list):
            return [plain(each) for each in kind]
        return kind["type"] if isinstance(kind, dict) else kind

    make = Resolution(json.dumps(record({"a": writer})), json.dumps(record({"a": reader})))
    data = make(avro(record({"a": plain(writer)}), {"a": sent}))
    assert fastavro.schemaless_reader(BytesIO(data), record({"a": plain(reader)}), None) == {"a": got}


def test_records_in_a_union_are_matched_by_name() -> None:
    """The record's name decides, at any position in the union."""
    made, gone = record({"id": "int"}, "Made"), record({"id": "int"}, "Gone")
    writer, reader = record({"what": [made, gone]}), record({"what": ["null", gone, made], "by": "string"}, by="")
    found = [resolved(writer, reader, {"what": (f"shop.{name}", {"id": 7})})["what"] for name in ("Made", "Gone")]
    assert found == [{"member0": None, "member1": {"id": 7}}, {"member0": {"id": 7}, "member1": None}]


@pytest.mark.parametrize(
    ("writer", "reader", "value", "error", "why"),
    [
        (record({"a": "int"}), record({"a": "int", "b": "int"}), {"a": 7}, MISMATCH, "No default value for field b"),
        (record({"a": "string"}), record({"a": "int"}), {"a": "7"}, MISMATCH, "string is not int"),
        (record({"a": "int"}), record({"a": "int"}, "shop.Other"), {"a": 7}, MISMATCH, "shop.Order.* is not .*Other"),
        (record({"a": STATE}), record({"a": STATE | {"symbols": ["NEW"]}}), {"a": "LOST"}, MISMATCH, "LOST not found"),
        (
            record({"a": decimal(2)}),
            record({"a": decimal(3)}),
            {"a": b"\x7b"},
            ValueError,
            "differ in precision",
        ),
    ],
)
def test_unresolvable_value_is_an_error(writer: Any, reader: Any, value: Any, error: type[Exception], why: str) -> None:
    """The value itself is valid Avro of its writer."""
    make, data = Resolution(json.dumps(writer), json.dumps(reader)), avro(writer, value)
    with pytest.raises(error, match=why):
        make(data)


def test_field_missing_in_the_readers_schema_is_skipped() -> None:
    writer, reader = record({"a": "int", "b": "string"}), record({"a": "int"})
    make, whole = Resolution(json.dumps(writer), json.dumps(reader)), avro(writer, {"a": 7, "b": "xyz"})
    assert make(whole) == avro(reader, {"a": 7})
    with pytest.raises(EOFError):
        make(whole[:-1])


def test_invalid_writer_schema_has_no_resolution() -> None:
    assert resolution('{"type": "strong"}', '"string"') is None
    assert resolution('"string"', '"bytes"') is not None
