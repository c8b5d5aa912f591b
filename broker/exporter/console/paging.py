"""Filters, sorts and pages rows on the server, so that a page of 10,000 topics is as quick as one of ten. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from odradek.broker.exporter.access.refused import Refused
from odradek.protocol.wire import INT64_MAX

ROWS = 100  # of a page
LONGEST = 1000  # characters of a parameter: a filter, a name


@dataclass(frozen=True)
class Query:
    """What a view shows: the rows whose name contains `containing`, sorted by a column; "" keeps their order."""

    containing: str = ""
    sort: str = ""
    is_descending: bool = False
    page: int = 1

    @classmethod
    def parse(cls, parameters: Mapping[str, str]) -> Query:
        """The parameters `filter`, `sort` (`-lag` descends) and `page`. Raises Refused."""
        sort = text(parameters, "sort")
        page = number(parameters, "page", 1, 1)
        return cls(text(parameters, "filter").lower(), sort.removeprefix("-"), sort.startswith("-"), page)


def text(parameters: Mapping[str, str], name: str, default: str = "") -> str:
    """A text. Raises Refused."""
    value = parameters.get(name, default)
    if len(value) > LONGEST:
        raise Refused(400, f"{name}: must have at most {LONGEST} characters")
    return value


def number(parameters: Mapping[str, str], name: str, default: int, least: int, most: int = INT64_MAX) -> int:
    """A whole number. Raises Refused."""
    value = parameters.get(name, "") or str(default)
    digits = value.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20 and least <= int(value) <= most):
        bounds = f"of at least {least}" if most == INT64_MAX else f"from {least} to {most}"
        raise Refused(400, f"{name}={value[:40]}: must be a number {bounds}")
    return int(value)


def chosen(query: Query, names: Sequence[str], columns: Mapping[str, Sequence[Any]]) -> list[int]:
    """The numbers of the rows, in order; `columns` are the values to sort by. Raises Refused."""
    wanted = query.containing
    found = [row for row, name in enumerate(names) if wanted in name.lower()] if wanted else list(range(len(names)))
    if query.sort:
        values = columns.get(query.sort)
        if values is None:
            raise Refused(400, f"sort={query.sort}: must be one of {', '.join(columns)}")
        found.sort(key=values.__getitem__, reverse=query.is_descending)
    return found


def page(query: Query, rows: Sequence[int]) -> tuple[dict[str, int], Sequence[int]]:
    """What to say of the pages, and the rows of this one; a page behind the last is the last."""
    pages = max(1, -(-len(rows) // ROWS))
    at = min(query.page, pages)
    return {"total": len(rows), "page": at, "pages": pages}, rows[(at - 1) * ROWS : at * ROWS]
