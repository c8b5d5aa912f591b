"""Names of Kafka's files and directories, and their parsing.

A log directory holds one directory per partition, `<topic>-<partition>`; a partition directory holds
segments named by their first offset in 20 digits. A suffix gives the state of a file or directory:

    .deleted   to be removed after `file.delete.delay.ms`
    .cleaned   output of an unfinished compaction: worthless
    .swap      output of a finished compaction: only its renames are missing
    .corrupt   damaged, and put aside: no broker reads it
    -delete    a partition directory waiting for removal      <topic>-<partition>.<32 hex>-delete
    -future    a copy being made in another log directory     <topic>-<partition>.<32 hex>-future
    -stray     a directory that no longer belongs to a topic  <topic>-<partition>.<32 hex>-stray

Only regular files are segment files, and only names as Kafka writes them count: all other files were put there by
hand, and stay untouched.
"""

from __future__ import annotations

import os
import re
import uuid
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from odradek.protocol.wire import INT32_MAX, INT64_MAX

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
INDEXES = (INDEX, TIME_INDEX, TXN_INDEX)
SEGMENT_SUFFIXES = (LOG, *INDEXES, SNAPSHOT)

DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
TEMPORARY = ".tmp"
CORRUPT = ".corrupt"

DELETE_DIR = "-delete"
FUTURE_DIR = "-future"
STRAY_DIR = "-stray"
MARKED_DIRS = (DELETE_DIR, FUTURE_DIR, STRAY_DIR)

KRAFT_METADATA = "__cluster_metadata"  # the topic of Apache Kafka's own log; its directory is not our partition

MAX_NAME = 255  # of a directory entry, on every file system we know
_NUMBER = "0|[1-9][0-9]{0,9}"
_MARKED = re.compile(rf"(\S+)-({_NUMBER})\.(\S+)(-delete|-future|-stray)")
_PLAIN = re.compile(rf"(.+)-({_NUMBER})", re.DOTALL)
_DIGITS = re.compile(r"([0-9]{20})(\.[a-z]+)((?:\.(?:deleted|cleaned|swap|tmp))*)")
_LARGEST_PARTITION = INT32_MAX
_LARGEST_OFFSET = INT64_MAX


class PartitionDir(NamedTuple):
    """A partition directory's name, parsed. `mark` is "", "-delete", "-future" or "-stray"."""

    topic: str
    partition: int
    mark: str = ""


class SegmentFile(NamedTuple):
    """A segment file's name, parsed: `00000000000000000042.index.swap` is (42, ".index", ".swap")."""

    offset: int
    kind: str
    mark: str = ""


def offset_name(offset: int) -> str:
    """The 20 digits that name files of the segment (or the snapshot) at `offset`."""
    if offset < 0:
        raise ValueError(f"no file name for the negative offset {offset}")
    return f"{offset:020d}"


def segment_path(directory: str | os.PathLike[str], offset: int, kind: str = LOG, mark: str = "") -> Path:
    """Path of one file of the segment at base `offset`; `kind` and `mark` as in `SegmentFile`."""
    return _path(os.fspath(directory), f"{offset_name(offset)}{kind}{mark}")


@lru_cache(maxsize=64)  # recovery uses the same few paths, and pathlib is a third of its time
def _path(directory: str, name: str) -> Path:
    return Path(directory, name)


def parse_segment_file(name: str) -> SegmentFile | None:
    """The parts of a segment file's name; None for any other name."""
    found = _DIGITS.fullmatch(name)
    if found is None or int(found[1]) > _LARGEST_OFFSET:
        return None
    digits, kind, mark = found.groups()
    return SegmentFile(int(digits), kind, mark)


def segment_files(directory: str | os.PathLike[str], mark: str = "") -> list[SegmentFile]:
    """The segment files in a partition directory that bear `mark`, rising; without one, those in use."""
    return sorted(file for file in all_segment_files(directory) if file.mark == mark)


def all_segment_files(directory: str | os.PathLike[str]) -> list[SegmentFile]:
    """The segment files in a partition directory, whatever their marks."""
    return [file for file in map(parse_segment_file, regular_files(directory)) if file is not None]


def segment_bases(directory: str | os.PathLike[str]) -> list[int]:
    """Base offsets of the segments in a partition directory, rising. There may be thousands: only logs are parsed."""
    with os.scandir(directory) as entries:
        logs = [entry.name for entry in entries if entry.name.endswith(LOG) and _is_file(entry)]
    return sorted(file.offset for file in map(parse_segment_file, logs) if file is not None)


def regular_files(directory: str | os.PathLike[str]) -> list[str]:
    """The names of the files in a directory, without entries of other kinds."""
    return listed(directory)[0]


def listed(directory: str | os.PathLike[str]) -> tuple[list[str], list[str]]:
    """The names of the files in a directory, and those of entries that are neither a file nor a link to one."""
    found: tuple[list[str], list[str]] = ([], [])
    with os.scandir(directory) as entries:
        for entry in entries:
            found[not _is_file(entry)].append(entry.name)
    return found


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link to itself
        return False


def partition_dir(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def marked_dir(topic: str, partition: int, mark: str) -> str:
    """A new name for a partition directory to delete, move or put aside.

    Topics may have 249 characters, and the mark needs up to 52: the topic is cut, as Kafka does.
    A future directory is never cut, because its name is parsed back to take the old one's place.
    """
    tail = f"-{partition}.{uuid.uuid4().hex}{mark}"
    if mark == FUTURE_DIR:
        return topic + tail
    return topic[: MAX_NAME - len(tail)] + tail


def parse_partition_dir(name: str) -> PartitionDir | None:
    """The topic, partition and mark of a directory's name, or None when it is not a partition's.

    Kafka refuses to start when a log directory has any other sub-directory; the caller decides.
    """
    if name.endswith(MARKED_DIRS):
        marked = _MARKED.fullmatch(name)
        return _dir(marked[1], marked[2], marked[4]) if marked else None
    plain = _PLAIN.fullmatch(name)
    return _dir(plain[1], plain[2]) if plain else None


def _dir(topic: str, number: str, mark: str = "") -> PartitionDir | None:
    return PartitionDir(topic, int(number), mark) if int(number) <= _LARGEST_PARTITION else None
