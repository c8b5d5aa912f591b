"""The records of a handler between `emit()` and the acknowledgement: a state machine without thread, socket or clock.

A record is offered, and accepted or dropped. Accepted records wait in a queue in the order of their offers. `take`
moves the first of them into a part, the content of one batch: when linger.ms has passed since the oldest, or when they
fill a batch, or when a flush asks for them. The producer divides a part by partitions; each of these parts has one
outcome after each attempt: acknowledged, failed (it is sent again, unchanged), too large (its halves are sent), refused
(dropped), or its partition is gone (all parts are joined, and divided by the partitions that there are now). Only the
first part is ever sent, so the records of a partition keep their order.

Owner: a Sender, under its lock. Times are monotonic seconds, which the caller gives.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

# Memory of a waiting record besides its bytes: the entry, its objects, and its place in the queue.
OVERHEAD_BYTES = 256

QUEUE_FULL = "the queue was full (queue.buffering.max.messages, buffer.memory)"
EXPIRED = "not acknowledged within delivery.timeout.ms"
TOO_LARGE = "larger than the topic's max.message.bytes"
NOT_FORMATTED = "formatting raised an error"
CLOSED = "the handler was closed"


class Limits(NamedTuple):
    """Bounds of a backlog; times in seconds."""

    records: int  # waiting or under way
    memory: int  # bytes of these, with OVERHEAD_BYTES for each
    batch: int  # bytes of a part; a larger record is a part of its own
    linger: float
    delivery: float  # from the offer on
    backoff: float  # after a first failure; doubles with each further one
    backoff_max: float


class Entry(NamedTuple):
    """A formatted record. `report` is 0, or, of a record about dropped records, the number of drops until it."""

    value: bytes
    key: bytes | None
    headers: tuple[tuple[bytes, bytes], ...]
    timestamp: int  # ms since 1970
    since: float  # the time of the offer
    report: int = 0

    @property
    def size(self) -> int:
        """Bytes of its content."""
        return len(self.value) + len(self.key or b"") + sum(len(name) + len(value) for name, value in self.headers)


@dataclass(eq=False)
class Part:
    """Records of one batch; `partition` is None until the producer has divided it by partitions."""

    entries: list[Entry]
    partition: int | None = None


class Backlog:
    """The queue, the parts under way, and the counters."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._queue: deque[Entry] = deque()
        self._parts: deque[Part] = deque()
        self._divided: list[Entry] = []  # the records of these parts and of those before them, in their order
        self._queued_bytes = 0
        self.memory = 0  # bytes that count against buffer.memory
        self._due_until = 0  # records accepted before this number are due at once
        self._not_before = 0.0
        self._backoff = limits.backoff
        self._closed = False
        # These do not count reports.
        self.accepted = 0
        self.settled = 0  # of the accepted: acknowledged or dropped
        self.sent = 0  # acknowledged
        self.drops = 0
        self.dropped: Counter[str] = Counter()  # the same by reason
        self.reported = 0  # drops that an acknowledged report has counted
        self.report_waits = False

    @property
    def waiting(self) -> int:
        """Records that are in the queue or under way."""
        return self.accepted - self.settled

    @property
    def idle(self) -> bool:
        """Whether no record and no report waits."""
        return not self._queue and not self._parts

    # -- offers

    def offer(self, entry: Entry) -> bool:
        """Accept a record, or drop and count it. True when a part is due earlier than `seconds` said before."""
        if self._closed:
            self.drop(CLOSED)
            return False
        memory = self.memory + entry.size + OVERHEAD_BYTES
        if self.waiting >= self._limits.records or memory > self._limits.memory:
            self.drop(QUEUE_FULL)
            return False
        full = self._queued_bytes >= self._limits.batch
        self._queue.append(entry)
        self._accept(entry)
        return len(self._queue) == 1 or (not full and self._queued_bytes >= self._limits.batch)

    def offer_report(self, entry: Entry) -> None:
        """Put a report before all that waits, due at once. The bounds do not apply to it: there is at most one."""
        assert entry.report and not self.report_waits
        if not self._closed:
            self._queue.appendleft(entry)
            self._accept(entry)
            self.report_waits = True

    def _accept(self, entry: Entry) -> None:
        self.accepted += not entry.report
        self._queued_bytes += entry.size
        self.memory += entry.size + OVERHEAD_BYTES

    def drop(self, reason: str, count: int = 1) -> None:
        """Count dropped records, such as one that could not be formatted and so was never offered."""
        if count:
            self.drops += count
            self.dropped[reason] += count

    # -- what is due

    def hurry(self) -> int:
        """Make all that waits due at once; returns the number that `settled` reaches when it has been settled."""
        self._due_until = self.accepted
        return self.accepted

    def take(self, now: float) -> Part | None:
        """The part to send now, which stays the first one until its outcome; None when none is due."""
        if now < self._not_before:
            return None
        if not self._parts:
            self._drop_expired(now)
            if self._queue and self._due_at() <= now:
                self._parts.append(Part(self._next_batch()))
        return self._parts[0] if self._parts else None

    def seconds(self, now: float) -> float | None:
        """How long `take` returns None if nothing else happens; None: for ever."""
        if not self._parts and not self._queue:
            return None
        due = self._not_before if self._parts else max(self._due_at(), self._not_before)
        return max(0.0, due - now)

    def _due_at(self) -> float:
        """When the first batch of the queue is due."""
        if self._queued_bytes >= self._limits.batch or self.settled < self._due_until or self.report_waits:
            return 0.0
        return self._queue[0].since + self._limits.linger

    def _drop_expired(self, now: float) -> None:
        while self._queue and self._queue[0].since + self._limits.delivery <= now:
            self._settle([self._unqueue()], EXPIRED)

    def _next_batch(self) -> list[Entry]:
        entries = [self._unqueue()]
        size = entries[0].size
        while self._queue and size + self._queue[0].size <= self._limits.batch:
            size += self._queue[0].size
            entries.append(self._unqueue())
        return entries

    def _unqueue(self) -> Entry:
        entry = self._queue.popleft()
        self._queued_bytes -= entry.size
        return entry

    # -- outcomes of the first part

    def divide(self, groups: Iterable[tuple[int, list[Entry]]]) -> None:
        """Replace the first part, which is the only one, by parts of one partition each with the same records."""
        first = self._parts.popleft()
        assert first.partition is None and not self._parts
        self._divided = first.entries
        self._parts.extend(Part(entries, partition) for partition, entries in groups)

    def join(self) -> None:
        """The partition of the first part is gone: replace all parts by one, to be divided again. Its records have the
        order in which they came, so those that meet in one partition now keep it."""
        left = {id(entry) for part in self._parts for entry in part.entries}
        self._parts = deque([Part([entry for entry in self._divided if id(entry) in left])])

    def acknowledge(self) -> None:
        """The broker has the first part."""
        self._backoff = self._limits.backoff
        self._settle(self._parts.popleft().entries, None)

    def fail(self, now: float) -> bool:
        """The first part may not have arrived: send it again later. False: its time is over, and it is dropped."""
        if self._parts[0].entries[0].since + self._limits.delivery <= now:
            self._settle(self._parts.popleft().entries, EXPIRED)
            return False
        self._not_before = now + self._backoff
        self._backoff = min(2 * self._backoff, self._limits.backoff_max)
        return True

    def halve(self) -> None:
        """The first part is too large for a batch: send its halves. A single record is dropped."""
        part = self._parts[0]
        middle = len(part.entries) // 2
        if middle == 0:
            return self.refuse(TOO_LARGE)
        self._parts.popleft()
        halves = part.entries[:middle], part.entries[middle:]
        self._parts.extendleft(Part(half, part.partition) for half in reversed(halves))

    def refuse(self, reason: str, indexes: Collection[int] = ()) -> None:
        """Drop the records of the first part with these indexes, or all; the others are sent again."""
        part = self._parts[0]
        bad = {index for index in indexes if 0 <= index < len(part.entries)} or set(range(len(part.entries)))
        left = [entry for index, entry in enumerate(part.entries) if index not in bad]
        self._settle([part.entries[index] for index in sorted(bad)], reason)
        part.entries[:] = left
        if not left:
            self._parts.popleft()

    def close(self) -> None:
        """Drop all that waits, and every later offer."""
        self._closed = True
        while self._parts:
            self._settle(self._parts.popleft().entries, CLOSED)
        self._settle([self._unqueue() for _ in range(len(self._queue))], CLOSED)

    def _settle(self, entries: Collection[Entry], reason: str | None) -> None:
        """Count records that leave: acknowledged when there is no reason for a drop."""
        self.memory -= sum(entry.size + OVERHEAD_BYTES for entry in entries)
        reports = [entry.report for entry in entries if entry.report]
        count = len(entries) - len(reports)
        self.settled += count
        self.report_waits = self.report_waits and not reports
        if reason is not None:
            self.drop(reason, count)
            return
        self.sent += count
        self.reported = max([self.reported, *reports])
