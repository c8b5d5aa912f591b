"""The producers' state as of an offset in the active segment, from the current state. Caller holds the lock.

The table has the last batches of each producer: if one of them lies before the offset, it gives the producer's state
there. For others (all known batches lie behind, or a marker does) this reads the batches before the offset: from as
near as suffices, by the segment's index, else from the newest snapshot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from odradek.ipc import slots
from odradek.protocol import batch as wire
from odradek.storage.log import read
from odradek.storage.log.sequences import recovered
from odradek.storage.recovery import trusted_state
from odradek.storage.recovery.crash_cleanup import Contents
from odradek.storage.recovery.rebuild import LogState, walk_headers
from odradek.storage.segment.epochs import EpochCache

if TYPE_CHECKING:
    from odradek.ipc.producers import ProducerEntry
    from odradek.ipc.slots import Fields
    from odradek.storage.files.openfile import OpenFile
    from odradek.storage.log.partition import Partition

_WINDOW = 64 << 10  # bytes before the offset that are read first


class LaterWrites(NamedTuple):
    """Producers that wrote behind the offset: `begun` a first batch; `ended` a transaction, or without sequences."""

    begun: set[int]
    ended: set[int]

    def record(self, header: tuple[int, ...]) -> None:
        """Record a batch of a producer."""
        if header[5] & wire.CONTROL or header[11] < 0:
            self.ended.add(header[9])
        elif header[10] == 0 == header[11]:
            self.begun.add(header[9])


def entries_at(
    partition: Partition, values: Fields, position: int, offset: int, behind: LaterWrites
) -> list[ProducerEntry]:
    """All producers as of `offset`, at which a batch begins, at byte `position`. Raises OSError."""
    table = partition.producers.table(values[slots.F_PSTATE_GEN])
    kept, unknown = [], set(behind.ended)  # also those that the table has dropped since: their transactions are open
    for entry in table.entries() if table is not None else ():
        unknown.discard(entry.producer_id)
        former = None if entry.producer_id in behind.ended else _without(entry, offset)
        if former is not None:
            kept.append(former._replace(marked=min(former.marked, offset - 1)))  # a start may have guessed a higher one
        elif not _is_new(entry, offset, behind):
            unknown.add(entry.producer_id)
    return kept + _read(partition, values, position, offset, unknown) if unknown else kept


def _without(entry: ProducerEntry, offset: int) -> ProducerEntry | None:
    """A producer without its batches from `offset` on; none of its transactions ended behind that offset.

    None when the table does not have its state then: all known batches are removed, or its transaction began behind the
    offset, so that its last write before was a marker, or may have been one, whose time is only in the log.
    """
    if not entry.batches or entry.batches[-1].last_offset < offset:
        return entry
    left = tuple(one for one in entry.batches if one.last_offset < offset)
    if not left or entry.txn_first >= offset or entry.coordinator_epoch >= 0:
        return None
    return entry._replace(batches=left, timestamp=left[-1].timestamp)


def _is_new(entry: ProducerEntry, offset: int, behind: LaterWrites) -> bool:
    """Whether it wrote nothing before the offset, not even a marker; sequences wrap to 0 after 2^31 records."""
    earlier = bool(entry.batches) and entry.batches[0].last_offset < offset
    earlier |= 0 <= entry.txn_first < offset  # by a batch without sequences, which the entry does not list
    return entry.producer_id in behind.begun and entry.coordinator_epoch < 0 and not earlier


def _read(
    partition: Partition, values: Fields, position: int, offset: int, producer_ids: Collection[int]
) -> list[ProducerEntry]:  # fmt: skip
    files = partition.active(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION])
    state = LogState(EpochCache(), {}, 0)
    window = _WINDOW
    base = values[slots.F_ACTIVE_BASE]
    while start := files.index.boundary_before(max(position - window, 0), values[slots.F_INDEX_ENTRIES]):
        read.check_entry(partition, base, files.log, start, position, offset)
        if _suffice(files.log, start, position, producer_ids):
            path = Path(partition.directory)
            walk_headers(path, base, state, position=start, upto=offset)
            break
        window *= 4
    else:
        state = _from_snapshot(partition, offset)
    found = state.replay.producers
    return recovered({producer: found[producer] for producer in producer_ids if producer in found})


def _suffice(file: OpenFile, start: int, end: int, producer_ids: Iterable[int]) -> bool:
    """Whether the batches between two positions suffice for all of `producer_ids`: a data batch each and, for a
    transactional producer, a marker, so that its open transaction begins behind that."""
    written, ended = set(), set()
    for _, header in read.batch_headers(file, start, end):
        if not header[5] & wire.CONTROL:
            written.add(header[9])
        if header[5] & wire.CONTROL or not header[5] & wire.TRANSACTIONAL:
            ended.add(header[9])
    return written.intersection(ended).issuperset(producer_ids)


def _from_snapshot(partition: Partition, offset: int) -> LogState:
    directory = Path(partition.directory)
    contents = Contents.of(directory)
    state = trusted_state.load_producers(directory, contents, offset, EpochCache(), [])
    trusted_state.forget_compacted(directory, contents.sizes, state, offset, 0)
    return state
