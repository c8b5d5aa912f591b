"""Answers of two brokers made comparable: what each broker makes up itself is named by when it was first seen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from odradek.protocol import interbroker

from ..clients.raw.batches import parse

MADE_UP = {
    "member_id": "member", "leader": "member", "producer_id": "producer", "v3_and_below_producer_id": "producer",
    "topic_id": "topic", "session_id": "session", "cluster_id": "cluster",
}  # fmt: skip
"""Fields whose values are a broker's own, and what kind of thing they name."""
NOTHING = ("", None, -1, 0, UUID(int=0))
LEFT_OUT = {
    "error_message", "throttle_time_ms", "host", "port", "log_dir", "client_host", "total_bytes", "usable_bytes",
    "node_endpoints", "size",
}  # fmt: skip
"""Fields that say where a broker is, how it words things, or how full its disk is."""
PARTS = ("partitions", "partition_responses")
SIGNS = {"log_append_time_ms", "start_timestamp", "last_timestamp", "transaction_start_time_ms"}
"""Times of the broker's clock: only whether there is one."""


class Names:
    """What one broker made up, by its kind, in the order in which it was first seen; `topics`: ids known before."""

    def __init__(self, topics: Iterable[bytes] = ()) -> None:
        self._seen: dict[str, list[Any]] = {"topic": [UUID(bytes=topic) for topic in topics]}

    def name(self, kind: str, value: Any) -> Any:
        """The value as the other broker would have it named."""
        if value in NOTHING:
            return value
        seen = self._seen.setdefault(kind, [])
        if value not in seen:
            seen.append(value)
        return f"{kind}-{seen.index(value)}"


class _NoNames(Names):
    def name(self, kind: str, value: Any) -> Any:
        return value if value in NOTHING else kind


def plain(answer: Any, names: Names) -> Any:
    """The answer as dicts and lists, the lists sorted where order says nothing."""
    if isinstance(answer, list):
        if not isinstance(names, _NoNames):  # so that both give names in the same order
            answer = sorted(answer, key=lambda each: repr(plain(each, _NoNames())))
        rows = [plain(each, names) for each in answer]
        return sorted(_merged(rows), key=repr) if rows and isinstance(rows[0], dict) else rows
    if not hasattr(type(answer), "__slots__") or isinstance(answer, UUID):
        return answer
    fields = [name for name in type(answer).__slots__ if not name.startswith("_") and name not in LEFT_OUT]
    return {name: _field(name, getattr(answer, name, None), names) for name in fields}


def _merged(rows: list[Any]) -> list[Any]:
    """Topics that are named in several places as one, and rows that are the same once."""
    found: dict[Any, Any] = {}
    for row in rows:
        parts = next((row[name] for name in PARTS if isinstance(row.get(name), list)), None)
        key = repr({name: value for name, value in row.items() if name not in PARTS or parts is None})
        if key not in found:
            found[key] = row
        elif parts is not None:
            known = next(found[key][name] for name in PARTS if isinstance(row.get(name), list))
            known.extend(part for part in parts if part not in known)
            known.sort(key=repr)
    return list(found.values())


def _field(name: str, value: Any, names: Names) -> Any:
    if name == "records" and value is not None:
        return [tuple(record) for record in parse(value)]
    if name in MADE_UP and not isinstance(value, list):
        return names.name(MADE_UP[name], value)
    if name in SIGNS:
        return value if value in NOTHING else "time"
    return plain([] if name == "aborted_transactions" and value is None else value, names)


def request_class(api: str) -> Any:
    """kafka-python's class of a request."""
    return interbroker.message_class(api + "Request")
