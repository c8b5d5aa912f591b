"""Words of Spark SQL that the steps are made of, and the names of the columns that they keep for themselves."""

from __future__ import annotations

from collections.abc import Iterable

RECORD = "record"
"""The record as it was read: a struct."""
REASON = "__reason"
"""Why the record is a bad one, else null."""
EVENT_TIME = "__event_time"
TIMESTAMP = "__timestamp"
"""Of an aggregate: the newest record's."""
HIDDEN = (RECORD, REASON, EVENT_TIME, TIMESTAMP)

Blame = tuple[str, str]
"""An expression that is true of a bad record, and an expression for what is the matter."""


def quoted(name: str) -> str:
    """A column's name."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A string."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def whole(expression: str) -> str:
    """One of a file's, to be part of another, though it may end in a comment, and that in a backslash."""
    return f"({expression}\n\n)"


def first(blames: Iterable[Blame]) -> str:
    """What is the matter by the first blame that applies, or null."""
    return "CASE " + " ".join(f"WHEN {when} THEN {what}" for when, what in blames) + " END"


def every(blames: Iterable[Blame]) -> str:
    """What is the matter by all that apply, joined by semicolons, or null."""
    said = ", ".join(f"CASE WHEN {when} THEN {what} END" for when, what in blames)
    return f"nullif(concat_ws('; ', {said}), '')"
