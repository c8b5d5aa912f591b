"""The janitor: does everything that may block on a disk, so that workers do not.

Role 5. At boot it helps the workers recover partitions; then its loop runs the table of (period, task) below.
Rolling by time (`segment.ms`) is not among the tasks: Kafka rolls on append, by the record's timestamp, and a clock
here would cut a log of old records into segments of one batch each.
"""

from __future__ import annotations

import logging
import math
import select
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from odradek.broker.janitor import file_deletion, log_retention
from odradek.broker.janitor.free_space import RARELY_MS, FreeSpace
from odradek.broker.janitor.log_cleaner import LogCleaner
from odradek.broker.janitor.log_dir_failures import LogDirFailureHandler
from odradek.broker.process import flush
from odradek.broker.process.checkpoint_lock import CheckpointLocks
from odradek.broker.process.checkpoint_writer import CheckpointWriter
from odradek.broker.process.partitions import Partitions
from odradek.broker.process.process import Process, Signals, enter
from odradek.ipc import roles, slots
from odradek.ipc.doorbell import Doorbell
from odradek.storage.dirs import boot_id, logdirs
from odradek.storage.files import checkpoints, disks
from odradek.storage.log import opening, reindex
from odradek.storage.log.partition import LockNotAvailable, Partition, PartitionRemoved

log = logging.getLogger(__name__)

LOOK_MS = 500  # the longest sleep: a ring that announces new metadata may be lost
RECOVER_MS = 20  # while partitions wait for recovery that another process may leave half done
FLUSH_LOOK_MS = 500
TRUNCATION_LOOK_MS = 500
DAMAGE_LOOK_MS = 500
REMOVE_LOOK_MS = 1000
FORGET_MS = 3_600_000
NOTE_LOOK_MS = 100  # until everything is recovered
NOTE_AGAIN_MS = 5000  # while there are logs that are not in the metadata


@dataclass
class PeriodicTask:
    """Something done every `period_ms`."""

    period_ms: float
    run: Callable[[], None]
    due: float = 0.0


class Janitor:
    """One loop; one thread."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._partitions = Partitions(process.shared, process.run_dir, process.config, roles.JANITOR)
        turns = CheckpointLocks(process.run_dir)
        self._checkpoints = CheckpointWriter(process.config.log_dirs, turns)
        self._retention = log_retention.Retention()
        self._tidy: dict[int, tuple[int, int]] = {}  # slot → (incarnation, generation) without `.deleted` files
        self._deletable = True  # there may be directories of deleted partitions
        self._log_dir_failures = LogDirFailureHandler(process.shared, self._partitions, process.config.log_dirs)
        self._space = FreeSpace(process.config, self._intact, self._retention)
        self._recovering = False
        self._truncations = 0
        self._faulty: set[tuple[str, int, int]] = set()  # tasks that hit a bug: what, slot, incarnation
        self._bell = Doorbell(process.run_dir, roles.JANITOR)
        self._signals = Signals(signal.SIGTERM, signal.SIGINT)
        self._cleaner = LogCleaner(process.config, self._intact, turns, self._log_dir_failures.report)
        self._cleaning = PeriodicTask(self._cleaner.backoff_ms, self._clean)
        self._keeping = PeriodicTask(RARELY_MS, self._keep_space)
        self._noting = PeriodicTask(NOTE_LOOK_MS, self._record_boot)
        self._tasks = self._table()

    def _table(self) -> list[PeriodicTask]:
        config = self._process.config
        return [
            PeriodicTask(FLUSH_LOOK_MS, self._flush),
            PeriodicTask(TRUNCATION_LOOK_MS, self._record_truncations),
            PeriodicTask(DAMAGE_LOOK_MS, self._mend),
            PeriodicTask(REMOVE_LOOK_MS, self._remove),
            self._keeping,
            PeriodicTask(config["log.retention.check.interval.ms"], self._retain),
            PeriodicTask(config["producer.id.expiration.check.interval.ms"], self._expire),
            PeriodicTask(
                _period_ms(config, "log.flush.offset.checkpoint.interval.ms"),
                self._checkpoint(checkpoints.RECOVERY_POINT),
            ),
            PeriodicTask(
                _period_ms(config, "log.flush.start.offset.checkpoint.interval.ms"),
                self._checkpoint(checkpoints.LOG_START),
            ),
            PeriodicTask(
                _period_ms(config, "replica.high.watermark.checkpoint.interval.ms"),
                self._checkpoint(checkpoints.HIGH_WATERMARK),
            ),
            PeriodicTask(FORGET_MS, self._retention.forget),
            self._cleaning,
            self._noting,
        ]

    def run(self) -> None:
        """Run until SIGTERM."""
        poll = select.poll()
        poll.register(self._signals, select.POLLIN)
        poll.register(self._bell, select.POLLIN)
        self._postpone()
        self._follow()
        self._process.running()
        while not self._signals.drain():
            self._process.beat()
            self._bell.drain()
            self._follow()
            self._log_dir_failures.turn()
            self._run_due()
            poll.poll(self._sleep_ms())
        self._process.draining()
        self._cleaner.close()

    # The loop

    def _postpone(self) -> None:
        """Run every task for the first time a period from now: the start is busy enough."""
        now = time.monotonic()
        for task in self._tasks:
            task.due = now + task.period_ms / 1000

    def _run_due(self) -> None:
        for task in self._tasks:
            if task.due <= time.monotonic():
                self._guarded(task)
                task.due = time.monotonic() + task.period_ms / 1000
            if self._process.shared.draining:
                return

    def _guarded(self, task: PeriodicTask) -> None:
        """A disk that fails in one task must not end the others."""
        try:
            task.run()
        except OSError as error:
            log.error("%s: %s", getattr(task.run, "__name__", "task"), error)
            self._process.shared.processes.add(roles.JANITOR, "errors")

    def _sleep_ms(self) -> float:
        next_due = min(task.due for task in self._tasks)
        look = RECOVER_MS if self._recovering else LOOK_MS
        return max(0.0, min(look, (next_due - time.monotonic()) * 1000))

    def _follow(self) -> None:
        """Apply new metadata, and recover what no other process has recovered yet."""
        if self._partitions.follow():
            self._process.shared.processes.set(roles.JANITOR, "meta_version", self._partitions.snapshot.version)
            self._recovering = self._deletable = True
            if self._cleaner.configure(self._setting):
                self._cleaning.due = 0.0
        if self._recovering:
            self._recover()
            self._recovering = bool(self._process.shared.slots.numbers(slots.RECOVERING))

    def _setting(self, name: str) -> Any:
        """A broker config in force, which may change while the broker runs."""
        return self._partitions.snapshot.broker_config(name, self._process.config["broker.id"])

    def _recover(self) -> None:
        """Recover in reverse order, as the workers begin with the first partition."""
        if not self._process.shared.slots.numbers(slots.RECOVERING):
            return
        names = reversed(self._partitions.names())
        opening.open_all(self._partitions.log, names, self._partitions.log_dirs(), self._recovered)

    def _recovered(self) -> None:
        self._process.shared.processes.add(roles.JANITOR, "recovered")

    # Tasks

    def _each(self, what: str, act: Callable[[Partition], object], among: Iterable[Partition] | None = None) -> None:
        """Call `act` on partitions one by one; a busy one waits for the next run."""
        for partition in self._partitions if among is None else among:
            if partition.state().log_dir in self._log_dir_failures.broken or self._process.shared.draining:
                continue
            self._process.beat()
            try:
                act(partition)
            except (LockNotAvailable, PartitionRemoved, FileNotFoundError) as error:
                log.debug("%s: %r skipped: %s", what, partition, error or type(error).__name__)
            except OSError as error:
                self._log_dir_failures.report(partition, error)
            except Exception:
                self._show(what, partition)

    def _show(self, what: str, partition: Partition) -> None:
        """A bug costs only this partition its turn, and is logged once."""
        place = what, partition.slot.number, partition.state().incarnation
        if place not in self._faulty:
            self._faulty.add(place)
            log.exception("%s: %r", what, partition)
            self._process.shared.processes.add(roles.JANITOR, "errors")

    def _flush(self) -> None:
        self._each("flush", _flush_due, self._partitions.unflushed())

    def _mend(self) -> None:
        """Rebuild indexes that a reader found damaged."""
        found = self._process.shared.slots.damaged()
        if found:
            self._each("indexes", reindex.mend, self._partitions.at(found))

    def _retain(self) -> None:
        now_ms, self._deletable = _now_ms(), True
        self._each("retention", lambda partition: self._retention.trim(partition, now_ms))

    def _expire(self) -> None:
        now_ms, expiration_ms = _now_ms(), self._setting("producer.id.expiration.ms")
        self._each("producers", lambda partition: log_retention.expire_producers(partition, now_ms, expiration_ms))

    def _remove(self) -> None:
        now_ms = _now_ms()
        changed = self._partitions.changed(self._tidy)
        self._each("removal", lambda partition: self._remove_in(partition, now_ms), changed)
        if self._deletable:  # until all have been removed, also if a disk fails meanwhile
            self._deletable = self._remove_directories(now_ms) > 0

    def _remove_directories(self, now_ms: int) -> int:
        """Remove deleted partitions' directories, renamed before the metadata changes; returns how many still wait."""
        delay, waiting = self._setting("log.segment.delete.delay.ms"), 0
        for index, log_dir in enumerate(self._process.config.log_dirs):
            if index not in self._log_dir_failures.broken:
                waiting += file_deletion.remove_directories(
                    log_dir, now_ms, delay, partial(self._log_dir_failures.handle_error, index)
                )[1]
        return waiting

    def _remove_in(self, partition: Partition, now_ms: int) -> None:
        """Every change of a partition's set of files is a new generation: without one there are no new files."""
        state = partition.state()
        _, waiting = file_deletion.remove_segments(partition, now_ms)
        if not waiting:
            self._tidy[partition.slot.number] = (state.incarnation, state.generation)

    def _intact(self) -> Iterable[Partition]:
        """The partitions in log directories that work."""
        return (
            partition
            for partition in self._partitions
            if partition.state().log_dir not in self._log_dir_failures.broken
        )

    def _clean(self) -> None:
        """Run a step of compaction, short enough for the other tasks to run in time."""
        self._cleaning.period_ms = self._cleaner.backoff_ms  # unless the next line fails
        self._cleaning.period_ms = self._cleaner.step()

    def _checkpoint(self, name: str) -> Callable[[], None]:
        def write() -> None:
            for number, error in self._checkpoints.write(self._partitions, name, self._log_dir_failures.broken).items():
                if disks.is_broken(error):
                    self._process.shared.fail_dir(number)

        write.__name__ = name
        return write

    def _record_truncations(self) -> None:
        """After a truncation a recovery point may be beyond the log end, the cleaner's beyond the clean part."""
        truncations = self._partitions.truncations()
        if truncations != self._truncations:
            self._checkpoint(checkpoints.RECOVERY_POINT)()
            self._cleaner.record_truncations()
            self._truncations = truncations

    def _record_boot(self) -> None:
        """Note the boot once all logs are recovered: the next recovery need not excuse what this one found. Waits for
        logs that are not in the metadata yet, and for logs that could not be read.
        """
        if self._recovering or not self._partitions.snapshot.version:
            return
        known, self._noting.period_ms = set(self._partitions.names()) - self._not_recovered(), math.inf
        for number, log_dir in enumerate(self._process.config.log_dirs):
            if number in self._log_dir_failures.broken:
                continue
            if logdirs.holds_only(log_dir, known):
                boot_id.record_boot(log_dir)
            else:
                self._noting.period_ms = NOTE_AGAIN_MS

    def _not_recovered(self) -> set[tuple[str, int]]:
        """Offline partitions whose logs were not judged: an error that may be transient came first."""
        offline = self._partitions.at(self._process.shared.slots.numbers(slots.OFFLINE))
        return {(one.topic, one.index) for one in offline if one.state().recovers_to != slots.OFFLINE}

    def _keep_space(self) -> None:
        self._keeping.period_ms = RARELY_MS
        for number, log_dir in enumerate(self._process.config.log_dirs):
            if number not in self._log_dir_failures.broken:
                self._keeping.period_ms = min(self._keeping.period_ms, self._room_in(number, log_dir))

    def _room_in(self, number: int, log_dir: str) -> float:
        """Keep space in one log directory; returns ms until the next check. A broken one must not stop the others."""
        try:
            return self._space.check(number, log_dir, _now_ms())
        except OSError as error:
            log.error("%s: %s", log_dir, error)
            if disks.is_broken(error):
                self._process.shared.fail_dir(number)
            return RARELY_MS


def _flush_due(partition: Partition) -> None:
    """Sync records older than flush.ms; and sealed segments, as Kafka syncs them after a roll."""
    state = partition.state()
    if state.flushed >= state.leo:
        return
    waited = _now_ms() - state.unflushed_since if state.unflushed_since else 0
    if waited >= partition.config.flush_ms:
        flush.sync(partition)
    elif state.flushed < state.active_base:
        flush.sync(partition, lambda now: now.active_base)


def _period_ms(config: Mapping[str, Any], name: str) -> float:
    """Kafka's scheduler does not repeat a task with a period of 0 or less; here it would run all the time."""
    return config[name] if config[name] > 0 else math.inf


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def main(run_dir: Path) -> None:
    """Run the janitor of the broker with this run directory, until SIGTERM."""
    Janitor(enter(roles.JANITOR, run_dir)).run()
