"""The log as the groups see it, and the writer that merges many small appends into few batches.

`Append`s for the same partition and producer in one round become one batch, so that a thousand consumers that commit
together cost one lock, one write and one CRC. A batch is limited to `BATCH_BYTES` and the topic's max.message.bytes, so
that a refused append does not fail others with it; an `Append` is never split.
An append completes only when the partition's high watermark has passed it.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from odradek.groups.events import Append, Now, Record
from odradek.protocol.batch import HEADER_SIZE, TRANSACTIONAL
from odradek.protocol.errors import Error
from odradek.protocol.records import batch_v2, codecs

log = logging.getLogger(__name__)

BATCH_BYTES = 256 * 1024
RECORD_OVERHEAD = 40  # a bound for the varints around key and value


class LogBusy(Exception):
    """Another process has the partition's lock: try again in a millisecond."""


class LogError(Exception):
    """The batch was not appended; `error` is the partition's error."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.name)
        self.error = error


class CoordinatorLog(Protocol):
    """The partitions of `__consumer_offsets` or `__transaction_state`."""

    def max_batch_bytes(self, partition: int) -> int:
        """The largest batch in bytes that the partition accepts (max.message.bytes)."""

    def append(self, partition: int, batch: bytes) -> int:
        """Append one batch and return the offset of its first record; LogBusy or LogError."""

    def passed(self, partition: int, end: int) -> bool:
        """Whether all in-sync replicas have the log up to `end`. LogError: never, or too few are in sync."""

    def read_all(self, partition: int) -> Iterator[bytes | None]:
        """Every batch from log start to log end, each in its own bytes; None: the next one is not available yet."""


class UnreplicatedBatch(NamedTuple):
    """A batch in the log that the high watermark has not passed."""

    end: int
    position: int
    appends: list[Append]
    deadline_ms: int


def build_batch(
    records: list[Record], wall_ms: int, codec: int = codecs.NONE, producer: tuple[int, int] | None = None
) -> bytes:
    """A coordinator's magic 2 batch: create time `wall_ms`, no sequence, producer id and epoch only with `producer`."""
    rows = [(offset, wall_ms, key, value, ()) for offset, (key, value) in enumerate(records)]
    if producer is None:
        return batch_v2.build(rows, codec=codec)
    return batch_v2.build(
        rows, codec=codec, attributes=TRANSACTIONAL, producer_id=producer[0], producer_epoch=producer[1]
    )


class LogWriter:
    """Queues appends by partition and writes them in `write`; outcomes go to each `Append.done`.

    `faulty(key, now)` gets each group (or transactional id) that may differ from its log after an exception: it is
    unknown whether its append is in the log, or its `done` failed.
    """

    def __init__(
        self, coordinator_log: CoordinatorLog, partition_of: Callable[[str], int], timeout_ms: int,
        codec: int = codecs.NONE, faulty: Callable[[str, Now], None] = lambda key, now: None,
    ) -> None:  # fmt: skip
        self._log = coordinator_log
        self._partition_of = partition_of
        self._timeout_ms = timeout_ms
        self._codec = codec
        self._faulty = faulty
        self._producers: Counter[int] = Counter()  # undecided appends of each producer id
        self._queued: dict[int, deque[tuple[int, Append]]] = {}
        self._written: dict[int, deque[UnreplicatedBatch]] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether appends are queued for a busy partition: call `write` again in a millisecond."""
        return bool(self._queued)

    def is_queued(self, partition: int) -> bool:
        """Whether appends for this partition are not in the log yet."""
        return partition in self._queued

    def has_appends_of(self, producer_id: int) -> bool:
        """Whether appends of this producer are undecided: queued, or awaiting the high watermark."""
        return producer_id in self._producers

    @property
    def awaited(self) -> list[int]:
        """The partitions with appends that await the high watermark: call `check` when it moves."""
        return list(self._written)

    def add(self, append: Append, now: Now) -> None:
        """Queue an append for the next `write`."""
        if append.producer is not None:
            self._producers[append.producer[0]] += 1
        try:
            partition = self._partition_of(append.group)
        except Exception:
            log.exception("%.100r: unexpected error: no partition to append to", append.group)
            self._fail_all([append], now)
            return
        self._queued.setdefault(partition, deque()).append((now.steady_ms + self._timeout_ms, append))

    def write(self, now: Now) -> None:
        """Append all queued records, partition by partition; busy partitions keep their queue."""
        for partition in list(self._queued):
            self._write_partition(partition, now)

    def _write_partition(self, partition: int, now: Now) -> None:
        queue = self._queued.pop(partition)
        try:
            most = min(BATCH_BYTES, self._log.max_batch_bytes(partition) - HEADER_SIZE)
        except Exception:
            log.exception("partition %d: unexpected error: reloading its groups", partition)
            self._fail_all([append for _, append in queue], now)
            return
        while queue:
            appends = _take(queue, most)
            try:
                self._append(partition, [append for _, append in appends], now)
            except LogBusy:
                queue.extendleft(reversed(appends))
                left = self._expire(queue, now)
                if left:
                    self._queued[partition] = left
                return
            except Exception:
                log.exception("partition %d: unexpected error in an append: reloading its groups", partition)
                self._fail_all([append for _, append in appends], now)
        self._check_partition(partition, now)

    def _fail_all(self, appends: list[Append], now: Now) -> None:
        """Fail appends that may or may not be in the log; `faulty` reloads their keys."""
        self._report(appends, Error.UNKNOWN_SERVER_ERROR, -1, now)
        for append in appends:
            self._faulty(append.group, now)

    def _append(self, partition: int, appends: list[Append], now: Now) -> None:
        records = [record for append in appends for record in append.records]
        try:
            batch = build_batch(records, now.wall_ms, self._codec, appends[0].producer)
            position = self._log.append(partition, batch)
        except LogError as error:
            self._report(appends, error.error, -1, now)
            return
        deadline = now.steady_ms + self._timeout_ms
        written = UnreplicatedBatch(position + len(records), position, appends, deadline)
        self._written.setdefault(partition, deque()).append(written)

    def _expire(self, queue: deque[tuple[int, Append]], now: Now) -> deque[tuple[int, Append]]:
        late = [append for deadline, append in queue if deadline <= now.steady_ms]
        self._report(late, Error.REQUEST_TIMED_OUT, -1, now)
        return deque(item for item in queue if item[0] > now.steady_ms)

    def check(self, now: Now) -> None:
        """Complete the appends that the high watermark has passed, and time out those that waited too long."""
        for partition in list(self._written):
            self._check_partition(partition, now)

    def _check_partition(self, partition: int, now: Now) -> None:
        waiting = self._written.get(partition, deque())
        while waiting and (outcome := self._outcome(partition, waiting[0], now)) is not None:
            done = waiting.popleft()
            self._report(done.appends, outcome, done.position, now)
        if not waiting:
            self._written.pop(partition, None)

    def _outcome(self, partition: int, written: UnreplicatedBatch, now: Now) -> Error | None:
        """The outcome of a batch, None while it is open."""
        try:
            if self._log.passed(partition, written.end):
                return Error.NONE
        except LogError as error:
            return error.error
        except Exception:
            log.exception("partition %d: unexpected error while reading its high watermark", partition)
            return Error.UNKNOWN_SERVER_ERROR
        return Error.REQUEST_TIMED_OUT if written.deadline_ms <= now.steady_ms else None

    def fail(self, partition: int, error: Error, now: Now) -> None:
        """Fail all queued and awaited appends of a partition that moves to another coordinator, or that is reloaded."""
        written, queued = self._written.pop(partition, ()), self._queued.pop(partition, ())
        self._report([append for one in written for append in one.appends], error, -1, now)
        self._report([append for _, append in queued], error, -1, now)

    def _report(self, appends: list[Append], error: Error, position: int, now: Now) -> None:
        """Report each outcome separately: an exception in one `done` must not affect the others."""
        for append in appends:
            try:
                append.done(error, position, now)
            except Exception:
                log.exception("%.100r: unexpected error after an append: reloading it", append.group)
                self._faulty(append.group, now)
            if append.producer is not None:
                self._count_down(append.producer[0])

    def _count_down(self, producer_id: int) -> None:
        self._producers[producer_id] -= 1
        if not self._producers[producer_id]:
            del self._producers[producer_id]


def _take(queue: deque[tuple[int, Append]], most: int) -> list[tuple[int, Append]]:
    """The appends at the head of the queue: of one producer, up to `most` bytes, at least one."""
    taken, size = [queue.popleft()], 0
    size += _size(taken[0][1])
    producer = taken[0][1].producer
    while queue and queue[0][1].producer == producer and size + _size(queue[0][1]) <= most:
        taken.append(queue.popleft())
        size += _size(taken[-1][1])
    return taken


def _size(append: Append) -> int:
    return sum(map(record_size, append.records))


def record_size(record: Record) -> int:
    """An upper bound for the bytes of a record in a batch."""
    key, value = record
    return len(key) + len(value or b"") + RECORD_OVERHEAD
