"""Schemas as types: names and namespaces resolve, cycles are types, and whatever is no schema is one line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.exporter.console.avro_schema import (
    DEEPEST,
    LONGEST,
    MOST,
    PLAIN,
    Names,
    SchemaError,
    Type,
    parse,
)


def parsed(schema: Any, named: Names | None = None) -> Type:
    return parse(json.dumps(schema), named)


def record(name: str, *types: Any, **more: Any) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": each} for number, each in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields, **more}


def test_names_are_resolved_in_the_namespace_of_the_type_around_them() -> None:
    enum = {"type": "enum", "name": "Colour", "symbols": ["RED"]}
    found = parsed(record("Order", enum, "Colour", "shop.Colour", {"type": "Colour"}, namespace="shop"))
    types = [inner for _, inner in found.fields]
    assert found.name == "shop.Order"
    assert [one.name for one in types] == ["shop.Colour"] * 4 and len({id(one) for one in types}) == 1


def test_a_type_may_contain_itself() -> None:
    found = parsed(record("Node", ["null", "Node"]))
    assert found.fields[0][1].inner[1] is found


def test_a_schema_names_types_of_another() -> None:
    named = Names()
    parsed(record("Address", "string", namespace="shop"), named)
    assert parsed(record("Order", "shop.Address"), named).fields[0][1].name == "shop.Address"


@pytest.mark.parametrize(
    ("schema", "line"),
    [
        ({"type": "Order"}, "it has no type 'Order'"),
        (["null", 3], "a type in it has no valid 'type'"),
        ({"type": "record", "name": "R"}, "a type in it has no valid 'fields'"),
        (record("R", record("R")), "it defines 'R' twice"),
        ({"type": "fixed", "name": "F", "size": True}, "a type in it has no valid 'size'"),
        ({"type": "fixed", "name": "F", "size": -1}, "the fixed 'F' has a negative size"),
        ({"type": "array"}, "a type in it has no valid 'items'"),
        ({"type": "enum", "name": "E", "symbols": "A"}, "a type in it has no valid 'symbols'"),
        ("x" * 5000, f"it has no type '{'x' * 100}'"),
    ],
)
def test_what_is_no_schema_is_one_line(schema: Any, line: str) -> None:
    with pytest.raises(SchemaError) as error:
        parsed(schema)
    assert str(error.value) == line


@pytest.mark.parametrize("text", ["[" * 100_000, '{"type":' * 100_000, "9" * 5000, "", "{"])
def test_a_text_that_is_no_json_is_one_line(text: str) -> None:
    with pytest.raises(SchemaError):
        parse(text)


@pytest.mark.parametrize("within", ['{"type": %s}', "[%s]", '{"type": "array", "items": %s}'])
def test_a_deep_schema_is_refused(within: str) -> None:
    text = '"int"'
    for _ in range(DEEPEST):
        text = within % text
    parse(text)
    with pytest.raises(SchemaError, match="it nests more than 64 types"):
        parse(within % text)


def test_a_schema_of_many_types_is_refused() -> None:
    """Three characters each."""
    parse(f"[{','.join(['[]'] * (MOST - 1))}]")
    with pytest.raises(SchemaError, match="it has more than 10000 types"):
        parse(f"[{','.join(['[]'] * MOST)}]")


def test_types_within_a_long_namespace_are_refused() -> None:
    """Each would hold a copy of it."""
    inner = [{"name": f"f{at}", "type": {"type": "fixed", "name": f"t{at}", "size": 1}} for at in range(3)]
    for length in (LONGEST - 3, LONGEST):
        schema = {"type": "record", "name": "r", "namespace": "n" * length, "fields": inner}
        if length < LONGEST:
            assert parse(json.dumps(schema)).kind == "record"
        else:
            with pytest.raises(SchemaError, match="it has a name of more than 1000 characters"):
                parse(json.dumps(schema))


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from([*PLAIN, "record", "enum", "map", "array", "R"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "name", "fields", "items", "values", "symbols", "size"]), inner)
    ),
)


@given(ANY)
def test_any_json_is_a_type_or_one_line(schema: Any) -> None:
    try:
        assert isinstance(parsed(schema), Type)
    except SchemaError as error:
        assert "\n" not in str(error)
