"""The log directories of a broker (`log.dirs`): which are usable, which broker owns them, where a partition goes.

An unusable directory is offline; the broker continues with the others.

Layout    : `.lock`, Kafka's, stays empty. Each process of a broker has a read lock on one byte of it, by an open file
            description. The byte is the broker's own number (RoleLocks.number), so its processes share it. A process
            that holds its byte checks for locks on others: then another broker has the directory. Of two brokers that
            start at once both may see the other, and give way; at least one always does.
            Apache Kafka, and Odradek before it had numbers, lock the whole file for writing, which excludes all these.
Owner     : the supervisor creates the directories and their contents, at start.
Crash rule: the kernel frees a dead process's lock; a broker has the directory until its last process is dead.
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

from odradek.storage.files import names
from odradek.storage.files.checkpoints import (
    CheckpointError,
    MetaProperties,
    format_uuid,
    read_meta_properties,
    write_meta_properties,
)
from odradek.storage.files.durable import FILES, Files, StrPath

log = logging.getLogger(__name__)

T = TypeVar("T")

LOCK = ".lock"
NO_DIRECTORY = "is not a directory or a link to one"
IGNORED_DIRS = frozenset({"remote-log-index-cache", "lost+found"})


def _flock(kind: int, start: int = 0, length: int = 0) -> bytes:
    """`struct flock`; without a length it covers the file to its end, however long it grows."""
    return struct.pack("hhqqi0q", kind, os.SEEK_SET, start, length, 0)


_WHOLE_FILE = _flock(fcntl.F_WRLCK)


class LogDirError(Exception):
    """The directories are inconsistent or another broker's: a start must fail. The message says what to change."""


class LogDir(NamedTuple):
    """One directory. `problem` is "" when it can be used; `lock` is the descriptor that holds `.lock`, or -1."""

    path: Path
    problem: str = ""
    lock: int = -1


class PartitionPlace(NamedTuple):
    """A partition directory found in a log directory."""

    path: Path
    name: names.PartitionDir


def open_log_dirs(paths: Sequence[StrPath], broker: int | None = None, *, files: Files = FILES) -> list[LogDir]:
    """Creates, checks and locks each directory, in order; `broker` as in `lock_dir`.

    Raises LogDirError when one is named twice, another broker uses one, or none can be used.
    """
    real = [os.path.realpath(path) for path in paths]
    for path in real:
        if real.count(path) > 1:
            raise LogDirError(f"log.dirs names {path} more than once")
    opened = [_open(Path(path), broker, files) for path in paths]
    refuse_without_any(opened)
    return opened


def refuse_without_any(opened: Sequence[LogDir]) -> None:
    """LogDirError when none can be used."""
    if all(log_dir.problem for log_dir in opened):
        raise LogDirError("none of log.dirs can be used: " + "; ".join(f"{d.path}: {d.problem}" for d in opened))


def _open(path: Path, broker: int | None, files: Files) -> LogDir:
    try:
        if not path.is_dir():
            if os.path.lexists(path):
                return LogDir(path, NO_DIRECTORY)
            path.mkdir(parents=True, exist_ok=True)
            files.sync_dir(path.absolute().parent)
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            return LogDir(path, "not readable and writable for this user")
        return LogDir(path, "", lock_dir(path, broker, files=files))
    except OSError as error:
        return LogDir(path, error.strerror or str(error))


def lock_dir(path: StrPath, broker: int | None = None, *, files: Files = FILES) -> int:
    """Takes `.lock` of a log directory; the descriptor holds it. LogDirError when another broker has it.

    `broker` is the number of this process's broker; None locks the whole file exclusively.
    """
    fd = _open_lock(Path(path, LOCK), files)
    try:
        free = _lock_alone(fd) if broker is None else _share(fd, broker)
    except OSError:
        files.close(fd)
        raise
    if not free:
        files.close(fd)
        raise LogDirError(f"{path} is in use: another broker holds its {LOCK} file; stop that one first")
    return fd


def _open_lock(path: Path, files: Files) -> int:
    """Opens `.lock`, and creates it only if missing, since a hanging disk would block creation.

    Read-only if the disk allows only that: it suffices for a shared lock.
    """
    try:
        return files.open(path, os.O_RDWR)
    except FileNotFoundError:
        return files.open(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES):
            raise
        return files.open(path, os.O_RDONLY)


def _lock_alone(fd: int) -> bool:
    return _locked(fd, _WHOLE_FILE)


def _share(fd: int, broker: int) -> bool:
    """Checks first: a refused start must not block a process of the broker that owns the directory."""
    return not _others(fd, broker) and _locked(fd, _flock(fcntl.F_RDLCK, broker, 1)) and not _others(fd, broker)


def _locked(fd: int, flock: bytes) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, flock)
    except (BlockingIOError, PermissionError):  # the kernel's errors when another process has it
        return False
    return True


def _others(fd: int, broker: int) -> bool:
    """Whether another broker has locked a byte."""
    return _taken(fd, _flock(fcntl.F_WRLCK, 0, broker)) or _taken(fd, _flock(fcntl.F_WRLCK, broker + 1))


def _taken(fd: int, flock: bytes) -> bool:
    return bool(struct.unpack_from("h", fcntl.fcntl(fd, fcntl.F_OFD_GETLK, flock))[0] != fcntl.F_UNLCK)


def is_in_use(path: StrPath) -> bool:
    """Whether a broker on this machine, ours or Apache's, holds a log directory's `.lock`; OSError from opening it."""
    with FILES.opened(Path(path, LOCK), os.O_RDONLY) as fd:
        return _taken(fd, _WHOLE_FILE)


def agree_on_identity(
    log_dirs: Iterable[LogDir], node_id: int, cluster_id: str | None = None, *, files: Files = FILES
) -> MetaProperties:
    """Reads meta.properties of all usable directories, and writes missing ones.

    `cluster_id` is the one to use if no directory has one yet (None: a new random one). Returns the
    common identity; raises LogDirError when they differ, or belong to another broker or cluster.
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
    """Warns that a directory is used as a new one, as Kafka does. Once only: from now on it has meta.properties."""
    log.warning(
        "%s has neither meta.properties nor a log, unlike other log.dirs: using it as a new log directory. "
        "If its disk is not mounted, stop the broker before it makes empty logs there, and mount the disk",
        path,
    )


def _write_identity(path: Path, identity: MetaProperties, files: Files) -> None:
    try:
        write_meta_properties(path, identity, files=files)
    except OSError as error:
        raise LogDirError(f"{path}: meta.properties cannot be written: {error.strerror}") from None


def random_id() -> str:
    """A new id in Kafka's base64 form; it never begins with a dash, which commands would parse as an option."""
    while (text := format_uuid(uuid.uuid4().bytes)).startswith("-"):
        pass
    return text


def identity(path: Path) -> MetaProperties | None:
    """The meta.properties of a log directory, None without one. LogDirError when it is damaged."""
    try:
        return read_meta_properties(path)
    except CheckpointError as problem:
        raise LogDirError(f"{problem}; restore it, or remove it if this directory belongs to this broker") from None


def _one(what: str, found: Mapping[Path, T | None], expected: T | None) -> T | None:
    """The value that all directories have, else the expected one."""
    known = {path: value for path, value in found.items() if value is not None}
    for path, value in known.items():
        other = next((p for p, v in known.items() if v != value), None)
        if other is not None:
            raise LogDirError(
                f"{path} has {what} {value}, {other} has {known[other]}: they belong to different brokers"
            )
        if expected is not None and value != expected:
            raise LogDirError(
                f"{path} belongs to {what} {value}, not {expected}; change that setting, or use another log.dirs"
            )
    return next(iter(known.values()), expected)


def partitions_in(log_dir: StrPath) -> list[PartitionPlace]:
    """All partition directories of a log directory, also those marked -delete, -future, -stray.

    Raises LogDirError on any other sub-directory, since Kafka refuses to start with one; OSError from the disk.
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
    """(topic, partition) of each log in a log directory without a mark, sorted. OSError from the disk."""
    found = [names.parse_partition_dir(entry.name) for entry in os.scandir(log_dir) if entry.is_dir()]
    logs = [one for one in found if one is not None and not one.mark and one.topic != names.KRAFT_METADATA]
    return sorted((one.topic, one.partition) for one in logs)


def holds_only(log_dir: StrPath, known: set[tuple[str, int]]) -> bool:
    """Whether a log directory has no log outside `known`; False if it cannot be read."""
    try:
        return known.issuperset(logs_in(log_dir))
    except OSError:
        return False


def refuse_doubles(places: Iterable[PartitionPlace]) -> None:
    """LogDirError when a partition has two logs: a start must fail, as Kafka's does (LogManager.loadLog).

    One was created while the log directory of the other was offline; an operator has to choose which one to keep.
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
            f"{one.name} has two logs, {one} and {other}{more}: delete one of them or move it out of log.dirs; the one "
            "in a directory that had failed is probably outdated"
        )


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name
