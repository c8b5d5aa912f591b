"""Leader epochs of a partition and their start offsets (KIP-101, KIP-279).

File: `leader-epoch-checkpoint` in the partition directory, Kafka's checkpoint text:

    0                   version
    2                   number of entries
    0 0                 epoch, first offset written in it
    3 1042

Owner: the process that holds the partition's lock writes it; any process may read. Crash rule: replaced
atomically; recovery cuts entries past the log's end, and finds missing entries in the batches.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from odradek.protocol.wire import INT32_MAX, INT64_MAX
from odradek.storage.files.checkpoints import CheckpointError, read_entries, write_entries
from odradek.storage.files.durable import FILES, Files, StrPath

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class Epoch(NamedTuple):
    epoch: int
    start_offset: int


class EpochCache:
    """Epochs in rising order of both epoch and start offset. In memory only: `write` it when changed."""

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._entries: list[Epoch] = []
        for epoch, start in entries:
            self.assign(epoch, start)

    @property
    def entries(self) -> tuple[Epoch, ...]:
        return tuple(self._entries)

    @property
    def latest(self) -> int:
        """The newest epoch, -1 when there is none."""
        return self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Notes that `epoch` began at `start_offset`; True when that changed anything.

        The newest entry wins: entries with an epoch or a start not below the new one's are dropped.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} at offset {start_offset}: both must be >= 0")
        if self._entries:
            last = self._entries[-1]
            if epoch == last.epoch and start_offset >= last.start_offset:
                return False
        while self._entries and _conflicts(self._entries[-1], epoch, start_offset):
            self._entries.pop()
        self._entries.append(Epoch(epoch, start_offset))
        return True

    def end_offset(self, epoch: int, log_end: int) -> tuple[int, int]:
        """(epoch, end offset) for an OffsetForLeaderEpoch response, (-1, -1) when it is not known.

        The end of the newest epoch is the log's end. For an epoch missing here it is the start of
        the next higher one, with the largest known epoch that is not above the requested one.
        """
        if epoch == UNDEFINED_EPOCH or epoch > self.latest or not self._entries:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end
        above = bisect_right(self._entries, epoch, key=_epoch_of)
        known = self._entries[above - 1].epoch if above else epoch
        return known, self._entries[above].start_offset

    def epoch_of(self, offset: int) -> int:
        """The epoch in which `offset` was written, -1 when that is not known."""
        at = bisect_right(self._entries, offset, key=_start_of)
        return self._entries[at - 1].epoch if at else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drops epochs that begin at or past `end_offset`, the log's new end; True when any did."""
        keep = bisect_left(self._entries, end_offset, key=_start_of)
        if end_offset < 0 or keep == len(self._entries):
            return False
        del self._entries[keep:]
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """Drops epochs that end at or before `start_offset`; the one it lies in now begins there."""
        upto = bisect_right(self._entries, start_offset, key=_start_of)
        if upto == 0:
            return False
        moved = Epoch(self._entries[upto - 1].epoch, start_offset)
        changed = upto > 1 or moved != self._entries[0]
        self._entries[:upto] = [moved]
        return changed

    def write(self, directory: StrPath, *, files: Files = FILES) -> None:
        """Writes the checkpoint file of the partition directory `directory`, atomically."""
        write_entries(Path(directory, FILE_NAME), [f"{e} {s}" for e, s in self._entries], files=files)

    @classmethod
    def read(cls, directory: StrPath) -> EpochCache:
        """The cache from the file, empty without one; CheckpointError when it is malformed."""
        return cls(read_entries(Path(directory, FILE_NAME), _parse))

    @classmethod
    def read_noted(cls, directory: StrPath, noted: int) -> EpochCache:
        """`read`, with `noted` the newest epoch in the slot, -1 for none; CheckpointError also when all are lost."""
        cache = cls.read(directory)
        if noted >= 0 and not cache.entries:
            raise CheckpointError(f"{directory}: {FILE_NAME} has none")
        return cache


class UnknownEpoch(LookupError):
    """The leader does not know the end of the follower's last fetched epoch."""


def diverges(cache: EpochCache, last_epoch: int, offset: int, leo: int) -> tuple[int, int] | None:
    """The diverging epoch for a follower that fetches from `offset` and has `last_epoch` just below it (KIP-595).

    None: the follower's log is a prefix of the leader's (or its epoch is unknown: -1). Else (epoch, end offset) in the
    leader's log beyond which the follower's differs. UnknownEpoch when the leader has never had an epoch that high; the
    caller answers OFFSET_OUT_OF_RANGE (as Kafka's Partition.readRecords does). The caller first checks that `offset` is
    not below the log start.
    """
    if last_epoch < 0:
        return None
    epoch, end = cache.end_offset(last_epoch, leo)
    if end == UNDEFINED_OFFSET:
        raise UnknownEpoch(f"epoch {last_epoch} is not known; the newest is {cache.latest}")
    return (epoch, end) if epoch < last_epoch or end < offset else None


def common_end(cache: EpochCache, epoch: int, end_offset: int, leo: int) -> int:
    """The offset to which a follower truncates its log, which ends at `leo`, if on its leader `epoch` ended at
    `end_offset`.

    If the follower never had that epoch this is not final: it fetches from there and gets another answer. The rules are
    Kafka's (AbstractFetcherThread.getOffsetTruncationState, KIP-279). An `end_offset` of -1 (unknown to leaders before
    0.11) is returned: the follower then truncates to its high watermark.
    """
    if end_offset == UNDEFINED_OFFSET:
        return UNDEFINED_OFFSET
    known, own_end = cache.end_offset(epoch, leo)
    if own_end == UNDEFINED_OFFSET:
        return min(end_offset, leo)
    return min(own_end, leo) if known != epoch else min(own_end, end_offset, leo)


def _parse(words: list[str]) -> tuple[int, int]:
    epoch, start = map(int, words)
    if not (0 <= epoch <= INT32_MAX and 0 <= start <= INT64_MAX):
        raise ValueError(words)
    return epoch, start


def _epoch_of(entry: Epoch) -> int:
    return entry.epoch


def _start_of(entry: Epoch) -> int:
    return entry.start_offset


def _conflicts(entry: Epoch, epoch: int, start_offset: int) -> bool:
    return entry.epoch >= epoch or entry.start_offset >= start_offset
