"""Makes responses of two brokers comparable: generated values are replaced by names in order of first occurrence."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Iterable
from itertools import groupby
from typing import Any
from uuid import UUID

from kafka.errors import CorruptRecordError

from odradek.protocol import interbroker

from ..clients.raw.batches import NOW, parse
from .values import TIMES

MADE_UP = {
    "member_id": "member", "leader": "member", "producer_id": "producer", "v3_and_below_producer_id": "producer",
    "topic_id": "topic", "session_id": "session", "cluster_id": "cluster",
}  # fmt: skip
"""Fields with values that each broker generates, and the kind of object that they identify."""
NOTHING = ("", None, -1, 0, UUID(int=0))
LEFT_OUT = {
    "error_message", "throttle_time_ms", "host", "port", "log_dir", "client_host", "total_bytes", "usable_bytes",
    "node_endpoints", "size", "documentation", "partition_size", "api_keys", "supported_features", "finalized_features",
    "finalized_features_epoch", "zk_migration_ready", "batch_index_error_message",
}  # fmt: skip
"""Fields with a broker's address, error text, disk usage, compressed sizes, or supported features.
"""
OWN_CONFIG = "odradek."
ROWS = ("name", "topic", "group_id", "transactional_id", "topic_name", "user")
SUFFIX = re.compile(r"[a-z]+-\d+[a-z]?$|^2001:db8:.*")
PARTS = ("partitions", "partition_responses", "results_by_partition", "partition_result")
SIGNS = {"log_append_time_ms", "start_timestamp", "last_timestamp", "transaction_start_time_ms"}
"""Timestamps of the broker's clock: only their presence is compared."""


AHEAD_MS = 40  # the largest difference of timestamps within one batch
SENT_MS = {at + step for at in TIMES for step in range(AHEAD_MS + 1)}
"""The timestamps of sent records. Others between the start of this process and now are the broker's."""

HEAD = struct.Struct(">qiibIhiqqqhii")
MARKERS = (bytes(4), b"\0\0\0\1")  # keys of control records: version 0, abort or commit


def addresses(suffix: str) -> list[str]:
    """The IP addresses of the sequence with this suffix."""
    number = int(suffix.rpartition("-")[2] or "0", 16)  # some end with a letter
    return [f"2001:db8::{at}:{number % 0x10000:x}" for at in (1, 2)]


class Names:
    """Values that one broker has generated, by kind, in order of first occurrence; `topics`: known ids."""

    def __init__(self, topics: Iterable[bytes] = (), suffix: str = "") -> None:
        """`suffix`: the ending of this sequence's topics, groups and ids; other rows are omitted."""
        self._seen: dict[str, list[Any]] = {"topic": [UUID(bytes=topic) for topic in topics]}
        self._own = {suffix, *addresses(suffix)}
        self._alike: set[Any] = set()

    def others(self, row: Any) -> bool:
        """Whether this row belongs to another sequence."""
        named = [getattr(row, name, None) for name in ROWS]
        named += [one.entity_name for one in getattr(row, "entity", ())]  # of a quota
        if str(named[0]).startswith(OWN_CONFIG):
            return True
        found = [match[0] for name in named if isinstance(name, str) and (match := SUFFIX.search(name))]
        return any(suffix not in self._own for suffix in found)

    def name(self, kind: str, value: Any) -> Any:
        """The name of a generated value, equal for both brokers."""
        if value in NOTHING:
            return value
        seen = self._seen.setdefault(kind, [])
        if value not in seen and value in self._alike:
            return f"{kind}-?"
        if value not in seen:
            seen.append(value)
        return f"{kind}-{seen.index(value)}"

    def alike(self, rows: list[Any]) -> None:
        """Indistinguishable rows get no names by their order, which is the broker's own."""
        ids = [getattr(row, "member_id", None) for row in rows]
        self._alike = set(ids) if len(ids) > 1 else set()


class _NoNames(Names):
    def others(self, row: Any) -> bool:
        return False

    def name(self, kind: str, value: Any) -> Any:
        return value if value in NOTHING else kind


def plain(answer: Any, names: Names) -> Any:
    """The response as dicts and lists; lists without a meaningful order are sorted."""
    if isinstance(answer, list):
        answer = [each for each in answer if not names.others(each)]
        if not isinstance(names, _NoNames):  # so that both brokers' values are named in the same order
            rows = []
            for _, same in groupby(sorted(answer, key=_unnamed), _unnamed):
                some = list(same)
                names.alike(some)
                rows += [plain(each, names) for each in some]
                names.alike([])
        else:
            rows = [plain(each, names) for each in answer]
        return sorted(_merged(rows), key=_place) if rows and isinstance(rows[0], dict) else rows
    if not hasattr(type(answer), "__slots__") or isinstance(answer, UUID):
        return answer
    fields = [name for name in type(answer).__slots__ if not name.startswith("_") and name not in LEFT_OUT]
    return {name: _field(name, getattr(answer, name, None), names) for name in fields}


def _unnamed(row: Any) -> str:
    return repr(plain(row, _NoNames()))


def _place(row: dict[str, Any]) -> tuple[str, str]:
    """Sort by the subject of a row first, so that rows with different errors are adjacent."""
    about = {name: value for name, value in row.items() if isinstance(value, (str, int)) and name != "error_code"}
    return repr(about or row.get("entity")), repr(row)


def _merged(rows: list[Any]) -> list[Any]:
    """Merge topics that occur several times into one, and equal rows."""
    found: dict[Any, Any] = {}
    for row in rows:
        parts = next((row[name] for name in PARTS if isinstance(row.get(name), list)), None)
        key = repr({name: value for name, value in row.items() if name not in PARTS or parts is None})
        if key not in found:
            found[key] = row
        elif parts is not None:
            known = next(found[key][name] for name in PARTS if isinstance(row.get(name), list))
            known.extend(part for part in parts if part not in known)
            known.sort(key=_place)
    return list(found.values())


def _field(name: str, value: Any, names: Names) -> Any:
    if name == "records":
        value = value or b""
        return [_batches(bytes(value), names), _read(bytes(value))]
    if name in MADE_UP and not isinstance(value, list):
        return names.name(MADE_UP[name], value)
    if name == "timestamp" and NOW < value <= time.time() * 1000 + 1 and value not in SENT_MS:
        return "time"  # of a marker
    if name in SIGNS:
        return value if value in NOTHING else "time"
    return plain([] if name == "aborted_transactions" and value is None else value, names)


def _read(data: bytes) -> Any:
    """The records; unreadable bytes must be equal."""
    try:
        return [_timeless(tuple(record)) for record in parse(data)]
    except CorruptRecordError:
        return data


def _timeless(record: tuple[Any, ...]) -> tuple[Any, ...]:
    """A transaction marker has its broker's time of writing."""
    return (record[0], "time", *record[2:]) if record[2] in MARKERS else record


def _batches(data: bytes, names: Names) -> list[Any]:
    """The headers of whole batches of magic 2, without times, sizes and checksums."""
    found, at = [], 0
    while at + 61 <= len(data):
        base, size, epoch, magic, _, bits, last, _, _, producer, *rest = HEAD.unpack_from(data, at)
        if magic < 2 or at + 12 + size > len(data):
            break
        found.append((base, epoch, bits, last, names.name("producer", producer), *rest))
        at += 12 + size
    return found


def request_class(api: str) -> Any:
    """kafka-python's request class."""
    return interbroker.message_class(api + "Request")
