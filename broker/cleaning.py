"""The janitor's log cleaner: which compacted log is next, how fast, and where it got to (storage.compaction does it).

Layout    : cleaner-offset-checkpoint of each log directory, Kafka's: the first offset of a log that is not clean.
Owner     : the janitor, which alone compacts.
Crash rule: a checkpoint that is missing or behind only costs another round.
A log that turns out to be damaged is left alone until the next start, as Kafka does.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from odradek.ipc import slots
from odradek.protocol.records.errors import RecordError
from odradek.storage import checkpoints, compaction
from odradek.storage.checkpoints import OffsetFile, Offsets
from odradek.storage.cleanable import Range
from odradek.storage.compaction import BUSY, Compaction, Memory, Moved, Unclean
from odradek.storage.partition import Gone, Partition

if TYPE_CHECKING:
    from odradek.broker.checkpoint_turns import Turns
    from odradek.broker.config import BrokerConfig

log = logging.getLogger(__name__)

NICE = 10
BUSY_MS = 1.0
_UNLIMITED = 1e18  # bytes a second: Kafka's default is the largest double
_THROTTLE_SECONDS = 0.3  # the longest that a limited cleaner goes on at once, as Kafka's throttler looks at it
_LEAST_CHUNK, _CHUNK = 256 << 10, 4 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT)


class CleanerOffsets:
    """The checkpoint files. An offset counts for one incarnation of a partition only."""

    def __init__(self, log_dirs: list[str], turns: Turns) -> None:
        self._log_dirs = log_dirs
        self._turns = turns
        self._files = [OffsetFile(path, checkpoints.CLEANER) for path in log_dirs]
        self._truncations: dict[int, int] = {}  # how many of each incarnation are known of
        self._cut: set[int] = set()  # incarnations that were truncated since they were cleaned

    def get(self, partition: Partition) -> int | None:
        """Where the dirty part of a log begins, None when it was never cleaned."""
        state, incarnation = partition.state(), partition.incarnation
        if state.incarnation != incarnation:  # what the file says is of another one
            return None
        if self._truncations.get(incarnation, 0) != state.truncations:
            self._truncations[incarnation] = state.truncations
            self._cut.add(incarnation)
        offset = self._read(state.log_dir).get((partition.topic, partition.index))
        # How far it was cut nobody knows any more: what came instead is not clean.
        return offset if offset is None or incarnation not in self._cut else 0

    def put(self, partition: Partition, offset: int, others: Iterable[Partition]) -> None:
        """Write where the dirty part begins, and leave out partitions that are none of the `others`. Raises OSError."""
        self._cut.discard(partition.incarnation)
        self._write(partition.state().log_dir, [(partition, offset)], others)

    def begin(self, partitions: Iterable[Partition], others: Iterable[Partition]) -> None:
        """Enter logs that were never cleaned: they are dirty from their start on. Raises OSError."""
        found, others = [(partition, partition.state()) for partition in partitions], list(others)
        for index in {state.log_dir for _, state in found}:
            new = [(partition, state.log_start) for partition, state in found if state.log_dir == index]
            self._write(index, new, others)

    def _write(self, index: int, new: list[tuple[Partition, int]], others: Iterable[Partition]) -> None:
        """Slots are looked at when it is our turn: see broker.checkpoint_turns."""
        with self._turns.of(index):
            known = {(one.topic, one.index) for one in others if _is_live(one)}
            offsets = {key: offset for key, offset in self._read(index).items() if key in known}
            offsets |= {(one.topic, one.index): offset for one, offset in new if _is_live(one)}
            checkpoints.write_offsets(self._log_dirs[index], checkpoints.CLEANER, offsets)

    def _read(self, index: int) -> Offsets:
        try:
            return self._files[index].read()
        except (checkpoints.CheckpointError, OSError) as error:
            log.warning("every compacted log counts as dirty: %s", error)
            return {}


def _is_live(partition: Partition) -> bool:
    return partition.state().serves(partition.incarnation)


class Cleaner:
    """`step` it: each call does a little of one log's compaction and says when the next is due."""

    def __init__(self, config: BrokerConfig, partitions: Callable[[], Iterable[Partition]], turns: Turns) -> None:
        self._partitions = partitions
        self._backoff_ms = float(config["log.cleaner.backoff.ms"])
        self._enabled = bool(config["log.cleaner.enable"])
        self._rate = float(config["log.cleaner.io.max.bytes.per.second"])
        self._memory = Memory(
            config["log.cleaner.dedupe.buffer.size"],
            config["log.cleaner.io.buffer.load.factor"],
            int(min(max(self._rate * _THROTTLE_SECONDS, _LEAST_CHUNK), _CHUNK)),
        )
        self._offsets = CleanerOffsets(list(config.log_dirs), turns)
        self._going: Compaction | None = None
        self._steps: Iterator[int] = iter(())
        self._began = 0.0
        self._done_bytes = 0
        self._uncleanable: set[int] = set()  # incarnations
        self._unreadable: dict[int, set[int]] = {}  # incarnation → base offsets of batches that were logged

    def step(self) -> float:
        """Go on for some milliseconds; returns after how many the next step is due. Raises OSError: see `partition`."""
        if self._going is None:
            self._note_followers()
        if not self._enabled:
            return self._backoff_ms
        if self._going is None:
            return 0.0 if self._begin() else self._backoff_ms
        try:
            return self._next(self._going)
        except (Moved, Gone) as error:
            log.info("%r: compaction given up: %s", self._going.partition, error or "it was deleted")
        except (Unclean, RecordError) as error:
            log.error("%r cannot be compacted: %s", self._going.partition, error)
            self._uncleanable.add(self._going.partition.incarnation)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            log.warning("%r: no room to compact: %s", self._going.partition, error)
        self._going = None
        return self._backoff_ms

    @property
    def partition(self) -> Partition | None:
        """The log that is being compacted."""
        return self._going.partition if self._going is not None else None

    def close(self) -> None:
        """Give up what is under way and remove what it wrote."""
        if self._going is not None:
            self._steps.close()  # type: ignore[attr-defined]
            self._going = None

    def _next(self, going: Compaction) -> float:
        done = next(self._steps, None)
        if done is None:
            self._finish(going)
            return 0.0
        if done == BUSY:
            return BUSY_MS
        return self._pause_ms(done)

    def _pause_ms(self, done: int) -> float:
        """How long to wait for log.cleaner.io.max.bytes.per.second after `done` more bytes."""
        if self._rate >= _UNLIMITED:
            return 0.0
        self._done_bytes += done
        return max(0.0, self._began + self._done_bytes / self._rate - time.monotonic()) * 1000

    def _note_followers(self) -> None:
        """A follower's log has the gaps of its leader's, clean or not: `odradek check` goes by the checkpoint."""
        new = [
            partition
            for partition in self._partitions()
            if partition.config.compacted and _follows(partition) and self._offsets.get(partition) is None
        ]
        try:
            self._offsets.begin(new, self._partitions())
        except OSError as error:
            log.warning("%s could not be written: %s", checkpoints.CLEANER, error)

    def _begin(self) -> bool:
        """Take up the filthiest log that is due, if there is one."""
        now_ms = time.time_ns() // 1_000_000
        found = [(what, partition) for partition, what in self._dirty(now_ms)]
        if not found:
            return False
        what, partition = max(found, key=lambda pair: pair[0].ratio)
        if self._offsets.get(partition) is None:  # from now on the log may have gaps: `odradek check` goes by this
            self._offsets.put(partition, what.first_dirty, self._partitions())
        _be_nice()
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's, which comes now: its threads would only spin
        told = self._unreadable.setdefault(partition.incarnation, set())
        self._going = Compaction(partition, what, self._memory, now_ms, told)
        self._steps = self._going.steps()
        self._began, self._done_bytes = time.monotonic(), 0
        log.debug("%r: compacting offsets %d to %d", partition, what.first_dirty, what.upto)
        return True

    def _dirty(self, now_ms: int) -> Iterator[tuple[Partition, Range]]:
        for partition in self._partitions():
            state = partition.state()
            if not partition.config.compacted or partition.incarnation in self._uncleanable:
                continue
            if state.state not in (slots.LEADER, slots.FOLLOWER) or state.incarnation != partition.incarnation:
                continue
            try:
                what = compaction.look(partition, self._offsets.get(partition), now_ms)
            except FileNotFoundError:  # it changes just now
                continue
            if what.due(partition.config.min_cleanable_dirty_ratio):
                yield partition, what

    def _finish(self, going: Compaction) -> None:
        self._going = None
        self._offsets.put(going.partition, going.cleaned_upto, self._partitions())
        log.info(
            "%r: compacted up to offset %d: %d bytes read, %d written, %d segments, %d replacements, %.1f s",
            going.partition, going.cleaned_upto, going.bytes_read, going.bytes_written, going.segments, going.swaps,
            time.monotonic() - self._began,
        )  # fmt: skip


def _follows(partition: Partition) -> bool:
    state = partition.state()
    return state.state == slots.FOLLOWER and state.incarnation == partition.incarnation


def _be_nice() -> None:
    """Whoever serves clients goes first, from now on; this process has nothing that is more urgent."""
    niceness = os.nice(0)
    if niceness < NICE:
        os.nice(NICE - niceness)
