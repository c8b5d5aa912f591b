"""Reads batches, headers and records from the files of a log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from odradek.ipc import slots
from odradek.protocol.records import batch_v2, convert
from odradek.storage.log import read
from odradek.storage.log.partition import Partition
from odradek.storage.segment.scan import Scan

from .log_model import Raw


def heads(partition: Partition) -> list[batch_v2.Header]:
    """Of all batches in the log's files."""
    return [batch_v2.header(one) for one in batches(partition)]


def end_within(path: Path, base: int, size: int) -> int:
    """Where the log ends when only so many bytes of its last segment are left."""
    with path.open("rb") as file:
        whole = Scan(file.fileno(), check=False, least_offset=base)
        return max((one.last_offset + 1 for one in whole if one.position + one.size <= size), default=base)


def batches(partition: Partition) -> Iterator[bytes]:
    values = partition.slot.read()
    at = partition.bases(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION])[0]
    while piece := read.fetch(partition, values, at, values[slots.F_LEO], 1 << 20):
        yield from map(bytes, convert.split(piece.read()))
        assert piece.following > at
        at = piece.following


def raw(partition: Partition) -> list[Raw]:
    """All records of the log's files."""
    found: list[Raw] = []
    for one in batches(partition):
        control = batch_v2.header(one).is_control
        found += [Raw(row[0], row[1], control) for row in batch_v2.iterate(one)]
    return found
