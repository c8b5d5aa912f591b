"""A JSON Schema (json-schema.org) as Spark's DDL: the parts of it that define types.

`required`, `minimum` and the like are not checked: use rules of `validate` for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TYPES = {"integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN"}
_FORMATS = {"date-time": "TIMESTAMP", "date": "DATE"}


class SchemaError(Exception):
    """A schema without a counterpart in Spark; the message says where."""


def ddl(schema: Any) -> str:
    """The columns of an object, as `a` BIGINT, `b` STRUCT<…>."""
    if not isinstance(schema, Mapping) or _kind(schema, "the schema") != "object" or not schema.get("properties"):
        raise SchemaError("the schema is not an object with properties")
    return _columns(schema["properties"], " ", "")


def _columns(properties: Any, between: str, path: str) -> str:
    if not isinstance(properties, Mapping):
        raise SchemaError(f"{path or 'the schema'}: properties is not an object")
    return ", ".join(f"{_quoted(name)}{between}{_type(of, f'{path}{name}')}" for name, of in properties.items())


def _type(schema: Any, path: str) -> str:
    kind = _kind(schema, path)
    if kind == "object" and schema.get("properties"):
        return f"STRUCT<{_columns(schema['properties'], ': ', f'{path}.')}>"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"MAP<STRING, {_type(schema['additionalProperties'], f'{path}.*')}>"
    if kind == "array" and "items" in schema:
        return f"ARRAY<{_type(schema['items'], f'{path}[]')}>"
    if kind == "string":
        return _FORMATS.get(schema.get("format", ""), "STRING")
    if kind not in _TYPES:
        raise SchemaError(f"{path}: the type of the elements of this {kind} is missing")
    return _TYPES[kind]


def _kind(schema: Any, path: str) -> str:
    """The one type that is not null."""
    told = schema.get("type") if isinstance(schema, Mapping) else None
    kinds = [kind for kind in (told if isinstance(told, list) else [told]) if kind != "null"]
    if len(kinds) != 1 or kinds[0] not in ("object", "array", "string", *_TYPES):
        raise SchemaError(f"{path}: there must be one type")
    return str(kinds[0])


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
