"""The log directories of a broker (`log.dirs`): which can be used, whose they are, where a partition goes.

Each holds Kafka's `.lock`, locked for the broker's life by an open-file-description lock on the whole
file, which excludes Apache Kafka's lock on it too and is freed by the kernel when the last holder of
the descriptor dies. A directory that cannot be used is offline; the others serve on.

Owner of everything here: the supervisor, at start.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import struct
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from odradek.storage import names
from odradek.storage.checkpoints import (
    CheckpointError,
    MetaProperties,
    format_uuid,
    read_meta_properties,
    write_meta_properties,
)
from odradek.storage.durable import FILES, Files, StrPath

log = logging.getLogger(__name__)

T = TypeVar("T")

LOCK = ".lock"
NO_DIRECTORY = "is no directory, nor a link to one"
IGNORED_DIRS = frozenset({"remote-log-index-cache", "lost+found"})
_WHOLE_FILE = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


class LogDirError(Exception):
    """The directories do not fit together or are another broker's: a start must fail. Says what to change."""


class LogDir(NamedTuple):
    """One directory. `problem` is "" when it can be used; `lock` is the descriptor that holds `.lock`, or -1."""

    path: Path
    problem: str = ""
    lock: int = -1


class PartitionPlace(NamedTuple):
    """A partition directory that was found."""

    path: Path
    name: names.PartitionDir


def open_log_dirs(paths: Sequence[StrPath], *, files: Files = FILES) -> list[LogDir]:
    """Creates, checks and locks each directory, in order.

    Raises LogDirError when one is given twice, is in use by another broker, or none can be used.
    """
    real = [os.path.realpath(path) for path in paths]
    for path in real:
        if real.count(path) > 1:
            raise LogDirError(f"log.dirs names {path} more than once")
    opened = [_open(Path(path), files) for path in paths]
    refuse_without_any(opened)
    return opened


def refuse_without_any(opened: Sequence[LogDir]) -> None:
    """LogDirError when none can be used."""
    if all(log_dir.problem for log_dir in opened):
        raise LogDirError("none of log.dirs can be used: " + "; ".join(f"{d.path}: {d.problem}" for d in opened))


def _open(path: Path, files: Files) -> LogDir:
    try:
        if not path.is_dir():
            if os.path.lexists(path):
                return LogDir(path, NO_DIRECTORY)
            path.mkdir(parents=True, exist_ok=True)
            files.sync_dir(path.absolute().parent)
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            return LogDir(path, "not readable and writable for this user")
        return LogDir(path, "", lock_dir(path, files=files))
    except OSError as error:
        return LogDir(path, error.strerror or str(error))


def lock_dir(path: StrPath, *, files: Files = FILES) -> int:
    """Takes `.lock` of a log directory; the descriptor holds it. LogDirError when another broker has it."""
    fd = files.open(Path(path, LOCK), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _WHOLE_FILE)
    except OSError as error:
        files.close(fd)
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        raise LogDirError(f"{path} is in use: another broker holds its {LOCK} file; stop that one first") from None
    return fd


def is_in_use(path: StrPath) -> bool:
    """Whether a broker on this machine, ours or Apache's, holds a log directory's `.lock`; OSError as opening it."""
    with FILES.opened(Path(path, LOCK), os.O_RDONLY) as fd:
        holder = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _WHOLE_FILE)
    return struct.unpack_from("h", holder)[0] != fcntl.F_UNLCK


def agree_on_identity(
    log_dirs: Iterable[LogDir], node_id: int, cluster_id: str | None = None, *, files: Files = FILES
) -> MetaProperties:
    """Reads meta.properties of all usable directories, and writes it where it is missing.

    `cluster_id` is the one to use if no directory has one yet (None: a new random one). Returns what
    all agree on; raises LogDirError when they do not, or belong to another broker or cluster.
    """
    usable = [log_dir.path for log_dir in log_dirs if not log_dir.problem]
    found = {path: identity(path) for path in usable}
    node = _one("broker.id", {path: meta.node_id for path, meta in found.items() if meta}, node_id)
    cluster = _one("cluster.id", {path: meta.cluster_id for path, meta in found.items() if meta}, cluster_id)
    agreed = MetaProperties(cluster or random_id(), node)
    for path, meta in found.items():
        if meta is None and any(found.values()) and holds_only(path, set()):
            _name_new(path)
        if meta is None or meta.cluster_id is None or meta.node_id is None:
            _write_identity(path, replace(agreed, directory_id=meta.directory_id if meta else None), files)
    return agreed


def _name_new(path: Path) -> None:
    """It is used as a new log directory, as Kafka does. Once only: from now on it has meta.properties."""
    log.warning(
        "%s has neither meta.properties nor a log, though other log.dirs have: it is taken for a new log directory. "
        "If its disk is not mounted, stop the broker before it makes empty logs there, and mount the disk",
        path,
    )


def _write_identity(path: Path, identity: MetaProperties, files: Files) -> None:
    try:
        write_meta_properties(path, identity, files=files)
    except OSError as error:
        raise LogDirError(f"{path}: meta.properties cannot be written: {error.strerror}") from None


def random_id() -> str:
    """A new id in Kafka's base64 form; none begins with a dash, which commands would take for an option."""
    while (text := format_uuid(uuid.uuid4().bytes)).startswith("-"):
        pass
    return text


def identity(path: Path) -> MetaProperties | None:
    """What meta.properties of a log directory says, None without one. LogDirError when it is damaged."""
    try:
        return read_meta_properties(path)
    except CheckpointError as problem:
        raise LogDirError(f"{problem}; restore it, or remove it if this directory is this broker's") from None


def _one(what: str, found: Mapping[Path, T | None], given: T | None) -> T | None:
    """The value all directories have, else the given one."""
    known = {path: value for path, value in found.items() if value is not None}
    for path, value in known.items():
        other = next((p for p, v in known.items() if v != value), None)
        if other is not None:
            raise LogDirError(f"{path} has {what} {value}, {other} has {known[other]}: they are not one broker's")
        if given is not None and value != given:
            raise LogDirError(f"{path} belongs to {what} {value}, not {given}; set it so, or use another log.dirs")
    return next(iter(known.values()), given)


def partitions_in(log_dir: StrPath) -> list[PartitionPlace]:
    """All partition directories of a log directory, also those marked -delete, -future, -stray.

    Raises LogDirError on a sub-directory that is none, as Kafka refuses to start with one, OSError as the disk does.
    """
    places = []
    for entry in sorted(os.scandir(log_dir), key=_name):
        if not entry.is_dir() or entry.name in IGNORED_DIRS or entry.name.startswith(f"{names.KRAFT_METADATA}-"):
            continue
        name = names.parse_partition_dir(entry.name)
        if name is None:
            raise LogDirError(f"{entry.path} is not <topic>-<partition>: move it out of the log directory")
        places.append(PartitionPlace(Path(entry.path), name))
    return places


def logs_in(log_dir: StrPath) -> list[tuple[str, int]]:
    """(topic, partition) of each log in a log directory that bears no mark, sorted. OSError as the disk does."""
    found = [names.parse_partition_dir(entry.name) for entry in os.scandir(log_dir) if entry.is_dir()]
    logs = [one for one in found if one is not None and not one.mark and one.topic != names.KRAFT_METADATA]
    return sorted((one.topic, one.partition) for one in logs)


def holds_only(log_dir: StrPath, known: set[tuple[str, int]]) -> bool:
    """Whether there is no other log in a log directory; False where that cannot be told."""
    try:
        return known.issuperset(logs_in(log_dir))
    except OSError:
        return False


def refuse_doubles(places: Iterable[PartitionPlace]) -> None:
    """LogDirError when a partition has two logs: a start must fail, as Kafka's does (LogManager.loadLog).

    One was created while the log directory of the other was offline; an operator has to say which one to keep.
    """
    logs: dict[tuple[str, int], list[Path]] = {}
    for path, name in places:
        if not name.mark:
            logs.setdefault((name.topic, name.partition), []).append(path)
    doubles = [paths for paths in logs.values() if len(paths) > 1]
    if doubles:
        one, other, *_ = doubles[0]
        more = f" (and {len(doubles) - 1} more such partitions)" if len(doubles) > 1 else ""
        raise LogDirError(
            f"{one.name} has two logs, {one} and {other}{more}: delete one of them or move it out of log.dirs; "
            "the one in a directory that had failed is most likely out of date"
        )


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name


def least_loaded(partitions: Mapping[int, int], usable: Iterable[int]) -> int:
    """Index of the usable directory with the fewest partitions, the first of equals.

    `partitions`: index → count, absent is 0. Raises LogDirError when none is usable.
    """
    indexes = sorted(usable)
    if not indexes:
        raise LogDirError("no usable log directory is left")
    return min(indexes, key=lambda index: partitions.get(index, 0))
