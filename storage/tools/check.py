"""`odradek check DIR`: verifies the consistency of a data directory, and changes nothing.

A directory is a log directory (`log.dirs`) or one partition's. It verifies the logs and their indexes
(`check_segment`, `check_index`, `check_transactions`), the order of segments, snapshots, leader epochs, topic ids, the
offset checkpoints against the logs, meta.properties. In a log that the cleaner has processed
(cleaner-offset-checkpoint) gaps are not faults: the cleaner has made them, or the leader's cleaner in a follower's log.
A directory in use may show a write in flight; a partition whose files change meanwhile (a roll, retention, the cleaner)
is checked again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from odradek.storage.dirs.logdirs import LogDirError, PartitionPlace, partitions_in
from odradek.storage.files import checkpoints, names
from odradek.storage.files.checkpoints import CheckpointError, Offsets
from odradek.storage.files.durable import StrPath
from odradek.storage.files.faults import Fault
from odradek.storage.producers.snapshots import SnapshotError, read_snapshot, snapshot_offsets
from odradek.storage.segment import epochs
from odradek.storage.segment.epochs import EpochCache
from odradek.storage.tools.check_segment import CheckOptions, SegmentCheck
from odradek.storage.tools.check_transactions import TransactionCheck

Progress = Callable[[int], None]
ATTEMPTS = 5  # for a partition whose broker changes its files


def check(directory: StrPath, *, deep: bool = False, progress: Progress | None = None) -> Iterator[Fault]:
    """All faults of a log directory or of one partition directory.

    `deep` decodes every record, compressed ones too. Calls `progress` with the bytes read since the
    last call, of `log_bytes(directory)`. Raises OSError from reads.
    """
    path = Path(directory)
    if _is_partition(path):
        compacted = _checkpointed(path, checkpoints.CLEANER) is not None
        log_start = _checkpointed(path, checkpoints.LOG_START) or 0
        yield from PartitionCheck(path, CheckOptions(deep, compacted, None, progress, log_start)).faults()
    else:
        yield from _LogDirCheck(path, deep, progress).faults()


def log_bytes(directory: StrPath) -> int:
    """Bytes of all logs under `directory`, which a check has to read."""
    return sum(_size(path) for pattern in ("*.log", "*/*.log") for path in Path(directory).glob(pattern))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # retention has just deleted it
        return 0


def _checkpointed(path: Path, name: str) -> int | None:
    """The offset of the partition at `path` in checkpoint `name` of its log directory."""
    parsed = names.parse_partition_dir(path.resolve().name)
    try:
        found = checkpoints.read_offsets(path.resolve().parent, name)
    except CheckpointError:
        found = {}
    return None if parsed is None else found.get((parsed.topic, parsed.partition))


def _is_partition(path: Path) -> bool:
    return any(file.kind == names.LOG for file in names.all_segment_files(path))


def _identities(directory: Path) -> set[tuple[str, int]]:
    """Names and inodes of the files: the cleaner replaces a segment by another file of the same name."""
    with os.scandir(directory) as entries:
        return {(entry.name, entry.inode()) for entry in entries}


class PartitionCheck:
    """One partition directory. After `faults`, `leo` is its log end."""

    def __init__(self, directory: Path, options: CheckOptions) -> None:
        self.directory = directory
        self.options = options
        self.leo = 0
        self.topic_id: bytes | None = None

    def faults(self) -> Iterator[Fault]:
        for _ in range(ATTEMPTS):
            found = self._settled_faults()
            if found is not None:
                yield from found
                return
        yield Fault(self.directory, "its files keep changing: stop the broker that uses it, then check again")

    def _settled_faults(self) -> list[Fault] | None:
        """The faults, or None if they may only be due to files that changed during the check."""
        try:
            files = _identities(self.directory)
            found = list(self._faults())
            return found if not found or _identities(self.directory) == files else None
        except FileNotFoundError:
            return None if self.directory.exists() else []

    def _faults(self) -> Iterator[Fault]:
        yield from self._metadata()
        yield from self._read_epochs()
        yield from self._segments()
        yield from self._epochs()
        yield from self._snapshots()

    def _metadata(self) -> Iterator[Fault]:
        try:
            self.topic_id = checkpoints.read_partition_metadata(self.directory)
        except CheckpointError as problem:
            yield Fault(self.directory / checkpoints.PARTITION_METADATA, _without_path(problem))

    def _read_epochs(self) -> Iterator[Fault]:
        path = self.directory / epochs.FILE_NAME
        try:
            if path.exists():
                self.options.epochs = EpochCache.read(self.directory)
        except CheckpointError as problem:
            yield Fault(path, _without_path(problem))

    def _segments(self) -> Iterator[Fault]:
        files = names.segment_files(self.directory)
        logs = [file.offset for file in files if file.kind == names.LOG]
        for file in files:
            if file.kind in names.INDEXES and file.offset not in logs:
                yield Fault(names.segment_path(self.directory, *file), "has no .log file")
        if not logs:
            yield Fault(self.directory, "has no segment")
            return
        expected, transactions = None, TransactionCheck(self.options.compacted)
        for base in logs:
            segment = SegmentCheck(self.directory, base, expected, base != logs[-1], self.options, transactions)
            yield from segment.faults()
            expected = segment.next_offset
        self.leo = expected or 0

    def _epochs(self) -> Iterator[Fault]:
        for epoch, start in self.options.epochs.entries if self.options.epochs else ():
            if start > self.leo:
                message = f"epoch {epoch} begins at offset {start}, past the log's end {self.leo}"
                yield Fault(self.directory / epochs.FILE_NAME, message)

    def _snapshots(self) -> Iterator[Fault]:
        for offset in snapshot_offsets(self.directory):
            path = names.segment_path(self.directory, offset, names.SNAPSHOT)
            if offset > self.leo:
                yield Fault(path, f"is past the log's end {self.leo}")
            try:
                for producer_id, entry in read_snapshot(path).items():
                    if entry.last is not None and entry.last.last_offset >= offset:
                        yield Fault(path, f"producer {producer_id} is at offset {entry.last.last_offset}, not below it")
            except SnapshotError as problem:
                yield Fault(path, _without_path(problem))


class _LogDirCheck:
    """A log directory: each partition, and the files about all of them."""

    def __init__(self, directory: Path, deep: bool, progress: Progress | None) -> None:
        self.directory = directory
        self.deep = deep
        self.progress = progress
        self.offsets: dict[str, Offsets] = {}
        self.topic_ids: dict[str, bytes] = {}

    def faults(self) -> Iterator[Fault]:
        yield from self._own_files()
        try:
            places = partitions_in(self.directory)
        except LogDirError as problem:
            yield Fault(self.directory, str(problem))
            return
        for place in places:
            if place.name.mark != names.DELETE_DIR:
                yield from self._partition(place)

    def _own_files(self) -> Iterator[Fault]:
        for name in checkpoints.OFFSET_CHECKPOINTS:
            try:
                self.offsets[name] = checkpoints.read_offsets(self.directory, name)
            except CheckpointError as problem:
                yield Fault(self.directory / name, _without_path(problem))
        try:
            checkpoints.read_meta_properties(self.directory)
        except CheckpointError as problem:
            yield Fault(self.directory / checkpoints.META_PROPERTIES, _without_path(problem))

    def _partition(self, place: PartitionPlace) -> Iterator[Fault]:
        key = (place.name.topic, place.name.partition)
        compacted = key in self.offsets.get(checkpoints.CLEANER, {})
        log_start = self.offsets.get(checkpoints.LOG_START, {}).get(key, 0)
        partition = PartitionCheck(place.path, CheckOptions(self.deep, compacted, None, self.progress, log_start))
        yield from partition.faults()
        if not place.name.mark and place.path.exists():
            yield from self._topic_id(place, partition.topic_id)
            yield from self._checkpoints(key, partition)

    def _topic_id(self, place: PartitionPlace, topic_id: bytes | None) -> Iterator[Fault]:
        if topic_id is None:
            return
        known = self.topic_ids.setdefault(place.name.topic, topic_id)
        if known != topic_id:
            ids = f"{checkpoints.format_uuid(topic_id)}, other partitions of the topic {checkpoints.format_uuid(known)}"
            yield Fault(place.path / checkpoints.PARTITION_METADATA, f"has topic id {ids}")

    def _checkpoints(self, key: tuple[str, int], partition: PartitionCheck) -> Iterator[Fault]:
        """Checkpoints past the log's end. A log may begin after its checkpointed start: retention continues."""
        for name, offsets in self.offsets.items():
            offset = offsets.get(key, 0)
            if offset > partition.leo:
                message = f"{key[0]}-{key[1]} has offset {offset}, but its log ends at {partition.leo}"
                yield Fault(self.directory / name, message)


def _without_path(problem: Exception) -> str:
    """The message of an error without the file name at its start."""
    return str(problem).partition(": ")[2] or str(problem)
