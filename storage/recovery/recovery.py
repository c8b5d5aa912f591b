"""Opening a partition directory: the state of the log, and its repair after a crash.

After a clean stop the log is trusted and only the end of the active segment is read. Otherwise every
batch from the segment that holds the recovery point on is checked (checksum, rising offsets), its
indexes are rebuilt and the producers' state is replayed. The log is authoritative, indexes and
snapshots are disposable: missing or broken ones are rebuilt from it. (`last_segment` reads a trusted
log, `trusted_state` the epochs and producers to start from, `rebuild` a segment; `damage` cuts.)

A torn write at the end is cut off. Damage in the middle raises `CorruptLog` before any change there,
unless the caller requests a cut (see `damage`), or the machine went down: then any unsynced data may be
missing while later records exist, and the log ends before the first gap.

Caller owns the directory alone. Crash rule: every step can be repeated from the start.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from odradek.storage.files import names
from odradek.storage.files.durable import FILES, Files, StrPath
from odradek.storage.producers.producer_state import ProducerEntry
from odradek.storage.producers.snapshots import prune_snapshots
from odradek.storage.recovery import damage, last_segment, sealed_segment, trusted_state
from odradek.storage.recovery.crash_cleanup import Contents, tidy
from odradek.storage.recovery.damage import CorruptLog
from odradek.storage.recovery.rebuild import LogState, Scanned, scan_segment
from odradek.storage.segment import index_files
from odradek.storage.segment.epochs import Epoch, EpochCache
from odradek.storage.segment.index_files import NO_TIMESTAMP, OFFSET_ENTRY, TIME_ENTRY
from odradek.storage.segment.scan import BadBatch, Scan

__all__ = ["CorruptLog", "Recovered", "Segment", "recover"]


class IndexConfig(Protocol):
    """The part of a topic's config that recovery needs: `index.interval.bytes`, and whether its log may have gaps.

    If the retention is unknown (cluster.configs.adopted_configs) another broker may have compacted the log.
    """

    @property
    def index_interval_bytes(self) -> int: ...

    @property
    def compacted(self) -> bool: ...

    @property
    def retention_unknown(self) -> bool: ...


class Segment(NamedTuple):
    base_offset: int
    size: int


@dataclass
class Recovered:
    """The initial state of a partition. Offsets as in Kafka; sizes in bytes; timestamps in ms.

    `max_timestamp`, `max_timestamp_offset`, `index_pending` (bytes since the last index entry's batch
    began), `active_first_timestamp` (for segment.ms; -1 when empty) and the entry counts are of the
    active segment; a sealed segment's largest timestamp is the last entry of its time index.
    `first_unstable` is -1 without an open transaction. `notes` has a line for each repair.
    """

    log_start: int = 0
    leo: int = 0
    recovery_point: int = 0
    active_base: int = 0
    active_size: int = 0
    index_entries: int = 0
    time_entries: int = 0
    max_timestamp: int = NO_TIMESTAMP
    max_timestamp_offset: int = 0
    index_pending: int = 0
    active_first_timestamp: int = NO_TIMESTAMP
    first_unstable: int = -1
    segments: tuple[Segment, ...] = ()
    epochs: tuple[Epoch, ...] = ()
    producers: dict[int, ProducerEntry] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    bytes_scanned: int = 0
    bytes_cut: int = 0


def recover(
    directory: StrPath,
    config: IndexConfig,
    *,
    recovery_point: int = 0,
    log_start: int = 0,
    clean: bool = False,
    on_corruption: Literal["refuse", "cut"] = "refuse",
    restarted: bool = False,
    compacted_upto: int = 0,
    files: Files = FILES,
) -> Recovered:
    """Opens the partition directory and repairs it as described above; creates the first segment if there is none.

    `recovery_point` and `log_start` are the log directory's checkpoints (0 when unknown), `clean` its
    clean-shutdown mark; `restarted`: the machine has been down since; `compacted_upto`: there may be gaps below, also
    when the topic is no longer compacted. Raises CorruptLog, and OSError from the disk.
    """
    work = _Recovery(Path(directory), config.index_interval_bytes, clean, on_corruption == "cut", files)
    work.unsynced_from = recovery_point if restarted and not clean else None
    work.tidy()
    work.allow_gaps(config.compacted or config.retention_unknown, compacted_upto, log_start)
    work.open(recovery_point, log_start)
    work.load_state(log_start)
    return work.finish(recovery_point)


class _Recovery:
    """One call of `recover`."""

    def __init__(self, directory: Path, interval: int, clean: bool, cut: bool, files: Files) -> None:
        self.directory = directory
        self.interval = interval
        self.clean = clean
        self.cut = cut
        self.files = files
        self.out = Recovered()
        self.notes = self.out.notes
        self.sizes: dict[int, int] = {}  # base offset → bytes, rising
        self.snapshots: list[int] = []  # offsets of snapshots not known to be broken, rising
        self.knew_producers = False  # whether there was a snapshot at the start
        self.state = LogState(EpochCache(), {}, 0)
        self.gaps_upto = 0  # below, compaction may have left gaps
        self.clean_upto = 0  # below, no transaction is open
        self.unsynced_from: int | None = None  # from this offset on a power failure may have lost any data
        self.scanned_from: int | None = None  # base from which on every batch was checked
        self.epochs_as_read: tuple[Epoch, ...] | None = None

    # --- the segments ---

    def tidy(self) -> None:
        """Tidies the directory and records its segments."""
        self.sizes, self.snapshots = tidy(self.directory, self.notes, files=self.files)
        self.knew_producers = bool(self.snapshots)

    def allow_gaps(self, compacted: bool, compacted_upto: int, log_start: int) -> None:
        """Sets the offsets below which compaction may have left gaps, and has ended all transactions.

        A cleaner checkpoint beyond the log's end is damaged, and is ignored, as by Kafka's cleaner: limited to the end
        it would still excuse any loss of a power failure in the middle of the log. The segments that the cleaner has
        read, and the one after them, are on the disk before its checkpoint is written, and a truncation lowers the
        checkpoint first (broker.process.checkpoint_lock): so a valid checkpoint is never beyond the end.
        """
        if compacted_upto > max(self.sizes, default=0) and compacted_upto > self._end():
            compacted_upto = 0
        self.gaps_upto = 1 << 63 if compacted else max(0, compacted_upto)
        start = max(log_start, min(self.sizes, default=0))  # the log start checkpoint may lag behind deletions
        self.clean_upto = compacted_upto if compacted_upto > start else 0

    def _end(self) -> int:
        """The end of the last segment by its headers, which may be of a torn write; 0 without a segment."""
        if not self.sizes:
            return 0
        base, end = max(self.sizes), 0
        with FILES.opened(names.segment_path(self.directory, base), os.O_RDONLY) as fd:
            for batch in Scan(fd, check=False, least_offset=base):
                end = batch.last_offset + 1
        return max(base, end)

    def open(self, recovery_point: int, log_start: int) -> None:
        """Checks and repairs the segments, and describes the active one."""
        self.scanned_from = self._first_unsure(recovery_point)
        trusted = [base for base in self.sizes if self.scanned_from is None or base < self.scanned_from]
        epochs, self.epochs_as_read = trusted_state.read_epochs(self.directory, trusted, self.clean, self.notes)
        self.state.epochs = epochs
        self._mend_trusted()
        active = self._scan_unsure() if self.scanned_from is not None else None
        if active is not None and log_start <= active.next_offset < recovery_point and self._trusted_some():
            self.notes.append(f"the log ends before its recovery point {recovery_point}: checked all of it")
            active = self._scan_unsure()
        if active is None and self.sizes:
            active = last_segment.as_it_is(self.directory, *list(self.sizes.items())[-1], self.interval)
        if active is None or active.next_offset < log_start:
            active = self._start_over(log_start, active)
        self._describe(active)
        self.out.log_start = max(log_start, next(iter(self.sizes)))

    def _trusted_some(self) -> bool:
        """Stops trusting any segment; returns whether some were trusted.

        A recovery point beyond the log's end is damaged, or synced records are missing: truncations lower it first
        (broker.process.checkpoint_lock). It is then worthless for other segments too, but it does not excuse missing
        data there: damage in them is refused, as if the machine had not been down.
        """
        trusted = self.scanned_from != min(self.sizes)
        self.scanned_from = min(self.sizes)
        return trusted

    def _first_unsure(self, recovery_point: int) -> int | None:
        """Base of the first segment to check batch by batch, None when all can be trusted."""
        if not self.sizes:
            return None
        bases = list(self.sizes)
        if not self.clean:
            return max((base for base in bases if base <= recovery_point), default=bases[0])
        if last_segment.looks_right(self.directory, bases, self.sizes[bases[-1]], self.gaps_upto):
            return None
        self.notes.append(f"the segment at offset {bases[-1]} does not end as a clean stop leaves it: checked it")
        return bases[-1]

    def _mend_trusted(self) -> None:
        """Rebuilds missing or implausible indexes of trusted segments; records stay as they are."""
        bases = list(self.sizes)
        upto = bases.index(self.scanned_from) if self.scanned_from is not None else len(bases) - 1
        state, reached = LogState(EpochCache(), {}, 0), -1
        for base, following in pairwise(bases[: upto + 1]):
            if sealed_segment.looks_right(self.directory, bases, base, following, self.gaps_upto):
                if not self.sizes[base]:  # empty indexes fit it, but an empty segment is never sealed
                    self._record_gap(base, following)
                continue
            if reached != base:
                state = self._producers_at(base)
            scanned, reached = scan_segment(self.directory, base, self.interval, state), following
            if scanned.bad is not None:  # below the recovery point nothing can be torn
                self._damaged(scanned)
                self.scanned_from = base
                return
            self._record_gap(scanned.next_offset, following)
            self._write_indexes(scanned, sealed=True)
            scanned.write_txn_index(self.directory, files=self.files)
            self.notes.append(f"rebuilt the indexes of the segment at offset {base}")

    def _scan_unsure(self) -> Scanned | None:
        """Checks the segments from `scanned_from` on, up to the end or the first bad batch."""
        bases = [base for base in self.sizes if base >= (self.scanned_from or 0)]
        self._load_producers(bases[0])
        scanned = None
        for base, following in zip(bases, [*bases[1:], None], strict=True):
            if base not in self.sizes:  # damage or a torn write has ended the log before it
                break
            if scanned is not None:
                self._record_gap(scanned.next_offset, base)
            scanned = scan_segment(self.directory, base, self.interval, self.state)
            self.out.bytes_scanned += scanned.end
            if following is not None and self._lacks_its_end(scanned, following):
                scanned.bad = BadBatch(scanned.end, f"its end is missing, up to offset {following - 1}")
            if scanned.bad is not None:
                self._damaged(scanned)
            self._write_indexes(scanned, sealed=base != list(self.sizes)[-1])
            scanned.write_txn_index(self.directory, files=self.files)
        return scanned

    def _may_be_lost(self, offset: int) -> bool:
        """Whether the records from `offset` may not have reached the disk before the machine went down."""
        return self.unsynced_from is not None and offset >= self.unsynced_from

    def _lacks_its_end(self, scanned: Scanned, following: int) -> bool:
        """Whether a power failure lost the last batches of a segment and kept the next segment."""
        ends_early = scanned.bad is None and self.gaps_upto <= scanned.next_offset < following
        return ends_early and self._may_be_lost(scanned.next_offset)

    def _record_gap(self, end: int, following: int) -> None:
        """Notes missing offsets: without compaction each segment begins at the end of the one before."""
        if self.gaps_upto <= end < following:
            self.notes.append(f"offsets {end} to {following - 1} are missing before the segment at offset {following}")

    def _write_indexes(self, scanned: Scanned, sealed: bool) -> None:
        if sealed:
            scanned.indexes.close()
        scanned.write_indexes(self.directory, files=self.files)

    def _damaged(self, scanned: Scanned) -> None:
        """Ends the log at the bad batch of `scanned`: cuts a torn write, refuses damage or puts it aside."""
        assert scanned.bad is not None
        path = names.segment_path(self.directory, scanned.base)
        later = [(base, size) for base, size in self.sizes.items() if base > scanned.base]
        follows = damage.intact_after(path, scanned, later)
        if follows and not self.cut and not self._may_be_lost(scanned.next_offset):
            raise CorruptLog(path, scanned, follows)
        if follows:
            damage.set_aside(path, scanned.end, [base for base, _ in later], files=self.files)
        gone = damage.cut_off(path, scanned.end, files=self.files)
        for base, _ in later:
            damage.remove_segment(self.directory, base, files=self.files)
            del self.sizes[base]
        self.sizes[scanned.base] = scanned.end
        self.out.bytes_cut += gone
        self.notes.append(_cut_message(path, scanned, gone, follows, self._may_be_lost(scanned.next_offset)))

    def _start_over(self, log_start: int, active: Scanned | None) -> Scanned:
        """Replaces a log that ends before `log_start` by an empty one that begins there."""
        if active is not None:
            self.notes.append(f"the log ended at offset {active.next_offset}, before its start {log_start}: removed it")
        for base in list(self.sizes):
            damage.remove_segment(self.directory, base, files=self.files)
        prune_snapshots(self.directory, self.snapshots, -1, files=self.files)
        self.snapshots.clear()
        self.state = LogState(EpochCache(), {}, log_start)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        self.files.close(self.files.open(names.segment_path(self.directory, log_start), flags))
        fresh = Scanned(log_start, index_files.IndexBuilder(log_start, self.interval), next_offset=log_start)
        fresh.write_indexes(self.directory, files=self.files)
        self.sizes, self.scanned_from = {log_start: 0}, log_start
        return fresh

    def _describe(self, active: Scanned) -> None:
        out, indexes = self.out, active.indexes
        out.leo, out.active_base, out.active_size = active.next_offset, active.base, active.end
        out.index_entries = len(indexes.offsets) // OFFSET_ENTRY.size
        out.time_entries = len(indexes.times) // TIME_ENTRY.size
        out.max_timestamp, out.max_timestamp_offset = indexes.max_timestamp, indexes.max_offset
        out.index_pending = active.end - indexes.last_indexed
        out.active_first_timestamp = active.first_timestamp

    # --- leader epochs and producers ---

    def _load_producers(self, upto: int) -> None:
        contents, cache = Contents(self.sizes, self.snapshots), self.state.epochs
        self.state = trusted_state.load_producers(self.directory, contents, upto, cache, self.notes, self.files)

    def _producers_at(self, base: int) -> LogState:
        """The state from which aborted transactions of a trusted segment can be found again."""
        contents = Contents(self.sizes, self.snapshots)
        return trusted_state.load_producers(self.directory, contents, base, EpochCache(), self.notes, self.files)

    def load_state(self, log_start: int) -> None:
        """Producers and epochs as of the log's end."""
        if self.scanned_from is None and self.knew_producers:  # also when all were broken: then from the log
            self._load_producers(self.out.leo)
        trusted_state.forget_compacted(self.directory, self.sizes, self.state, self.out.leo, self.clean_upto)
        # A clean stop without any snapshot means that there was no producer state, as in Kafka.
        self.state.epochs.truncate_from_end(self.out.leo)
        self.state.epochs.truncate_from_start(log_start)
        if self.state.epochs.entries != self.epochs_as_read:
            self.state.epochs.write(self.directory, files=self.files)
        prune_snapshots(self.directory, self.snapshots, self.out.leo, self.sizes, files=self.files)

    def finish(self, recovery_point: int) -> Recovered:
        out = self.out
        out.recovery_point = out.leo if self.scanned_from is None else min(recovery_point, out.leo)
        out.segments = tuple(Segment(*item) for item in self.sizes.items())
        out.epochs = self.state.epochs.entries
        out.producers = self.state.replay.producers
        out.first_unstable = self.state.replay.first_unstable()
        return out


def _cut_message(path: Path, scanned: Scanned, gone: int, follows: str, lost: bool) -> str:
    assert scanned.bad is not None
    kind = "cut a torn write"
    if follows:
        what = "writes that the machine's crash left incomplete" if lost else "damage"
        kind = f"cut {what} ({follows}; kept as {names.CORRUPT} files)"
    return (
        f"{path.name}: {kind} at byte {scanned.end}, offset {scanned.next_offset}: {gone} bytes, {scanned.bad.reason}"
    )
