"""Truncating the active segment by its indexes, without reading the part that stays. Caller holds the lock.

This reads the headers after the last remaining index entry and those of the removed batches: the time depends on how
much is removed, not on the segment's size (for producers see storage.log.producers_at_offset). The part that stays was
checked when it was received.

Crash rule: storage.log.truncate's. All files changed here after the log are derived from it: after a death, a recovery
of the segment repairs them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from odradek.ipc import slots
from odradek.protocol import batch as wire
from odradek.storage.files import names
from odradek.storage.files.durable import truncate as cut_file
from odradek.storage.log import producers_at_offset, read, roll, transactions
from odradek.storage.producers import snapshots
from odradek.storage.segment.index import OFFSET_ENTRY, TIME_ENTRY

if TYPE_CHECKING:
    from odradek.ipc.producers import ProducerEntry
    from odradek.ipc.slots import Fields, SlotState
    from odradek.storage.log.partition import Partition


class SegmentEnd(NamedTuple):
    """The new end of the active segment, in bytes and offsets, and the values of its indexes and its slot then."""

    position: int
    leo: int
    index_entries: int
    index_pending: int
    time_entries: int
    time_last: int
    max_timestamp: int
    max_timestamp_offset: int
    producers: list[ProducerEntry]


def find(partition: Partition, values: Fields, offset: int) -> SegmentEnd | None:
    """The cut that removes all batches whose last offset is `offset` or higher; None if it has to read the segment.

    Changes nothing. Raises OSError and EOFError from reads.
    """
    base, size = values[slots.F_ACTIVE_BASE], values[slots.F_ACTIVE_SIZE]
    files = partition.active(base, values[slots.F_GENERATION])
    entries, start, key = files.index.ending_before(offset - base, values[slots.F_INDEX_ENTRIES])
    if start:
        read.check_entry(partition, base, files.log, start, size, offset)
    times = files.time.upto(key, values[slots.F_TIME_ENTRIES])
    last_time, relative = files.time.last(times)
    top, position, leo, end = (last_time, base + relative), -1, base, start
    behind = producers_at_offset.LaterWrites(set(), set())
    for at, header in read.batch_headers(files.log, start, size):
        last, end = header[0] + header[6], at + header[1] + wire.LOG_OVERHEAD
        if position < 0 and last < offset:
            leo, top = last + 1, top if header[8] <= top[0] else (header[8], last)
            continue
        position = at if position < 0 else position
        if header[9] >= 0:
            behind.record(header)
    if position < 0 or end != size:
        return None
    producers = producers_at_offset.entries_at(partition, values, position, leo, behind)
    return SegmentEnd(position, leo, entries, position - start, times, last_time, *top, producers)


def carry_out(partition: Partition, state: SlotState, cut: SegmentEnd) -> SlotState:
    """Cut the files; returns the state to publish, except high watermark and recovery point.

    The producers get a new generation of their table: the state that an append has cached belongs to another log.
    """
    path = os.path.join(partition.directory, names.offset_name(state.active_base))
    cut_file(path + names.LOG, cut.position, sync=False)
    cut_file(path + names.INDEX, cut.index_entries * OFFSET_ENTRY.size, sync=False)
    cut_file(path + names.TIME_INDEX, cut.time_entries * TIME_ENTRY.size, sync=False)
    transactions.cut(path + names.TXN_INDEX, cut.leo)
    _remove_snapshots(partition.directory, cut.leo)
    begun = (one.txn_first for one in cut.producers if one.txn_first >= 0)
    generation = partition.producers.replace(cut.producers, state.pstate_gen, partition.config.producers_max)
    return state._replace(
        generation=state.generation + 1,
        log_start=min(state.log_start, cut.leo),
        leo=cut.leo,
        latest_epoch=roll.cut_epochs(partition, cut.leo),
        active_size=cut.position,
        active_since=state.active_since if cut.position else -1,
        index_entries=cut.index_entries,
        index_pending=cut.index_pending,
        time_entries=cut.time_entries,
        time_last=cut.time_last,
        max_timestamp=cut.max_timestamp,
        max_timestamp_offset=cut.max_timestamp_offset,
        aborted=transactions.count(partition.directory),
        pstate_leo=cut.leo,
        pstate_gen=generation,
        unstable=min(begun, default=-1),
    )


def _remove_snapshots(directory: str, upto: int) -> None:
    for offset in snapshots.snapshot_offsets(directory):
        if offset > upto:
            os.unlink(names.segment_path(directory, offset, names.SNAPSHOT))
