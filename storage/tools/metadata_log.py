"""Reading KRaft's metadata log, `__cluster_metadata-0`: the newest valid snapshot, then the log after it.

    00000000000000000123-0000000007.checkpoint   a snapshot: the state after the log up to offset 123 (exclusive), of
                                                 leader epoch 7; batches between a header and a footer record
    00000000000000000000.log                     segments as in any partition; offsets have no gaps
    00000000000000000130.snapshot                producer state, here none: written only when the log ended at 130
    quorum-state                                 JSON; until kraft.version 1 it names the voters

As in Kafka's KafkaMetadataLog: a log that ends before its snapshot, or has an older epoch, is ignored (a crash came
between the snapshot's arrival and the truncation). Damage makes the log unreadable, also a torn end, which Kafka would
cut: nothing here distinguishes a record that was never committed from a log that lost its end, and with it the change
that made a topic's records stay. So does a missing end, if other files show that it existed.
Permitted reader: any process, while no process writes the log. Nothing here writes.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from odradek.protocol.batch import CONTROL
from odradek.protocol.records import batch_v2, control
from odradek.protocol.records.errors import RecordError
from odradek.storage.files import names
from odradek.storage.files.durable import FILES
from odradek.storage.segment.scan import Scan

DIRECTORY = names.partition_dir(names.KRAFT_METADATA, 0)
SNAPSHOT_HEADER, SNAPSHOT_FOOTER = 3, 4
_MALFORMED = (RecordError, ValueError, IndexError, struct.error)  # a malformed batch with a right checksum
_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class MetadataLogError(Exception):
    """The log cannot be read from a snapshot (or its beginning) to its end; the message says where and why."""


class SnapshotId(NamedTuple):
    """The end offset and leader epoch of a snapshot."""

    end: int
    epoch: int


class MetadataBatch(NamedTuple):
    """Values of a batch's records, or (type, value) of each in a `control` batch. `snapshot`: it is from a snapshot."""

    base_offset: int
    snapshot: bool
    values: Sequence[bytes | None]
    control: Sequence[tuple[int, bytes | None]]


def read(directory: Path) -> Iterator[MetadataBatch]:
    """All valid batches, in order. Raises MetadataLogError, also after yielding some."""
    try:
        yield from _read(directory)
    except (OSError, *_MALFORMED) as error:
        raise MetadataLogError(f"{directory}: {error}") from error


def _read(directory: Path) -> Iterator[MetadataBatch]:
    snapshot = _newest_valid(directory)
    if snapshot is not None:
        yield from _snapshot_batches(directory, snapshot)
    yield from _log_batches(directory, snapshot)


def voters(directory: Path) -> int | None:
    """The number of voters of the quorum in `quorum-state`; None when it is not there."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        named = json.loads(Path(directory, "quorum-state").read_bytes()).get("currentVoters")
        return len(named) if named else None
    return None


# -- snapshots


def _snapshots(directory: Path) -> list[SnapshotId]:
    """The snapshots on disk, the newest first; unfinished and deleted ones have other names."""
    found = (_SNAPSHOT.fullmatch(name) for name in os.listdir(directory))
    return sorted((SnapshotId(int(one[1]), int(one[2])) for one in found if one), reverse=True)


def _path(directory: Path, snapshot: SnapshotId) -> Path:
    return directory / f"{snapshot.end:020d}-{snapshot.epoch:010d}.checkpoint"


def _newest_valid(directory: Path) -> SnapshotId | None:
    return next((one for one in _snapshots(directory) if _is_valid(directory, one)), None)


def _is_valid(directory: Path, snapshot: SnapshotId) -> bool:
    """Whether a snapshot is whole: intact batches from a header to a footer, and nothing after it."""
    try:
        kinds = [batch.control[0][0] if batch.control else 0 for batch in _snapshot_batches(directory, snapshot)]
    except (MetadataLogError, *_MALFORMED):
        return False
    return bool(kinds) and kinds[0] == SNAPSHOT_HEADER and kinds[-1] == SNAPSHOT_FOOTER


def _snapshot_batches(directory: Path, snapshot: SnapshotId) -> Iterator[MetadataBatch]:
    path = _path(directory, snapshot)
    with FILES.opened(path, os.O_RDONLY) as fd:
        scan = Scan(fd)
        for batch in scan:
            yield _decoded(scan.payload(), batch.base_offset, batch.attributes, True)
    if scan.bad is not None:
        raise MetadataLogError(f"{path}: damaged at byte {scan.bad.position}: {scan.bad.reason}")


def _decoded(payload: bytes, base: int, attributes: int, snapshot: bool, since: int = 0) -> MetadataBatch:
    rows = [(key, value) for offset, _, key, value, _ in batch_v2.iterate(payload) if offset >= since]
    if attributes & CONTROL:
        return MetadataBatch(base, snapshot, (), [(control.read_key(key), value) for key, value in rows])
    return MetadataBatch(base, snapshot, [value for _, value in rows], ())


# -- the log


def _log_batches(directory: Path, snapshot: SnapshotId | None) -> Iterator[MetadataBatch]:
    """The batches after the snapshot, or all without one."""
    bases = _bases(directory)
    start = snapshot.end if snapshot else 0
    if snapshot is None and (not bases or bases[0] > 0):
        raise MetadataLogError(f"{directory}: neither the start of the log nor a complete snapshot exists")
    if not bases:
        raise MetadataLogError(f"{directory}: there is no segment, so the records after the snapshot are unknown")
    if snapshot is not None and bases[0] > start:
        raise MetadataLogError(f"{directory}: records {start} to {bases[0] - 1} are missing")
    expected = start
    for number, base in enumerate(bases):
        if number + 1 < len(bases) and bases[number + 1] <= start:
            continue
        for payload, head in _segment(directory, base):
            if head.last_offset < start:
                continue
            if snapshot is not None and head.leader_epoch < snapshot.epoch:
                return
            if head.base_offset > expected:
                raise MetadataLogError(f"{directory}: records {expected} to {head.base_offset - 1} are missing")
            yield _decoded(payload, head.base_offset, head.attributes, False, start)
            expected = head.last_offset + 1
    _refuse_lost_end(directory, expected)


def _refuse_lost_end(directory: Path, end: int) -> None:
    known = max(_offsets(directory, names.SNAPSHOT), default=0)
    if known > end:
        raise MetadataLogError(f"{directory}: records {end} to {known - 1} are missing")


def _bases(directory: Path) -> list[int]:
    return _offsets(directory, names.LOG)


def _offsets(directory: Path, kind: str) -> list[int]:
    return [file.offset for file in names.segment_files(directory) if file.kind == kind]


def _segment(directory: Path, base: int) -> Iterator[tuple[bytes, batch_v2.Header]]:
    """Batches of a segment."""
    path = names.segment_path(directory, base)
    with FILES.opened(path, os.O_RDONLY) as fd:
        scan = Scan(fd, least_offset=base)
        for batch in scan:
            if batch.magic != 2:
                raise MetadataLogError(f"{path}: a batch of magic {batch.magic} at byte {batch.position}")
            payload = scan.payload()
            yield payload, batch_v2.header(payload)
    if scan.bad is not None:
        raise MetadataLogError(f"{path}: damaged at byte {scan.bad.position}: {scan.bad.reason}")
