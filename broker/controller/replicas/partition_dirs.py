"""Directories of this broker's partitions: found at start, created, and renamed when a topic is deleted.

Layout    : `<log.dir>/<topic>-<partition>/` with `partition.metadata`; names with a mark are no longer partitions.
Owner     : the controller creates and renames them, the janitor removes marked ones.
Writers   : the controller; a rename of a live partition's directory happens under its partition lock.
Lock      : the partition's, for the rename.
Crash rule: the metadata tree is the truth. A directory that it knows and that is missing is created again, empty; one
            that belongs to another topic id, or to no topic, is renamed to `…-stray` and never read.

If a rename fails, the directory is logged once and the rename is retried each second. Its partition is out of use by
then: a new one of that name waits for the rename.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from odradek.broker.process.checkpoint_lock import CheckpointLocks, DeletedPartitionLines
from odradek.cluster.metadata.view import NO_ID
from odradek.storage.dirs import logdirs
from odradek.storage.files import checkpoints, disks, names
from odradek.storage.files.checkpoints import CheckpointError
from odradek.storage.files.durable import FILES

log = logging.getLogger(__name__)

_FIRST_KINDS = (names.LOG, names.INDEX, names.TIME_INDEX)
_AGAIN_S = 1.0

Rename = Callable[[str, int], None]  # `retire` or `set_aside`


class PartitionDirs:
    """The log directories, and which partition is in which."""

    def __init__(
        self, log_dirs: Sequence[str], turns: CheckpointLocks, failed: Callable[[], Collection[int]] = tuple,
        fail: Callable[[int], object] | None = None,
    ) -> None:  # fmt: skip
        """`failed` returns the numbers of unusable log directories, `fail` marks one as such (ipc.shm)."""
        self.log_dirs = tuple(log_dirs)
        self._failed = failed
        self._former = DeletedPartitionLines(log_dirs, turns)
        self._known: set[tuple[str, int]] = set()  # partitions that once had records, by the checkpoints
        self._where: dict[tuple[str, int], int] = {}
        self._late: dict[tuple[str, int], Rename] = {}  # renames that failed
        self._retry_at = math.inf
        # Log directories with renames that a power failure may undo, initially perhaps of a former process.
        self._renamed = set(range(len(self.log_dirs)))
        self._counts = [0] * len(self.log_dirs)
        for number, folder in enumerate(self.log_dirs):
            if number not in failed():
                self._look_through(number, folder, fail)
                self._known |= _with_records(folder)

    def _look_through(self, number: int, folder: str, fail: Callable[[int], object] | None) -> None:
        """A log directory that cannot be listed goes offline. Lack of descriptors or memory is temporary: OSError."""
        try:
            found = logdirs.logs_in(folder)
        except OSError as error:
            if fail is None or disks.is_short(error):
                raise
            log.error("log directory %s is offline: cannot read it: %s", folder, error.strerror)
            fail(number)
        else:
            self._take_over(number, folder, found)

    def _take_over(self, number: int, folder: str, found: Iterable[tuple[str, int]]) -> None:
        for key in found:
            if key in self._where:  # startup refuses this (storage.dirs.logdirs): it was put there since
                other = self.log_dirs[self._where[key]]
                log.error("%s-%d is in %s and in %s: using the first", *key, other, folder)
                continue
            self._put(key, number)

    def _put(self, key: tuple[str, int], number: int) -> None:
        self._where[key] = number
        self._counts[number] += 1

    def _drop(self, key: tuple[str, int]) -> None:
        self._counts[self._where.pop(key)] -= 1
        self._late.pop(key, None)

    def path(self, topic: str, partition: int, number: int) -> str:
        """A partition's directory in log directory `number`."""
        return os.path.join(self.log_dirs[number], names.partition_dir(topic, partition))

    def directory(self, topic: str, partition: int) -> Path:
        """The directory of a partition that was found or created."""
        return Path(self.path(topic, partition, self._where[(topic, partition)]))

    def has_log(self, topic: str, partition: int) -> bool:
        """Whether the directory has, or according to a checkpoint had, more than a new partition's empty segment."""
        if (topic, partition) in self._known:
            return True
        directory = self.path(topic, partition, self._where[(topic, partition)])
        with os.scandir(directory) as entries:
            found = list(entries)
        if any(_tells_something(entry) for entry in found):
            return True
        if sum(entry.name.endswith(_FIRST_KINDS) for entry in found) < len(_FIRST_KINDS):
            self._first_segment(directory)  # incomplete after a power failure or a crash during creation
        return False

    def found(self) -> list[tuple[str, int]]:
        """(topic, partition) of every directory found or created."""
        return list(self._where)

    def __contains__(self, key: object) -> bool:
        return key in self._where

    def topic_id(self, topic: str, partition: int) -> bytes | None:
        """The topic id in the directory's partition.metadata, None without one (or without a directory).

        Zeros count as none: they were once written for topics with an unknown id.
        """
        number = self._where.get((topic, partition))
        if number is None:
            return None
        try:
            found = checkpoints.read_partition_metadata(self.path(topic, partition, number))
        except CheckpointError as error:
            log.warning("%s: rewriting it", error)
            return None
        return None if found == NO_ID else found

    def has(self, topic: str, partition: int, topic_id: bytes) -> bool:
        """Whether there is a directory of exactly that topic on a working disk. OSError for disk errors.

        For a topic with an unknown id (NO_ID) any directory of its name counts: nothing says otherwise.
        """
        number = self._where.get((topic, partition))
        if (topic, partition) in self._late:
            return False
        if number is None or number in self._failed():
            return False
        return topic_id == NO_ID or self.topic_id(topic, partition) == topic_id

    def adopt(self, topic: str, partition: int, topic_id: bytes) -> int:
        """The log directory of a partition, whose directory is created if missing.

        OSError for disk errors, and when the log may be in a log directory that is unusable now.
        """
        if (topic, partition) not in self._where:
            if self._failed():
                raise OSError("its log is in no online log directory")
            if (topic, partition) in self._known:
                log.error("%s-%d: directory missing: starting with an empty log", topic, partition)
        return self._placed(topic, partition, topic_id)

    def _placed(self, topic: str, partition: int, topic_id: bytes) -> int:
        key = (topic, partition)
        theirs = self.topic_id(topic, partition)
        if theirs is not None and topic_id not in (NO_ID, theirs):
            return self.create(topic, partition, topic_id)
        number = self._where.get(key)
        if number is not None and topic_id in (NO_ID, theirs):
            return number
        if number is None:
            number = self._emptiest()
            self._make(topic, partition, number)
        self._write_metadata(topic, partition, number, topic_id)
        return number

    def _make(self, topic: str, partition: int, number: int) -> None:
        os.mkdir(self.path(topic, partition, number))
        self._put((topic, partition), number)

    def create(self, topic: str, partition: int, topic_id: bytes) -> int:
        """Create an empty directory for a new partition; an existing one is set aside. OSError for disk errors.

        A directory in a failed log directory stays as it is: nothing can be renamed there.
        """
        if self._where.get((topic, partition)) in self._failed():
            self.forget(topic, partition)
        elif (topic, partition) in self._where:
            self._late.get((topic, partition), self.set_aside)(topic, partition)
        number = self._emptiest()
        self._known.discard((topic, partition))
        self._former.forget(topic, partition, number)
        self._make(topic, partition, number)
        self._write_metadata(topic, partition, number, topic_id)
        self._first_segment(self.path(topic, partition, number))
        return number

    @property
    def failed(self) -> Collection[int]:
        """The numbers of the unusable log directories."""
        return self._failed()

    def holding(self, path: str) -> int | None:
        """The number of the log directory that contains a path."""
        within = (number for number, folder in enumerate(self.log_dirs) if path.startswith(os.path.join(folder, "")))
        return next(within, None)

    def forget(self, topic: str, partition: int) -> None:
        """Forget a partition whose disk has failed."""
        if (topic, partition) in self._where:
            self._drop((topic, partition))

    def _emptiest(self) -> int:
        failed = set(self._failed())
        usable = [number for number in range(len(self.log_dirs)) if number not in failed]
        if not usable:
            raise OSError("no log directory is online")
        return min(usable, key=lambda number: self._counts[number])

    def _first_segment(self, directory: str) -> None:
        """Create an empty segment, as Kafka does: a partition without records is a complete log too."""
        for kind in _FIRST_KINDS:
            os.close(os.open(names.segment_path(directory, 0, kind), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def _write_metadata(self, topic: str, partition: int, number: int, topic_id: bytes) -> None:
        """Write partition.metadata without sync: `adopt` rewrites it after a power failure. No file without an id."""
        if topic_id == NO_ID:
            return
        checkpoints.write_partition_metadata(self.path(topic, partition, number), topic_id, sync=False)

    def put_away(self, topic: str, partition: int, rename: Rename) -> None:
        """`rename` a directory whose partition is out of use; if the rename fails, retry later.

        Caller holds the partition's lock, or has marked it.
        """
        key = (topic, partition)
        rename = self._late.get(key, rename)
        try:
            rename(topic, partition)
        except OSError as error:
            if key not in self._late:
                log.warning("%s-%d: cannot rename its directory, retrying: %s", topic, partition, error)
            self._late[key] = rename
            self._retry_at = time.monotonic() + _AGAIN_S

    def due(self) -> float:
        """When `retry` next has work (monotonic seconds)."""
        return self._retry_at if self._late else math.inf

    def retry(self, now: float) -> None:
        """Retry failed renames; in a log directory that has failed since, not before the next start."""
        if now < self.due():
            return
        for (topic, partition), rename in list(self._late.items()):
            if self._where[(topic, partition)] in self._failed():
                self.forget(topic, partition)
                continue
            self.put_away(topic, partition, rename)
            if (topic, partition) not in self._late:
                log.info("%s-%d: directory renamed", topic, partition)

    def retire(self, topic: str, partition: int) -> None:
        """Rename the directory so that the janitor removes it. Caller holds the partition's lock."""
        self._rename(topic, partition, names.DELETE_DIR)

    def set_aside(self, topic: str, partition: int) -> None:
        """Rename a directory that belongs to no replica of this broker; no process removes it, as in Kafka.

        One without a segment is empty (its creation was cut short by a full disk or a crash) and is retired.
        """
        if not self._has_segment(topic, partition):
            self.retire(topic, partition)
            return
        moved = self._rename(topic, partition, names.STRAY_DIR)
        log.warning("%s-%d is a stray replica: moved its log to %s", topic, partition, moved)

    def _has_segment(self, topic: str, partition: int) -> bool:
        try:
            found = os.listdir(self.directory(topic, partition))
        except FileNotFoundError:
            return False
        return any(name.endswith(names.LOG) for name in found)

    def _rename(self, topic: str, partition: int, mark: str) -> str:
        number = self._where[(topic, partition)]
        old = self.path(topic, partition, number)
        new = os.path.join(self.log_dirs[number], names.marked_dir(topic, partition, mark))
        try:
            os.rename(old, new)
            self._renamed.add(number)
        except FileNotFoundError:
            pass
        self._drop((topic, partition))
        return new

    def all_renamed(self, topic: str) -> bool:
        """Whether no directory of a deleted topic has its old name, even after a power failure."""
        return not self._failed() and not any(name == topic for name, _ in self._late) and self.renames_last()

    def renames_last(self) -> bool:
        """Sync all renames, also a former process's; whether they now survive a power failure."""
        try:
            for number in self._renamed:
                FILES.sync_dir(self.log_dirs[number])
        except OSError as error:
            log.warning("cannot sync the renames of deleted topics' directories: %s", error)
            return False
        self._renamed.clear()
        return True

    def sync(self) -> None:
        """Make creations and renames survive a power failure."""
        for number, folder in enumerate(self.log_dirs):
            if number not in self._failed():
                FILES.sync_dir(folder)


def _with_records(folder: str) -> set[tuple[str, int]]:
    """Partitions whose checkpointed log end or start is above 0."""
    found: set[tuple[str, int]] = set()
    for name in (checkpoints.RECOVERY_POINT, checkpoints.HIGH_WATERMARK, checkpoints.LOG_START):
        try:
            found |= {key for key, offset in checkpoints.read_offsets(folder, name).items() if offset}
        except (CheckpointError, OSError):  # recovery reports it
            continue
    return found


def _tells_something(entry: os.DirEntry[str]) -> bool:
    """Whether a file belongs to a log that needs recovery: not empty, or not at offset 0."""
    file = names.parse_segment_file(entry.name)
    return file is not None and bool(file.offset or file.mark or entry.stat().st_size)
