"""Writes files of a partition as Kafka could have left them, unlike the broker's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from odradek.storage.files import names
from odradek.storage.files.durable import replace
from odradek.storage.producers import snapshots
from odradek.storage.producers.producer_state import ProducerEntry
from odradek.storage.segment.index_files import OFFSET_ENTRY, TIME_ENTRY


def write_snapshot(
    directory: str | Path, offset: int, producers: Mapping[int, ProducerEntry], sync: bool = True
) -> Path:
    """Writes the snapshot of `producers` just below `offset`; its path."""
    path = names.segment_path(directory, offset, names.SNAPSHOT)
    replace(path, snapshots.encode(producers), sync=sync)
    return path


def offset_entry(base: int, last_offset: int, position: int) -> bytes:
    """One entry of an `.index`."""
    return OFFSET_ENTRY.pack(last_offset - base, position)


def time_entry(base: int, timestamp: int, offset: int) -> bytes:
    """One entry of a `.timeindex`; `timestamp` in ms."""
    return TIME_ENTRY.pack(timestamp, offset - base)
