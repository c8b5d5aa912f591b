"""The janitor's log cleaner: decides which logs to compact next and how fast (storage.compaction.compaction does it).

`log.cleaner.threads` is how many logs are compacted at the same time: this process does a step of one, then of the
next, so that a large log does not delay a small one. They share log.cleaner.dedupe.buffer.size and
log.cleaner.io.max.bytes.per.second. A log that is damaged, or on which the cleaner fails unexpectedly, is uncleanable
until the next start, as in Kafka: the others go on. A log whose compaction makes no progress (its disk fails, or it
changed meanwhile) is retried after the others have had their turn and log.cleaner.backoff.ms have passed.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.broker.janitor.cleaner_offsets import CleanerOffsets
from odradek.ipc import slots
from odradek.protocol.records.errors import RecordError
from odradek.storage.compaction import compaction
from odradek.storage.compaction.cleanable import CleanableRange, DecidedOffsets
from odradek.storage.compaction.compaction import BUSY, CleaningAborted, Compaction, DedupeBuffer, UncleanableLog
from odradek.storage.log.partition import Partition, PartitionRemoved

if TYPE_CHECKING:
    from odradek.broker.config import BrokerConfig
    from odradek.broker.process.checkpoint_lock import CheckpointLocks

log = logging.getLogger(__name__)

NICE = 10
BUSY_MS = 1.0
_LEAST_PAUSE_MS = 10  # for a backoff of 0, with which an idle janitor would use a whole CPU
_UNLIMITED = 1e18  # bytes a second: Kafka's default is the largest double
_THROTTLE_SECONDS = 0.3  # the longest that a throttled cleaner goes on at once, as in Kafka's throttler
_LEAST_CHUNK, _CHUNK = 256 << 10, 4 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT)


class CleanerConfig(NamedTuple):
    """log.cleaner.*, which may change while the broker runs. Milliseconds, bytes, bytes a second."""

    threads: int
    backoff_ms: float
    rate: float
    buffer_bytes: int
    load_factor: float
    io_buffer_bytes: int

    @classmethod
    def of(cls, value: Callable[[str], Any]) -> CleanerConfig:
        """From the configs in force."""
        return cls(
            value("log.cleaner.threads"),
            float(value("log.cleaner.backoff.ms") or _LEAST_PAUSE_MS),
            float(value("log.cleaner.io.max.bytes.per.second")),
            value("log.cleaner.dedupe.buffer.size"),
            value("log.cleaner.io.buffer.load.factor"),
            value("log.cleaner.io.buffer.size"),
        )

    @property
    def memory(self) -> DedupeBuffer:
        """The memory for one log."""
        logs = max(self.threads, 1)
        most = max(self.io_buffer_bytes // logs // 2, _CHUNK)  # Kafka's other half is for what it writes
        chunk = min(max(self.rate * _THROTTLE_SECONDS, _LEAST_CHUNK), most)
        return DedupeBuffer(self.buffer_bytes // logs, self.load_factor, int(chunk))


@dataclass
class _Running:
    """A log that is being compacted."""

    compaction: Compaction
    steps: Generator[int, None, None]
    began: float


class LogCleaner:
    """Call `step`: each call does a part of one log's compaction and returns when the next is due."""

    def __init__(
        self, config: BrokerConfig, partitions: Callable[[], Iterable[Partition]], turns: CheckpointLocks,
        report: Callable[[Partition, OSError], None],
    ) -> None:  # fmt: skip
        """`report` is called for each error of a log's disk."""
        self._partitions = partitions
        self._report = report
        self._enabled = bool(config["log.cleaner.enable"])
        self._settings = CleanerConfig.of(config.__getitem__)
        self._offsets = CleanerOffsets(list(config.log_dirs), turns)
        self._running: list[_Running] = []  # the next to step first
        self._check_at = 0.0  # when to check for more logs than these; monotonic
        self._free_at = 0.0  # when log.cleaner.io.max.bytes.per.second allows the next step
        self._uncleanable: set[int] = set()  # incarnations
        self._paused: dict[int, float] = {}  # incarnations whose last compaction made no progress → until when
        self._undecided: dict[int, DecidedOffsets] = {}  # incarnation → what its last check left over
        self._unreadable: dict[int, set[int]] = {}  # incarnation → base offsets of batches that were logged

    def configure(self, value: Callable[[str], Any]) -> bool:
        """Apply configs; returns whether any has changed. Memory applies from the next log on, the others at once."""
        former, self._settings = self._settings, CleanerConfig.of(value)
        if self._settings == former:
            return False
        self._check_at = self._free_at = 0.0
        return True

    @property
    def backoff_ms(self) -> float:
        """The pause when there is nothing to do."""
        return self._settings.backoff_ms

    def step(self) -> float:
        """Work for some milliseconds; returns ms until the next step is due."""
        if not self._running:
            self._record_followers()
        if not self._enabled:
            return self._settings.backoff_ms
        if self._may_begin() and self._begin():
            return 0.0
        if self._running:
            return self._step(self._running[0])
        self._paused.clear()  # until the next step
        return self._settings.backoff_ms

    def _may_begin(self) -> bool:
        return len(self._running) < self._settings.threads and (not self._running or time.monotonic() >= self._check_at)

    def _step(self, running: _Running) -> float:
        try:
            with self._outliving(
                running.compaction.partition, CleaningAborted, PartitionRemoved, UncleanableLog, RecordError, OSError
            ):
                return self._next(running)
        except (CleaningAborted, PartitionRemoved) as error:
            log.info("%r: compaction aborted: %s", running.compaction.partition, error or "the partition was deleted")
            self._pause(running.compaction.partition)
        except (UncleanableLog, RecordError) as error:
            log.error("%r: compaction failed: %s", running.compaction.partition, error)
            self._uncleanable.add(running.compaction.partition.incarnation)
        except OSError as error:
            self._refuse(running.compaction.partition, error)
        self._running.remove(running)
        return 0.0

    @contextmanager
    def _outliving(self, partition: Partition, *expected: type[Exception]) -> Iterator[None]:
        """A bug costs the log on which it occurs, not the janitor. Raises what is `expected`."""
        try:
            yield
        except expected:
            raise
        except Exception:
            log.exception("%r: compaction failed: not retried before the next start", partition)
            self._uncleanable.add(partition.incarnation)

    def _pause(self, partition: Partition) -> None:
        """Compaction of this log made no progress: the others go first, and the next try follows after a pause."""
        self._paused[partition.incarnation] = time.monotonic() + self._settings.backoff_ms / 1000

    def _refuse(self, partition: Partition, error: OSError) -> None:
        """Handle a disk error of this log."""
        self._pause(partition)
        if error.errno in _FULL:
            log.warning("%r: no space to compact: %s", partition, error)
        else:
            self._report(partition, error)

    def record_truncations(self) -> None:
        """Record that truncated logs are dirty, also after the next start. Raises OSError.

        Includes logs that are not compacted at present, but were and may be again.
        """
        self._offsets.record_truncations(self._partitions(), self._partitions)

    @property
    def partition(self) -> Partition | None:
        """The log that is being compacted; of several, the next to step."""
        return self._running[0].compaction.partition if self._running else None

    def close(self) -> None:
        """Abort running compactions and remove what they wrote."""
        while self._running:
            self._running.pop().steps.close()

    def _next(self, running: _Running) -> float:
        """Run a step of this log; the next step is of another."""
        done = next(running.steps, None)
        if done is None:
            self._finish(running)
            self._running.remove(running)
            return 0.0
        self._running.append(self._running.pop(0))
        if done == BUSY:
            return BUSY_MS
        return self._pause_ms(done)

    def _pause_ms(self, done: int) -> float:
        """How long to wait for log.cleaner.io.max.bytes.per.second after `done` more bytes."""
        if self._settings.rate >= _UNLIMITED:
            return 0.0
        now = time.monotonic()
        self._free_at = max(self._free_at, now - _THROTTLE_SECONDS) + done / max(self._settings.rate, 1.0)
        return max(0.0, self._free_at - now) * 1000

    def _record_followers(self) -> None:
        """A follower's log has the gaps of its leader's, clean or not: `odradek check` relies on the checkpoint."""
        new = [
            partition
            for partition in self._partitions()
            if partition.config.compacted and _follows(partition) and self._offsets.get(partition) is None
        ]
        for partition, error in self._offsets.begin(new, self._partitions()):
            self._refuse(partition, error)

    def _begin(self) -> bool:
        """Start on the filthiest log that is due and not yet started, if there is one."""
        now_ms = time.time_ns() // 1_000_000
        found = [(what, partition) for partition, what in self._dirty(now_ms)]
        if not found:
            there = {partition.incarnation for partition in self._partitions()}
            self._undecided = {one: left for one, left in self._undecided.items() if one in there}
            self._check_at = time.monotonic() + self._settings.backoff_ms / 1000
            return False
        what, partition = max(found, key=lambda pair: pair[0].ratio)
        try:
            with self._outliving(partition, CleaningAborted, OSError):
                self._start(partition, what, now_ms)
        except CleaningAborted:  # it is checked again
            pass
        except OSError as error:
            self._refuse(partition, error)
        return True

    def _start(self, partition: Partition, what: CleanableRange, now_ms: int) -> None:
        if self._offsets.get(partition) is None:  # from now on the log may have gaps: `odradek check` relies on it
            self._offsets.put(partition, what.first_dirty, what.truncations, self._partitions())
        _be_nice()
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for numpy, imported next: its threads would only spin
        logged = self._unreadable.setdefault(partition.incarnation, set())
        made = Compaction(partition, what, self._settings.memory, now_ms, logged)
        self._running.insert(0, _Running(made, made.steps(), time.monotonic()))
        log.debug("%r: compacting offsets %d to %d", partition, what.first_dirty, what.upto)

    def _dirty(self, now_ms: int) -> Iterator[tuple[Partition, CleanableRange]]:
        # By directory: a recreated topic has the directory of the former one, whose compaction may not have noticed
        # yet that its log is gone. Both would write to the same `.cleaned` files.
        taken = {one.compaction.partition.directory for one in self._running}
        now = time.monotonic()
        not_now = self._uncleanable | {one for one, until in self._paused.items() if until > now}
        for partition in self._partitions():
            state = partition.state()
            if partition.directory in taken or partition.incarnation in not_now:
                continue
            if not partition.config.compacted:
                continue
            if state.state not in (slots.LEADER, slots.FOLLOWER) or state.incarnation != partition.incarnation:
                continue
            what = self._check(partition, state.leo, now_ms)
            if what is None or what.truncations != state.truncations:
                continue
            if what.due(partition.config.min_cleanable_dirty_ratio):
                yield partition, what

    def _check(self, partition: Partition, leo: int, now_ms: int) -> CleanableRange | None:
        """The range of a log that could be cleaned, None when it cannot be determined."""
        try:
            with self._outliving(partition, OSError):
                incarnation = partition.incarnation
                before = self._undecided.pop(incarnation, None)
                what = compaction.find_range(partition, self._checkpoint(partition, leo), now_ms, before)
                if what.undecided is not None:
                    self._undecided[incarnation] = what.undecided
                return what
        except FileNotFoundError:  # it is just changing
            pass
        except OSError as error:
            self._refuse(partition, error)
        return None

    def _checkpoint(self, partition: Partition, leo: int) -> int | None:
        offset = self._offsets.get(partition)
        if offset is None or offset <= leo:
            return offset
        log.warning(
            "%r: cleaner checkpoint %d is beyond the log end offset %d: treating the log as dirty",
            partition,
            offset,
            leo,
        )
        self._offsets.put_back(partition, self._partitions())
        return self._offsets.get(partition)

    def _finish(self, running: _Running) -> None:
        self._check_at = 0.0
        done = running.compaction
        self._offsets.put(done.partition, done.cleaned_upto, done.what.truncations, self._partitions())
        if done.cleaned_upto <= done.what.first_dirty:
            self._pause(done.partition)
        log.info(
            "%r: compacted up to offset %d: %d bytes read, %d written, %d segments, %d replacements, %.1f s",
            done.partition, done.cleaned_upto, done.bytes_read, done.bytes_written, done.segments, done.swaps,
            time.monotonic() - running.began,
        )  # fmt: skip


def _follows(partition: Partition) -> bool:
    state = partition.state()
    return state.state == slots.FOLLOWER and state.incarnation == partition.incarnation


def _be_nice() -> None:
    """Let processes that serve clients go first, from now on; this process has no more urgent work."""
    niceness = os.nice(0)
    if niceness < NICE:
        os.nice(NICE - niceness)
