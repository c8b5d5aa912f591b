"""Field-by-field comparison of two responses."""

from __future__ import annotations

from typing import Any, NamedTuple

WHAT = ("name", "topic", "topic_id", "partition_index", "index", "partition", "group_id", "key", "user")


class Field(NamedTuple):
    """A differing field; `path` has its name and its topic, partition or group."""

    path: str
    ours: Any
    theirs: Any

    def __str__(self) -> str:
        return f"{self.path}: {str(self.ours)[:300]}; Kafka: {str(self.theirs)[:300]}"


def fields(ours: Any, theirs: Any, path: str = "") -> list[Field]:
    """All differing fields; empty for equal responses."""
    if ours == theirs:
        return []
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [field for name in ours for field in fields(ours[name], theirs[name], f"{path}{_of(ours)}/{name}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [field for pair in zip(ours, theirs, strict=True) for field in fields(*pair, path)]
    return [Field(path, ours, theirs)]


def _of(row: dict[str, Any]) -> str:
    named = [str(row[name]) for name in WHAT if row.get(name) not in (None, "")]
    return f"[{','.join(named)}]" if named else ""


def errors_in(answer: Any) -> set[int]:
    """All error codes of a response."""
    if isinstance(answer, list):
        return set().union(*map(errors_in, answer))
    if not isinstance(answer, dict):
        return set()
    found = {value for name, value in answer.items() if name == "error_code" and isinstance(value, int)}
    return found.union(*map(errors_in, answer.values()))
