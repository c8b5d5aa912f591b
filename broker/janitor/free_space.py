"""Keeps space free on disks: the reserve (storage.dirs.reserve), and deletion of old segments before a disk is full.

With `odradek.retention.free.bytes` set, the janitor seals large active segments early when space gets short, so that a
few of them cannot hold it all, and deletes the oldest sealed segments of all topics whose cleanup.policy has delete
until enough is free. It unlinks them at once: file.delete.delay.ms would keep their space for a minute.

It polls rarely while nothing is written. The faster the free space shrinks, the sooner it polls again, so that a part
of the space is left at each poll.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from odradek.broker.config import BrokerConfig
from odradek.broker.janitor import file_deletion
from odradek.broker.janitor.log_retention import Retention
from odradek.broker.process import flush
from odradek.ipc import slots
from odradek.storage import retention
from odradek.storage.dirs.reserve import Reserve
from odradek.storage.files import disks
from odradek.storage.log import roll
from odradek.storage.log.partition import LockNotAvailable, Partition, PartitionRemoved
from odradek.storage.retention import LogFacts

log = logging.getLogger(__name__)

_EARLY = 2  # times the space to keep: below this, large active segments are sealed
_PIECES = 8  # of the space to keep: an active segment smaller than one such piece may stay
_SILENCE_S = 60.0
RARELY_MS = 500.0
_OFTEN_MS = 20.0
_LOOKS = 4  # polls, at least, until a disk would be full


class FreeSpace:
    """The janitor's check of one log directory after the other."""

    def __init__(
        self, config: BrokerConfig, partitions: Callable[[], Iterable[Partition]], retention: Retention
    ) -> None:
        self._partitions = partitions
        self._retention = retention
        self._keep = int(config["odradek.retention.free.bytes"])
        size = int(config["odradek.disk.reserve.bytes"])
        self._reserves = [Reserve(log_dir, size) for log_dir in config.log_dirs]
        self._fill_rates = [FillRate() for _ in config.log_dirs]
        self._warned = -_SILENCE_S

    def check(self, number: int, log_dir: str, now_ms: int) -> float:
        """Check log directory `number`; returns ms until the next check. Raises the disk's OSError."""
        pause = RARELY_MS
        if self._keep:
            pause = self._keep_free(number, log_dir, now_ms)
        self._reserves[number].fill()
        return pause

    def _keep_free(self, number: int, log_dir: str, now_ms: int) -> float:
        fill_rate, free = self._fill_rates[number], disks.disk_space(log_dir).free
        fill_rate.record(free, time.monotonic())
        if free < self._keep * _EARLY:
            self._make_room(number, log_dir, free, now_ms)
            free = disks.disk_space(log_dir).free
            fill_rate.start(free, time.monotonic())
        return fill_rate.pause_ms(free)

    def _make_room(self, number: int, log_dir: str, free: int, now_ms: int) -> None:
        mine = [one for one in self._partitions() if one.state().log_dir == number and _deletes(one)]
        self._seal(mine)
        if free >= self._keep:
            return
        file_deletion.remove_directories(log_dir, now_ms, 0)
        self._each(mine, lambda one: file_deletion.remove_segments(one, now_ms, 0))
        self._delete(mine, self._keep - disks.disk_space(log_dir).free)
        self._each(mine, lambda one: file_deletion.remove_segments(one, now_ms, 0))
        if disks.disk_space(log_dir).free < self._keep:
            self._warn(log_dir)

    def _seal(self, partitions: Iterable[Partition]) -> None:
        large = [one for one in partitions if one.state().active_size >= max(1, self._keep // _PIECES)]

        def seal(partition: Partition) -> None:
            with flush.patiently(partition) as values:
                roll.roll(partition, values)

        self._each(large, seal)

    def _delete(self, partitions: Iterable[Partition], size: int) -> None:
        logs: dict[Partition, LogFacts] = {}

        def note(partition: Partition) -> None:
            logs[partition] = self._retention.facts(partition)

        self._each(partitions, note)
        deletable = retention.for_space(logs, size)
        self._each(deletable, lambda one: self._retention.make_space(one, deletable[one]))

    def _each(self, partitions: Iterable[Partition], act: Callable[[Partition], object]) -> None:
        """A partition that is busy, or has no space to be sealed, must not stop the others."""
        for partition in partitions:
            try:
                act(partition)
            except (LockNotAvailable, PartitionRemoved, FileNotFoundError):
                continue
            except OSError as error:
                if disks.is_broken(error):
                    raise
                log.warning("%r: %s", partition, error)

    def _warn(self, log_dir: str) -> None:
        if time.monotonic() - self._warned >= _SILENCE_S:
            self._warned = time.monotonic()
            log.warning("%s: less than odradek.retention.free.bytes is free, and no segment may be deleted", log_dir)


class FillRate:
    """How fast a disk fills, from the free space at each check; and when to check again."""

    def __init__(self) -> None:
        self._rate = 0.0  # bytes a second; a short pause of the writers does not slow the checks at once
        self._free, self._at = 0, 0.0

    def record(self, free: int, now: float) -> None:
        """Record the free space at `now` (s, monotonic)."""
        seconds = now - self._at
        lately = (self._free - free) / seconds if self._at and seconds > 0 else 0.0
        self._rate = max(lately, self._rate / 2)
        self.start(free, now)

    def start(self, free: int, now: float) -> None:
        """Measure from here on: space that the janitor frees must not count."""
        self._free, self._at = free, now

    def pause_ms(self, free: int) -> float:
        """How long the next check may wait."""
        if self._rate <= 0:
            return RARELY_MS
        return min(RARELY_MS, max(_OFTEN_MS, free / self._rate * 1000 / _LOOKS))


def _deletes(partition: Partition) -> bool:
    served = partition.state().state in (slots.LEADER, slots.FOLLOWER)
    config = partition.config
    return served and "delete" in config.cleanup_policy and not config.retention_unknown
