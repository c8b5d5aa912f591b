"""Reads the metadata of the KRaft cluster that filled the log directories, if its metadata log is in one of them or in
metadata.log.dir. The log is read-only and kept: users, ACLs and quotas are not stored anywhere else yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from odradek.cluster.tree import kraft_records
from odradek.cluster.tree.kraft_metadata import Entry, Metadata
from odradek.cluster.tree.kraft_records import MetadataRecordError
from odradek.storage.tools import metadata_log
from odradek.storage.tools.metadata_log import MetadataBatch, MetadataLogError


class UnreadableMetadataLog(Exception):
    """The metadata log exists but cannot be interpreted; the message says why."""


def find(log_dirs: Sequence[str], metadata_log_dir: str | None = None) -> Path | None:
    """The directory of the metadata log: in metadata.log.dir or the first log directory that has one."""
    folders = [metadata_log_dir] if metadata_log_dir else []
    found = (Path(folder, metadata_log.DIRECTORY) for folder in (*folders, *log_dirs))
    return next((path for path in found if path.is_dir()), None)


def load(directory: Path) -> Metadata:
    """The metadata that a metadata log describes. Raises UnreadableMetadataLog."""
    metadata = Metadata()
    try:
        alone = metadata_log.voters(directory) or _voters(directory)
        metadata.apply(_entries(directory, alone == 1))
    except (MetadataLogError, MetadataRecordError) as error:
        raise UnreadableMetadataLog(str(error)) from error
    if metadata.migrating:
        raise UnreadableMetadataLog(f"{directory}: the migration from ZooKeeper is not complete")
    return metadata


def _entries(directory: Path, alone: bool) -> Iterator[Entry]:
    """Every relevant record; with more than one voter only snapshots are certain to be committed."""
    for batch in metadata_log.read(directory):
        number = ~batch.base_offset if batch.snapshot else batch.base_offset  # a snapshot's offsets start at 0 again
        for value in batch.values:
            record = kraft_records.decode(value)
            if record is not None:
                yield Entry(record, number, alone or batch.snapshot)


def _voters(directory: Path) -> int | None:
    """The number of voters at the last election or voter change in the log; None without one."""
    numbers = [number for batch in metadata_log.read(directory) for number in _voters_in(batch)]
    return numbers[-1] if numbers else None


def _voters_in(batch: MetadataBatch) -> Iterator[int]:
    for kind, value in batch.control:
        number = kraft_records.voters(kind, value)
        if number is not None:
            yield number
