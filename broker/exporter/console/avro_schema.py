"""Avro schemas as types by which `avro_text` reads values. Pure.

Only what the encoding needs: no aliases, defaults or logical types. A type may contain itself by its name.
https://avro.apache.org/docs/1.12.0/specification/#schema-declaration. Bounded by the length of the text, which the
caller bounds, by DEEPEST, and by MOST, because a type of three characters takes hundreds of bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

PLAIN = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
DEEPEST = 64  # types within types, as they are written
MOST = 10_000  # types of a schema and those that it names
LONGEST = 1000
_SHOWN = 100  # characters of a name in an error


class SchemaError(ValueError):
    """Not an Avro schema; one line."""


@dataclass(eq=False, slots=True)
class Type:
    """A type. `name` is what Avro's JSON encoding calls it in a union: the full name, or the kind.

    `fields` are those of a record, `inner` are the branches of a union, or the type of items or values.
    """

    kind: str
    name: str
    fields: list[tuple[str, Type]] = field(default_factory=list, repr=False)
    inner: list[Type] = field(default_factory=list, repr=False)
    symbols: list[str] = field(default_factory=list)
    size: int = 0


class Names(dict[str, Type]):
    """Types by their full names. `made` counts all types, also those without a name."""

    made = 0


_PLAIN = {kind: Type(kind, kind) for kind in PLAIN}


def parse(text: str, named: Names | None = None) -> Type:
    """The type of a schema; `named` are those that it may name, and gets those that it defines. SchemaError."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        raise SchemaError("it is not JSON") from None
    return _Parser(Names() if named is None else named).type_of(schema, "", 0)


class _Parser:
    def __init__(self, named: Names) -> None:
        self._named = named

    def type_of(self, schema: Any, space: str, depth: int) -> Type:
        """`space`: the namespace of names without one."""
        if depth > DEEPEST:
            raise SchemaError(f"it nests more than {DEEPEST} types")
        if isinstance(schema, str):
            return self._of_name(schema, space)
        if isinstance(schema, list):
            return self._made("union", inner=[self.type_of(each, space, depth + 1) for each in schema])
        kind = _get(schema, "type", str | list | dict)
        if kind in ("record", "error"):
            return self._record(schema, space, depth)
        if kind in ("enum", "fixed"):
            return self._leaf(kind, schema, space)
        if kind in ("array", "map"):
            inner = _get(schema, "items" if kind == "array" else "values", str | list | dict)
            return self._made(kind, inner=[self.type_of(inner, space, depth + 1)])
        return self.type_of(kind, space, depth + 1)

    def _of_name(self, name: str, space: str) -> Type:
        full = name if "." in name or not space else f"{space}.{name}"
        found = _PLAIN.get(name) or self._named.get(full) or self._named.get(name)
        if found is None:
            raise SchemaError(f"it has no type {name[:_SHOWN]!r}")
        return found

    def _record(self, schema: Any, space: str, depth: int) -> Type:
        made = self._defined("record", schema, space)
        within = made.name.rpartition(".")[0]
        for each in _get(schema, "fields", list):
            name, inner = _get(each, "name", str), _get(each, "type", str | list | dict)
            made.fields.append((name, self.type_of(inner, within, depth + 1)))
        return made

    def _leaf(self, kind: str, schema: Any, space: str) -> Type:
        made = self._defined(kind, schema, space)
        if kind == "fixed":
            made.size = _get(schema, "size", int)
        else:
            made.symbols = [str(each) for each in _get(schema, "symbols", list)]
        if made.size < 0:
            raise SchemaError(f"the fixed {made.name[:_SHOWN]!r} has a negative size")
        return made

    def _defined(self, kind: str, schema: Any, space: str) -> Type:
        name = _get(schema, "name", str)
        if "." not in name:
            own = schema.get("namespace", space)
            name = f"{own}.{name}" if own else name
        if len(name) > LONGEST:  # types within it have its namespace, each a copy
            raise SchemaError(f"it has a name of more than {LONGEST} characters")
        if name in self._named:
            raise SchemaError(f"it defines {name[:_SHOWN]!r} twice")
        self._named[name] = self._made(kind, name)
        return self._named[name]

    def _made(self, kind: str, name: str = "", inner: Sequence[Type] = ()) -> Type:
        self._named.made += 1
        if self._named.made > MOST:
            raise SchemaError(f"it has more than {MOST} types")
        return Type(kind, name or kind, inner=list(inner))


def _get(schema: Any, key: str, kind: Any) -> Any:
    """SchemaError where it is missing or of another kind."""
    found = schema.get(key) if isinstance(schema, dict) else None
    if not isinstance(found, kind) or isinstance(found, bool):
        raise SchemaError(f"a type in it has no valid {key!r}")
    return found
