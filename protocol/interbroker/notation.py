"""Messages as text, one field a line, and the library's schema of them.

    name type [versions] [tag=N] [=default]

Types are Kafka's; `?` behind one: may be null; `[]` before one: an array. A struct is named with a capital, and its
fields stand indented beneath the first mention of it; further mentions mean the same. Versions are `3`, `3-5` or `3+`,
and all of the struct's when not given. Names are Python's, as the library would make them of Kafka's.
"""

from __future__ import annotations

import re
from typing import Any

Row = dict[str, Any]

_VERSIONS = re.compile(r"\d+(\+|-\d+)?")


def fields(text: str) -> list[Row]:
    """The `fields` of a schema, as the library's JSON files have them."""
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
