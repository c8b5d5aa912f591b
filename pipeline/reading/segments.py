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

Files are read in pieces, not mapped. In a mapped file a failing disk, or a truncation, raises SIGBUS: Python dies
without a message. The copy into memory that is used again takes 0.09 s/GB where it stays in the CPU's cache, 0.17 with
pieces of 8 MiB, and 0.29 into fresh memory; a checksum takes 0.17. Smaller pieces are slower all the same: each costs
some steps of Python, and the rest of a batch that does not fit is read again. Walking headers takes 0.12 µs a batch.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from odradek.pipeline.batches import Hole, whole
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.types import Chunk, Range, ReplicaPlace
from odradek.pipeline.wire.holes import Holes
from odradek.storage.dirs import logdirs
from odradek.storage.files import names
from odradek.storage.files.checkpoints import CheckpointError, read_meta_properties, read_partition_metadata
from odradek.storage.files.openfile import OpenFile
from odradek.storage.producers.producer_state import AbortedTxn
from odradek.storage.tools.offline_reader import OfflineReader, OffsetBelowLogStart, Segment

PIECE = 8 << 20  # bytes read at once


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


def read(directory: str, what: Range, committed: bool, holes: Holes, kept: bool = False) -> Iterator[Chunk]:
    """The batches with records of the range, from those that hold its first to those that hold its last, as chunks.

    The next chunk takes the memory of the last one, unless that is to be `kept`.
    `committed`: with the transactions to skip; the range's end must then be at or before a last stable offset. `holes`
    says whether offsets may be in no batch. Raises NotLocal, after the chunks before that.
    """
    offset, where, buffer = what.start, directory, _Buffer(kept)
    try:
        files = OfflineReader(directory, committed) if offset < what.end else None
        while files is not None and offset < what.end:
            segment, begin = files.segment(offset), offset
            where = os.path.join(directory, names.offset_name(segment.base) + names.LOG)
            for chunk in _chunks(segment, offset, what.end, holes, buffer):
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

    Pieces that are `kept` get memory of Arrow's pool, which has it again when the last array of a piece is gone.
    """

    def __init__(self, kept: bool) -> None:
        self._kept = kept
        self._room = np.empty(0 if kept else PIECE, np.uint8)

    def filled(self, file: OpenFile, position: int, size: int) -> memoryview:
        """At most `size` bytes of the file, fewer at its end; valid until the next call unless they are kept."""
        if self._kept:
            self._room = np.frombuffer(pa.allocate_buffer(size), np.uint8)
        elif size > len(self._room):
            self._room = np.empty(size, np.uint8)
        room = self._room.data[:size]
        return room[: os.preadv(file.fd, [room], position)]


def _chunks(segment: Segment, offset: int, end: int, holes: Holes, buffer: _Buffer) -> Iterator[Chunk]:
    """The segment's batches with offsets in [offset, end); the last chunk may be an empty one that leads to `end`."""
    position, size, least = segment.position, PIECE, 0 if segment.position else segment.base
    while offset < end:
        data = buffer.filled(segment.file, position, size)
        found = whole(data, offset, end, least, behind=segment.following is not None)
        if found.until > offset:
            _explain(holes, found.holes, -1 if least == offset else offset)
            if found.until >= end and not found.bounded and len(data) < size:
                _check_behind(holes, found.until, segment)
            yield Chunk(data[found.begin : found.upto], _aborted(segment.aborted, offset, found.until), found.until)
            offset = least = found.until
        elif not found.upto:
            if len(data) < size:  # end of the file
                if data and segment.following is not None:
                    raise EOFError(f"damaged at byte {position}")
                return
            size = found.wanted
        position += found.upto


def _check_behind(holes: Holes, until: int, segment: Segment) -> None:
    """Check that the last batch of a sealed segment ends where the next segment begins."""
    if segment.following is not None:
        if until > segment.following:
            raise ValueError(f"damaged: a batch up to offset {until - 1} before the segment at {segment.following}")
        _explain(holes, [(until, segment.following)], -1)


def _explain(holes: Holes, found: list[Hole], begin: int) -> None:
    """EOFError for holes that are wrong or unproven."""
    found = [hole for hole in found if hole[0] < hole[1]]
    if found and not (holes.believed and holes.proven(found, begin)):
        raise EOFError(f"no batch has offsets {found[0][0]} to {found[0][1] - 1}")


def _aborted(rows: list[AbortedTxn], offset: int, until: int) -> tuple[tuple[int, int], ...]:
    """(producer id, first offset) of those with records in [offset, until), in order."""
    rows = rows[: bisect_left(rows, until, key=lambda row: row.first_offset)]
    return tuple((row.producer_id, row.first_offset) for row in rows if row.last_offset >= offset)
