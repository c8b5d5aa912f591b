"""Records written to a compacted topic, and what a read_committed reader may therefore see.

Offsets order the records. If a client got no answer for a record or a transaction, both outcomes are allowed until a
reader has seen one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Fate(Enum):
    """The outcome of a transaction, or of a record outside of one."""

    OPEN = "open"
    UNKNOWN = "unknown"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(eq=False)
class Unit:
    """Records that readers see all or none of."""

    fate: Fate = Fate.OPEN


@dataclass(eq=False)
class Write:
    """A record that was sent; `offset` is None until it is known. A `value` of None deletes the key."""

    partition: int
    key: bytes
    value: bytes | None
    unit: Unit
    offset: int | None = None

    def __str__(self) -> str:
        return f"{self.key!r} = {_short(self.value)} at {self.offset}, {self.unit.fate.value}"


class Found(NamedTuple):
    """A record that was read."""

    offset: int
    key: bytes
    value: bytes | None

    def __str__(self) -> str:
        return f"{self.key!r} = {_short(self.value)} at {self.offset}"


def _short(value: bytes | None) -> str:
    return "nothing" if value is None else repr(value.partition(b":")[0])


class Reading(NamedTuple):
    """The records of one partition that a reader has seen, from its start up to `end`."""

    partition: int
    end: int
    records: list[Found]


@dataclass
class Ledger:
    """The writes of all threads."""

    writes: list[Write] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def sent(self, write: Write) -> None:
        """Add a write that is about to be sent."""
        with self._lock:
            self.writes.append(write)

    def differences(self, reading: Reading, settled: bool) -> list[str]:
        """Records that a reader must not see, or must see and does not. `settled`: no writer was active meanwhile."""
        with self._lock:
            mine = [one for one in self.writes if one.partition == reading.partition]
        seen = _Seen(mine, reading)
        return [f"partition {reading.partition}: {fault}" for fault in seen.faults(settled)]

    def count(self, fate: Fate) -> int:
        """Records of units with that fate."""
        return sum(one.unit.fate is fate for one in self.writes)


class _Seen:
    """One reading compared with the writes of its partition."""

    def __init__(self, writes: list[Write], reading: Reading) -> None:
        self.writes = writes
        self.reading = reading
        self.by_value = {one.value: one for one in writes if one.value is not None}
        self.by_offset = {one.offset: one for one in writes if one.offset is not None}
        self.lost = {one.key for one in writes if one.value is None and one.offset is None}  # with unknown offsets

    def faults(self, settled: bool) -> Iterator[str]:
        offsets = [one.offset for one in self.reading.records]
        if offsets != sorted(set(offsets)):
            yield "offsets do not rise"
        for one in self.reading.records:
            yield from self._record(one)
        by_key: dict[bytes, Found] = {one.key: one for one in self.reading.records}
        for key in sorted({one.key for one in self.writes}):
            yield from self._key(key, by_key.get(key))
        if settled:
            yield from self._end()

    def _record(self, found: Found) -> Iterator[str]:
        write = self.by_value.get(found.value) if found.value is not None else self.by_offset.get(found.offset)
        if write is None:
            if found.value is not None or found.key not in self.lost:
                yield f"{found} was never written"
            return
        if write.key != found.key or write.value != found.value or write.offset not in (None, found.offset):
            yield f"{found} was written as: {write}"
        if write.unit.fate is Fate.ABORTED:
            yield f"{found} was aborted"
        elif write.unit.fate is Fate.UNKNOWN:
            write.unit.fate = Fate.COMMITTED
        write.offset = found.offset

    def _key(self, key: bytes, found: Found | None) -> Iterator[str]:
        """The last committed write of the key is there; a tombstone may be gone, with all writes before it."""
        if found is not None and self.by_offset.get(found.offset) is None and found.value is None:
            return  # a tombstone whose offset its writer does not know
        for write in self._candidates(key):
            if found is not None and found.offset == write.offset:
                return
            if write.unit.fate is Fate.COMMITTED:
                if found is not None:
                    yield f"{found} is the last of its key; it should be: {write}"
                elif write.value is not None:
                    yield f"{write} is not there"
                return

    def _candidates(self, key: bytes) -> Iterable[Write]:
        """Writes of the key that may be the last one seen, latest first."""
        end = self.reading.end
        located = [one for one in self.writes if one.key == key and one.offset is not None and one.offset < end]
        found = [one for one in located if one.unit.fate in (Fate.COMMITTED, Fate.UNKNOWN)]
        return sorted(found, key=lambda one: -(one.offset or 0))

    def _end(self) -> Iterator[str]:
        """A reader reaches at least the first open transaction."""
        undecided = (Fate.OPEN, Fate.UNKNOWN)
        first = min((one.offset or 0 for one in self.writes if one.unit.fate in undecided), default=1 << 62)
        last = max((offset for offset, one in self.by_offset.items() if offset < first), default=-1)
        if self.reading.end <= last:
            yield f"readers stop at {self.reading.end}, but {last} is committed"
