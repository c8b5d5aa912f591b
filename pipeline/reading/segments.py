"""Read a partition from its leader's files, where the leader is on this machine: no socket, no CPU of the broker.

storage.tools.offline_reader says what holds without the broker's lock. It holds for committed records, and a range has
no others: its end came from the leader, as the high watermark or (read_committed) the last stable offset. Below that
every transaction is decided, and the row of an aborted one was in a `.txnindex` before its marker was published; so the
rows present when a log file is opened are all that its records need. A row whose marker was not yet published belongs
to a transaction that was open then, which lies wholly behind the range.

A segment is read to its end through one descriptor: whatever retention, compaction or topic deletion does to its name,
its bytes stay. Names are looked up again only between two segments, at the offset where the next one began when this
one was opened. What compaction has put there meanwhile has the same offsets, and no batch crosses such a border, so
nothing is lost or read twice.

`NotLocal` says nothing about the records: its cause is a disk, a directory that moved, a log that is too short or
damaged, or one that begins later (with tiered storage the leader may have the rest). The leader decides, over the wire.

Files are read in pieces, not mapped. In a mapped file a failing disk, or a truncation by another program, raises
SIGBUS: Python dies without a message, and MADV_POPULATE_READ only helps until the truncation. A map saves little, too:
it costs 0.03 s/GB, a copy into memory that stays in the processor's cache (half a MiB for each core there) 0.11, one
into 8 MiB 0.18. What follows costs less from the cache as well: a checksum 0.16 instead of 0.18, the copy of the values
0.07 to 0.13 instead of 0.20. So pieces are small where a piece costs few steps of Python, in large batches of like
records.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from odradek.pipeline.batches import Hole, whole
from odradek.pipeline.decoding.rooms import ROOM, shared
from odradek.pipeline.decoding.selection import LARGE_BATCH
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.types import Chunk, Pace, Range, ReplicaPlace
from odradek.pipeline.wire.holes import Holes
from odradek.protocol.batch import HEADER_SIZE
from odradek.storage.dirs import logdirs
from odradek.storage.files import names
from odradek.storage.files.checkpoints import CheckpointError, read_meta_properties, read_partition_metadata
from odradek.storage.files.openfile import OpenFile
from odradek.storage.producers.producer_state import AbortedTxn
from odradek.storage.tools.offline_reader import OfflineReader, OffsetBelowLogStart, Segment

PIECE = 8 << 20  # bytes read at once
HOT = 1 << 20  # the same of large batches of like records: they stay in the processor's cache until they are decoded


class NotLocal(PipelineError):
    """The files cannot be read, or no longer: read over the wire.

    `offset` is where to continue; `damaged`: the files hold data there that cannot be a batch.
    """

    def __init__(self, what: Range, offset: int, why: object, damaged: bool = False) -> None:
        super().__init__(f"{what.topic}-{what.partition}: offset {offset} cannot be read from the files: {why}")
        self.offset, self.damaged = offset, damaged


def usable(place: ReplicaPlace, cluster_id: str, leader_id: int, topic_id: bytes) -> bool:
    """Whether the directory is readable here and belongs to the leader's replica, whose broker runs on this machine.

    A copy, or the remains of a broker that has moved, may have the same ids and the same path, but no process holds its
    lock. Raises nothing: an unreadable directory is not usable.
    """
    directory = Path(place.directory)
    name = names.parse_partition_dir(directory.name)
    if name is None or name.mark or not directory.is_absolute():  # -delete, -stray, -future
        return False
    try:
        return (
            _owner(directory.parent) == (cluster_id, leader_id)
            and read_partition_metadata(directory) == topic_id
            and logdirs.is_in_use(directory.parent)
            and _is_readable(directory)
        )
    except (OSError, ValueError, CheckpointError):
        return False


def _owner(log_dir: Path) -> tuple[str | None, int | None]:
    """The ids of the cluster and the broker that own a log directory."""
    identity = read_meta_properties(log_dir)
    return (identity.cluster_id, identity.node_id) if identity is not None else (None, None)


def _is_readable(directory: Path) -> bool:
    """Segments are readable by their owner only, even where others may list them."""
    last = max(name for name in os.listdir(directory) if name.endswith(names.LOG))
    return OpenFile(os.path.join(directory, last)).fd >= 0


def read(
    directory: str, what: Range, committed: bool, holes: Holes, kept: bool = False, pace: Pace | None = None
) -> Iterator[Chunk]:
    """The batches with records of the range, from those that hold its first to those that hold its last, as chunks.

    The next chunk takes the memory of the last one, unless that is to be `kept`.
    `committed`: with the transactions to skip; the range's end must then be at or before a last stable offset. `holes`
    says whether offsets may be in no batch; `pace` how large chunks are. Raises NotLocal, after the chunks before that.
    """
    offset, where, buffer, pace = what.start, directory, _Buffer(kept), pace or Pace(alike=False)
    try:
        files = OfflineReader(directory, committed) if offset < what.end else None
        while files is not None and offset < what.end:
            segment, begin = files.segment(offset), offset
            where = os.path.join(directory, names.offset_name(segment.base) + names.LOG)
            for chunk in _chunks(segment, offset, what.end, holes, buffer, pace):
                offset = chunk.until
                if chunk.data:
                    yield chunk
            if segment.following is not None:
                _explain(holes, [(offset, min(segment.following, what.end))], -1)
                offset = max(offset, segment.following)
            elif offset == begin:  # also at the second attempt
                raise EOFError(f"its log ends there, before offset {what.end}")
    except OffsetBelowLogStart as log:
        raise NotLocal(what, offset, f"{directory} now starts at offset {log.first}") from None
    except (OSError, EOFError, ValueError) as why:
        raise NotLocal(what, offset, f"{where}: {why}", isinstance(why, ValueError)) from why


class _Buffer:
    """Memory for one piece after the other: fresh memory for each would double the time of reading.

    Pieces that are `kept` lie one behind the other in rooms, which are used again when nothing refers to them. What is
    less than half a room at the end of a file gets memory of its size.
    """

    def __init__(self, kept: bool) -> None:
        self._rooms = shared() if kept else None
        self._room = np.empty(0, np.uint8)
        self._used = 0

    def filled(self, file: OpenFile, position: int, size: int) -> memoryview:
        """At most `size` bytes of the file, fewer at its end; valid until the next call, apart from what is kept."""
        rest = size if self._rooms is None else max(0, os.fstat(file.fd).st_size - position)
        size = min(size, rest)
        if self._used + size > len(self._room):
            self._room, self._used = self._memory(size, rest), 0
        room = self._room[self._used : self._used + size].data
        return room[: os.preadv(file.fd, [room], position)]

    def _memory(self, size: int, rest: int) -> np.ndarray:
        if self._rooms is None:
            return np.empty(max(size, HOT), np.uint8)
        return self._rooms.take(size) if 2 * rest >= ROOM else np.empty(rest, np.uint8)

    def keep(self, size: int) -> None:
        """The first bytes of the last piece are those of a chunk."""
        if self._rooms is not None:
            self._used += size


def _chunks(segment: Segment, offset: int, end: int, holes: Holes, buffer: _Buffer, pace: Pace) -> Iterator[Chunk]:
    """The segment's batches with offsets in [offset, end); the last chunk may be an empty one that leads to `end`."""
    position, size, least = segment.position, HEADER_SIZE, 0 if segment.position else segment.base
    while offset < end:
        data = buffer.filled(segment.file, position, size)
        found = whole(data, offset, end, least, behind=segment.following is not None)
        if found.until > offset:
            _explain(holes, found.holes, -1 if least == offset else offset)
            if found.until >= end and not found.bounded and segment.following is not None:
                if len(data) == size:  # the header behind may be there
                    size += HEADER_SIZE
                    continue
                _check_behind(holes, found.until, segment.following)
            buffer.keep(found.upto)
            yield Chunk(data[found.begin : found.upto], _aborted(segment.aborted, offset, found.until), found.until)
            offset = least = found.until
        elif not found.upto and len(data) < size:  # end of the file
            if data and segment.following is not None:
                raise EOFError(f"damaged at byte {position}")
            return
        position, size = position + found.upto, _next(found.wanted, pace)


def _next(wanted: int, pace: Pace) -> int:
    """How much to read where the next batch has `wanted` bytes: mostly whole batches and the header behind them.

    What is behind the last whole batch is read again; batches in a row mostly have one size. More than a piece, and so
    than a room, is only read for a batch that does not fit.
    """
    piece = HOT if wanted >= LARGE_BATCH and pace.alike else PIECE
    return max(1, (piece - HEADER_SIZE) // max(wanted, 1)) * wanted + HEADER_SIZE


def _check_behind(holes: Holes, until: int, following: int) -> None:
    """Check that the last batch of a sealed segment ends where the next segment begins."""
    if until > following:
        raise ValueError(f"damaged: a batch up to offset {until - 1} before the segment at {following}")
    _explain(holes, [(until, following)], -1)


def _explain(holes: Holes, found: list[Hole], begin: int) -> None:
    """EOFError for holes that are wrong or unproven."""
    found = [hole for hole in found if hole[0] < hole[1]]
    if found and not (holes.believed and holes.proven(found, begin)):
        raise EOFError(f"no batch has offsets {found[0][0]} to {found[0][1] - 1}")


def _aborted(rows: list[AbortedTxn], offset: int, until: int) -> tuple[tuple[int, int], ...]:
    """(producer id, first offset) of those with records in [offset, until), in order."""
    rows = rows[: bisect_left(rows, until, key=lambda row: row.first_offset)]
    return tuple((row.producer_id, row.first_offset) for row in rows if row.last_offset >= offset)
