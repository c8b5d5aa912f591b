"""Fragments of Spark SQL for the steps, and the names of their internal columns."""

from __future__ import annotations

from collections.abc import Iterable

RECORD = "record"
"""The record as it was read: a struct."""
REASON = "__reason"
"""Why the record is bad, else null."""
EVENT_TIME = "__event_time"
TIMESTAMP = "__timestamp"
"""The newest record's timestamp, in an aggregate."""
HIDDEN = (RECORD, REASON, EVENT_TIME, TIMESTAMP)

Blame = tuple[str, str]
"""An expression that is true for a bad record, and an expression for the reason."""


def quoted(name: str) -> str:
    """A column's name, quoted."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def whole(expression: str) -> str:
    """A file's expression, to be part of another, though it may end in a comment, and that in a backslash."""
    return f"({expression}\n\n)"


def first(blames: Iterable[Blame]) -> str:
    """The reason of the first blame that applies, or null."""
    return "CASE " + " ".join(f"WHEN {when} THEN {what}" for when, what in blames) + " END"


def every(blames: Iterable[Blame]) -> str:
    """The reasons of all that apply, joined by semicolons, or null."""
    said = ", ".join(f"CASE WHEN {when} THEN {what} END" for when, what in blames)
    return f"nullif(concat_ws('; ', {said}), '')"
