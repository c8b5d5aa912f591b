"""Names of Kafka's files and directories, and their parsing.

A log directory holds one directory a partition, `<topic>-<partition>`; a partition directory holds
segments named by their first offset in 20 digits. A suffix tells the state of a file or directory:

    .deleted   to be removed after `file.delete.delay.ms`
    .cleaned   output of a compaction that had not finished: worthless
    .swap      output of a compaction that had finished: only its renames are missing
    -delete    a partition directory waiting for removal      <topic>-<partition>.<32 hex>-delete
    -future    a copy being made in another log directory     <topic>-<partition>.<32 hex>-future
    -stray     a directory that belongs to no topic any more  <topic>-<partition>.<32 hex>-stray
"""

from __future__ import annotations

import os
import re
import uuid
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

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

DELETE_DIR = "-delete"
FUTURE_DIR = "-future"
STRAY_DIR = "-stray"
MARKED_DIRS = (DELETE_DIR, FUTURE_DIR, STRAY_DIR)

KRAFT_METADATA = "__cluster_metadata"  # the topic of Apache Kafka's own log; its directory is no partition of ours

MAX_NAME = 255  # of a directory entry, on every file system we know
_MARKED = re.compile(r"^(\S+)-(\d+)\.(\S+)(-delete|-future|-stray)$")
_PLAIN = re.compile(r"^(.+)-(\d+)$", re.DOTALL)
_DIGITS = re.compile(r"^(\d{20})(\.[a-z]+)((?:\.(?:deleted|cleaned|swap|tmp))*)$")


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


@lru_cache(maxsize=64)  # recovery comes back to the same few paths, and pathlib is a third of its time
def _path(directory: str, name: str) -> Path:
    return Path(directory, name)


def parse_segment_file(name: str) -> SegmentFile | None:
    """The parts of a segment file's name, or None when `name` is not one."""
    found = _DIGITS.match(name)
    if found is None:
        return None
    digits, kind, mark = found.groups()
    return SegmentFile(int(digits), kind, mark)


def partition_dir(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def marked_dir(topic: str, partition: int, mark: str) -> str:
    """A fresh name for a partition directory that is to be deleted, moved or put aside.

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
        marked = _MARKED.match(name)
        return PartitionDir(marked[1], int(marked[2]), marked[4]) if marked else None
    plain = _PLAIN.match(name)
    return PartitionDir(plain[1], int(plain[2])) if plain else None
