"""Producer snapshots: `<20 digits>.snapshot`, the producers' state below that offset.

Layout, big-endian: version h (1), CRC-32C I (of all that follows), count i, then 46 bytes per producer:
producer id q, epoch h, last sequence i, last offset q, offset delta i, timestamp q,
coordinator epoch i, first offset of its open transaction q (-1 without one). It keeps only the last
batch of a producer; only a replay of the log restores earlier ones.

Owner: the process that holds the partition's lock writes one at each roll and at a clean stop. Crash
rule: an unreadable one is removed and the one before it is used, with more of the log to replay.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from struct import Struct, error
from typing import TYPE_CHECKING

from odradek.ipc import renewal
from odradek.protocol.crc import crc32c
from odradek.storage.files import names
from odradek.storage.files.durable import FILES, Files, StrPath, read_file, remove, replace
from odradek.storage.producers.producer_state import ProducedBatch, ProducerEntry, previous_sequence

if TYPE_CHECKING:
    from odradek.ipc.producers import ProducerTable

VERSION = 1
HEAD = Struct(">hI")
COUNT = Struct(">i")
ENTRY = Struct(">qhiqiqiq")
KEPT = 3


class SnapshotError(Exception):
    """A snapshot that cannot be used; the message names the file and why."""


def encode(producers: Mapping[int, ProducerEntry]) -> bytes:
    """The contents of a snapshot file."""
    body = COUNT.pack(len(producers)) + b"".join(_pack(*item) for item in renewal.along(producers.items()))
    return HEAD.pack(VERSION, crc32c(body)) + body


def _pack(producer_id: int, entry: ProducerEntry) -> bytes:
    last = entry.last
    sequence, offset, delta = (
        (last.last_seq, last.last_offset, last.last_offset - last.first_offset) if last else (-1, -1, 0)
    )
    return ENTRY.pack(
        producer_id,
        entry.epoch,
        sequence,
        offset,
        delta,
        entry.timestamp,
        entry.coordinator_epoch,
        entry.txn_first_offset,
    )


def encode_table(table: ProducerTable | None) -> bytes:
    """The contents of a snapshot file of the shared table's producers. Caller holds the partition's lock."""
    rows = [ENTRY.pack(*row) for row in table.last_batches()] if table is not None else []
    body = COUNT.pack(len(rows)) + b"".join(rows)
    return HEAD.pack(VERSION, crc32c(body)) + body


def decode(data: bytes) -> dict[int, ProducerEntry]:
    """The producers of a snapshot's contents; SnapshotError when they are not intact."""
    _check(data)
    try:
        (count,) = COUNT.unpack_from(data, HEAD.size)
        at = HEAD.size + COUNT.size
        return dict(_unpack(data, at + index * ENTRY.size) for index in renewal.along(range(count)))
    except error:
        raise SnapshotError(f"{len(data)} bytes are too few") from None


def _check(data: bytes) -> None:
    try:
        version, crc = HEAD.unpack_from(data)
    except error:
        raise SnapshotError(f"{len(data)} bytes are too few") from None
    if version != VERSION:
        raise SnapshotError(f"version {version}, known is {VERSION}")
    if crc32c(memoryview(data)[HEAD.size :]) != crc:
        raise SnapshotError("the checksum does not match")


def _unpack(data: bytes, at: int) -> tuple[int, ProducerEntry]:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator, txn = ENTRY.unpack_from(data, at)
    entry = ProducerEntry(epoch, coordinator, timestamp, txn)
    if offset >= 0:
        first = previous_sequence(sequence, delta) if sequence >= 0 else -1
        entry.batches.append(ProducedBatch(first, sequence, offset - delta, offset, timestamp, epoch))
    return producer_id, entry


def write_table(directory: StrPath, offset: int, table: ProducerTable | None) -> Path:
    """Writes the snapshot of all producers' state just below `offset`, not synced; returns its path.

    Caller holds the partition's lock.
    """
    path = names.segment_path(directory, offset, names.SNAPSHOT)
    replace(path, encode_table(table), sync=False)
    return path


def read_snapshot(path: StrPath) -> dict[int, ProducerEntry]:
    """The producers of the snapshot at `path`; SnapshotError when it is broken."""
    try:
        return decode(read_file(path))
    except SnapshotError as problem:
        raise SnapshotError(f"{path}: {problem}") from None


def snapshot_offsets(directory: StrPath) -> list[int]:
    """Offsets of all snapshots of a partition, rising."""
    return [file.offset for file in names.segment_files(directory) if file.kind == names.SNAPSHOT]


def newest_snapshot(
    directory: StrPath, offsets: list[int], upto: int, notes: list[str], *, files: Files = FILES
) -> tuple[int, dict[int, ProducerEntry]] | None:
    """(offset, producers) of the newest intact snapshot at `offsets`, at or below `upto`; None without one.

    Removes broken ones that it reads, also above `upto`, with a line in `notes`: the next start might use them. It
    also removes them, and missing ones, from `offsets`.
    """
    for offset in reversed(offsets.copy()):
        path = names.segment_path(directory, offset, names.SNAPSHOT)
        try:
            data = read_file(path)
            if offset <= upto:
                return offset, _below(offset, decode(data))
            _check(data)
        except SnapshotError as problem:
            notes.append(f"removed a broken producer snapshot, {path}: {problem}")
            remove(path, files=files)
            offsets.remove(offset)
        except FileNotFoundError:
            offsets.remove(offset)
    return None


def _below(offset: int, producers: dict[int, ProducerEntry]) -> dict[int, ProducerEntry]:
    """`producers`; SnapshotError if one of them wrote at `offset` or later: then they are of another snapshot.

    Those of which only a marker is left get the highest offset that it can have.
    """
    for producer_id, entry in renewal.along(producers.items()):
        last = max(entry.last.last_offset if entry.last else -1, entry.txn_first_offset)
        if last >= offset:
            raise SnapshotError(f"producer {producer_id} is at offset {last}, not below it")
        if entry.coordinator_epoch >= 0 and entry.last is None:
            entry.marked_offset = offset - 1
    return producers


def prune_snapshots(
    directory: StrPath, offsets: Sequence[int], upto: int, bases: Collection[int] = (), *, keep: int = KEPT,
    files: Files = FILES,
) -> None:  # fmt: skip
    """Removes those snapshots at `offsets` that are above `upto` (the log's end), and others without a segment base.

    Those at `bases` stay, as in Kafka: for a replay from any segment, only they have the producers' state from deleted
    segments. So do the `keep` newest.
    """
    valid = [offset for offset in offsets if offset <= upto]
    kept = {*valid[-keep:], *(offset for offset in valid if offset in bases)}
    for offset in set(offsets) - kept:
        remove(names.segment_path(directory, offset, names.SNAPSHOT), files=files)
