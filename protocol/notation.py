"""Messages as text, one field per line, converted to the library's schema.

    name type [versions] [tag=N] [=default]

Types are Kafka's; a `?` suffix: nullable; a `[]` prefix: an array. A struct's name begins with a capital, and its
fields are indented below its first use; later uses mean the same struct. Versions are `3`, `3-5` or `3+`, and default
to all of the struct's. Names are Python's, as the library derives them from Kafka's.
"""

from __future__ import annotations

import re
from typing import Any

Row = dict[str, Any]

_VERSIONS = re.compile(r"\d+(\+|-\d+)?")


def fields(text: str) -> list[Row]:
    """The `fields` of a schema, as in the library's JSON files."""
    structs: dict[str, list[Row]] = {}
    top: list[Row] = []
    parents = [(-1, top)]
    for line in filter(str.strip, text.splitlines()):
        indent = len(line) - len(line.lstrip())
        while indent <= parents[-1][0]:
            parents.pop()
        row = _row(*line.split())
        parents[-1][1].append(row)
        struct = row["type"].removeprefix("[]")
        if struct[0].isupper():
            row["fields"] = structs.setdefault(struct, [])
            parents.append((indent, row["fields"]))
    return top


def _row(name: str, kind: str, *options: str) -> Row:
    row: Row = {"name": name, "type": kind.removesuffix("?"), "versions": "0+"}
    if kind.endswith("?"):
        row["nullableVersions"] = "0+"
    for option in options:
        if _VERSIONS.fullmatch(option):
            row["versions"] = option
        elif option.startswith("tag="):
            row["tag"] = int(option[4:])
        elif option.startswith("="):
            row["default"] = option[1:]
        else:
            raise ValueError(f"{name} {kind}: what is {option}?")
    if "tag" in row:
        row["taggedVersions"] = row["versions"]
    return row
