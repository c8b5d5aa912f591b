"""Finding records: from offsets and timestamps to slices of segment files.

No lock: the slot's fields, read once, say which data is valid. A file deleted meanwhile (retention) raises
FileNotFoundError: the caller reads the slot again and retries. Only batch headers are read, not records, and headers
only when no index entry or remembered position gives the answer.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.ipc import renewal, slots
from odradek.ipc.slots import F_ACTIVE_BASE, F_ACTIVE_SIZE, F_GENERATION, F_LEO
from odradek.protocol.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD
from odradek.storage.files.openfile import FileSlice, OpenFile
from odradek.storage.segment.index import OffsetIndex

if TYPE_CHECKING:
    from collections.abc import Iterator

    from odradek.storage.log.partition import Partition

Values = Sequence[int]

_SCAN = 65536
_REMEMBERED = 64
_NEAR = 64 << 20  # bytes before the log's end that were written recently


def fetch(
    partition: Partition, values: Values, offset: int, limit: int, max_bytes: int, whole: bool = True
) -> FileSlice | None:
    """Whole batches, starting with the one that holds `offset`, with records below offset `limit`.

    At most `max_bytes`; with `whole`, the first batch is returned even when it is larger. None when nothing
    fits or `offset` is at `limit`. `offset` must lie in [log start, limit].
    """
    if offset >= limit:
        return None
    base, position = locate(partition, values, offset)
    file, end, following = extent(partition, values, base, limit)
    while position >= end and following < limit:  # compaction removed the last offsets of that segment, or all of them
        base, position = partition.segment_of(following, values), 0
        file, end, following = extent(partition, values, base, limit)
    size = end - position
    if size <= 0:
        return None
    if size > max_bytes:
        size = _whole_batches(partition, values, base, file, position, end, max_bytes)
        if not size:
            if not whole:
                return None
            size = _first_batch(file, position)
        if position + size < end:
            _, _, _, whole_size = _files(partition, values, base)
            following = check_entry(partition, base, file, position + size, whole_size, following)
    _remember(partition, following, base, position + size)
    far = base != values[slots.F_ACTIVE_BASE] or values[slots.F_ACTIVE_SIZE] - position > _NEAR
    return FileSlice(file, position, size, following, far)


def end_of_log(partition: Partition, values: Values, offset: int, most: int) -> bytes | None:
    """All records from `offset` on, if a reader stopped there before and they fit in `most` bytes; else None."""
    partition.follow(values[F_GENERATION])
    known, files, base = partition.positions.get(offset), partition.active_files, values[F_ACTIVE_BASE]
    if known is None or files is None or base != known[0] or base != files.base:
        return None
    end, position = values[F_ACTIVE_SIZE], known[1]
    size = end - position
    if size > most or size <= 0:
        return None
    data = os.pread(files.log.fd, size, position)
    if len(data) != size:
        return None
    _remember(partition, values[F_LEO], base, end)
    return data


def locate(partition: Partition, values: Values, offset: int) -> tuple[int, int]:
    """(segment base, position) of the batch that holds `offset`, or of the next one if compaction left a gap.

    If that batch is in a later segment, the position is the end of the segment that would hold the offset.
    """
    partition.follow(values[slots.F_GENERATION])
    known = partition.positions.get(offset)
    if known is not None:
        base, position = known
        if base != values[slots.F_ACTIVE_BASE] and position >= partition.sealed(base).size:
            return partition.segment_of(offset, values), 0
        return known
    base = partition.segment_of(offset, values)
    index, entries, file, size = _files(partition, values, base)
    position = index.position_before(offset - base, entries)
    if position:
        check_entry(partition, base, file, position, size, offset)
    return base, _scan_to(file, position, size, offset)


def check_entry(partition: Partition, base: int, file: OpenFile, position: int, size: int, most: int) -> int:
    """The base offset of the batch at an indexed position; it must lie in its segment and be at most `most`.

    Else DamagedIndex: a wrong position leads into the middle of a batch, or past the wanted offset.
    """
    data = os.pread(file.fd, HEADER_SIZE, position) if position < size else b""
    if len(data) == HEADER_SIZE:
        header = HEADER.unpack(data)
        first: int = header[0]
        if base <= first <= most and header[3] in (0, 1, 2) and 0 < header[1] <= size - position - LOG_OVERHEAD:
            return first
    raise partition.damaged(base, f"no batch begins at byte {position} of segment {base}, as its index says")


def _files(partition: Partition, values: Values, base: int) -> tuple[OffsetIndex, int, OpenFile, int]:
    """A segment's index, its number of valid entries, its log and its valid size."""
    if base == values[slots.F_ACTIVE_BASE]:
        active = partition.active(base, values[slots.F_GENERATION])
        return active.index, values[slots.F_INDEX_ENTRIES], active.log, values[slots.F_ACTIVE_SIZE]
    sealed = partition.sealed(base)
    return sealed.index, sealed.index.entries, sealed.file, sealed.size


def extent(partition: Partition, values: Values, base: int, limit: int) -> tuple[OpenFile, int, int]:
    """(log file, end of the records below `limit` in it, offset that follows that end)."""
    _, _, file, size = _files(partition, values, base)
    if base == values[slots.F_ACTIVE_BASE]:
        if limit >= values[slots.F_LEO]:
            return file, size, values[slots.F_LEO]
    else:
        bases = partition.bases(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION])
        following = bases[bases.index(base) + 1]
        if limit >= following:
            return file, size, following
    return file, locate(partition, values, limit)[1], limit


def _scan_to(file: OpenFile, position: int, size: int, offset: int) -> int:
    """The position of the first batch at or after `position` whose last offset is not below `offset`."""
    for at, header in batch_headers(file, position, size):
        if header[0] + header[6] >= offset:
            return at
    return size


def batch_headers(file: OpenFile, position: int, end: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(position, header fields) of the batches in [position, end), read in large pieces."""
    data, start = b"", position
    while end - position >= HEADER_SIZE:
        if position + HEADER_SIZE > start + len(data):
            if data:
                renewal.renew()
            start = position
            data = os.pread(file.fd, min(_SCAN, end - position), position)
            if len(data) < HEADER_SIZE:
                return
        header = HEADER.unpack_from(data, position - start)
        yield position, header
        if header[1] <= 0:  # damage, which must not cause an endless loop
            return
        position += header[1] + LOG_OVERHEAD


def _whole_batches(
    partition: Partition, values: Values, base: int, file: OpenFile, position: int, end: int, max_bytes: int
) -> int:
    """The size of the whole batches from `position` that fit `max_bytes`, up to an indexed batch start if possible."""
    index, entries, _, _ = _files(partition, values, base)
    boundary = index.boundary_before(min(position + max_bytes, end), entries)
    if boundary > position:
        return boundary - position
    size = 0
    for at, header in batch_headers(file, position, end):
        reached = at + header[1] + LOG_OVERHEAD - position
        if reached > max_bytes:
            break
        size = reached
    return size


def _first_batch(file: OpenFile, position: int) -> int:
    header: tuple[int, ...] = HEADER.unpack(os.pread(file.fd, HEADER_SIZE, position))
    return header[1] + LOG_OVERHEAD


def _remember(partition: Partition, offset: int, base: int, position: int) -> None:
    """Cache the position where a reader stopped, for its next read."""
    positions = partition.positions
    if len(positions) >= _REMEMBERED:
        del positions[next(iter(positions))]
    positions[offset] = (base, position)


def raw(partition: Partition, values: Values, offset: int, max_bytes: int) -> bytes:
    """The batches from `offset` on as bytes, up to the log end; b"" at the end."""
    piece = fetch(partition, values, offset, values[slots.F_LEO], max_bytes)
    return b"" if piece is None else piece.read()
