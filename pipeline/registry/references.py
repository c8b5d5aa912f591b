"""Inline references: a schema that names types of other subjects gets each definition at its first use."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from odradek.pipeline.errors import OptionError

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient


def inlined(client: SchemaRegistryClient, schema: Schema) -> str:
    """The text of a self-contained Avro schema. OptionError where it is not valid Avro."""
    try:
        found = _whole(client, schema) if schema.references else json.loads(schema.schema_str or "")
    except _no_schema() as error:
        raise OptionError(f"the registry has a schema that is not Avro: {error!r}") from None
    return json.dumps(found, separators=(",", ":"))


def _no_schema() -> tuple[type[Exception], ...]:
    from fastavro.schema import SchemaParseException, UnknownType

    return ValueError, KeyError, TypeError, SchemaParseException, UnknownType


def _whole(client: SchemaRegistryClient, schema: Schema) -> Any:
    named: dict[str, Any] = {}
    parsed = _parsed(client, schema, named, set())
    return _put_in(parsed, named, set())


def _parsed(client: SchemaRegistryClient, schema: Schema, named: dict[str, Any], seen: set[tuple[str, int]]) -> Any:
    """The schema with full names; `named` gets its types and those of its references."""
    import fastavro

    for each in schema.references or ():
        where = str(each.subject), int(each.version or 0)
        if where not in seen:
            seen.add(where)
            _parsed(client, client.get_version(*where).schema, named, seen)
    return fastavro.parse_schema(json.loads(schema.schema_str or ""), named)


def _put_in(part: Any, named: dict[str, Any], defined: set[str]) -> Any:
    if isinstance(part, list):
        return [_put_in(each, named, defined) for each in part]
    if isinstance(part, str):
        return _put_in(named[part], named, defined) if part in named and part not in defined else part
    if part["type"] in ("record", "error", "enum", "fixed"):
        defined.add(part["name"])
    inner = {key: _put_in(part[key], named, defined) for key in ("type", "items", "values") if key in part}
    if "fields" in part:
        inner["fields"] = [{**each, "type": _put_in(each["type"], named, defined)} for each in part["fields"]]
    return {key: value for key, value in part.items() if not key.startswith("__")} | inner
