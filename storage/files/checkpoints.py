"""Kafka's small text files: offset checkpoints, meta.properties, partition.metadata, the shutdown mark.

    recovery-point-offset-checkpoint    all offsets below are synced to the disk
    replication-offset-checkpoint       high watermarks
    log-start-offset-checkpoint         log start offsets that are above the first segment's base
    cleaner-offset-checkpoint           compacted up to
        one per log directory: version 0, count, then one line `<topic> <partition> <offset>` per partition
    meta.properties                     one per log directory: cluster.id, broker.id, directory.id
    partition.metadata                  one per partition: `version: 0`, `topic_id: <22 characters>`
    .kafka_cleanshutdown                one per log directory: present after a clean stop

Owner: the janitor writes the offset checkpoints (not alone: broker.process.checkpoint_lock), the supervisor the
rest, the process that creates a partition its metadata; any process may read. Crash rule: all are replaced atomically
and synced. A missing or malformed checkpoint means offset 0 (more to recover), never a trusted log.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, overload

from odradek.protocol.wire import INT32_MAX, INT64_MAX
from odradek.storage.files.durable import FILES, Files, StrPath, read_file, remove, replace

RECOVERY_POINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"
CLEANER = "cleaner-offset-checkpoint"
OFFSET_CHECKPOINTS = (RECOVERY_POINT, HIGH_WATERMARK, LOG_START, CLEANER)

META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

CHECKPOINT_VERSION = 0
Offsets = dict[tuple[str, int], int]
T = TypeVar("T")


class CheckpointError(Exception):
    """A file of this module exists but is malformed; the message says why."""


# --- Kafka's checkpoint text: version, count, one entry a line ---


def write_entries(path: StrPath, lines: Sequence[str], *, files: Files = FILES) -> None:
    """Writes `lines` under a version and their count, atomically."""
    text = "".join(f"{line}\n" for line in (CHECKPOINT_VERSION, len(lines), *lines))
    replace(path, text.encode(), files=files)


def read_entries(path: StrPath, parse: Callable[[list[str]], T]) -> list[T]:
    """Each entry line's words through `parse`; [] when the file is missing or empty.

    Raises CheckpointError on another version, a wrong count or a line that `parse` refuses.
    """
    try:
        lines = read_file(path).decode("utf-8").splitlines()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: not text: {error}") from None
    if len(lines) < 2:
        return []
    _check_head(path, lines)
    return [_entry(path, number, line, parse) for number, line in enumerate(lines[2:], 3)]


def _check_head(path: StrPath, lines: list[str]) -> None:
    version, count = (_entry(path, number, lines[number - 1], _one_int) for number in (1, 2))
    if version != CHECKPOINT_VERSION:
        raise CheckpointError(f"{path}: unsupported version {version}, expected {CHECKPOINT_VERSION}")
    if count != len(lines) - 2:
        raise CheckpointError(f"{path}: {count} entries announced, {len(lines) - 2} found")


def _entry(path: StrPath, number: int, line: str, parse: Callable[[list[str]], T]) -> T:
    try:
        return parse(line.split())
    except ValueError:
        raise CheckpointError(f"{path}: line {number} is malformed: {line!r}") from None


def _one_int(words: list[str]) -> int:
    (word,) = words
    return int(word)


# --- offset checkpoints ---


def write_offsets(log_dir: StrPath, name: str, offsets: Mapping[tuple[str, int], int], *, files: Files = FILES) -> None:
    """Writes checkpoint `name` (e.g. RECOVERY_POINT) of `log_dir`: (topic, partition) → offset."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    write_entries(Path(log_dir, name), lines, files=files)


def read_offsets(log_dir: StrPath, name: str) -> Offsets:
    """Checkpoint `name` of `log_dir`, {} when there is none; CheckpointError when malformed."""
    return dict(read_entries(Path(log_dir, name), _parse_offset))


class OffsetFile:
    """A cached checkpoint `name` of `log_dir`: read again only when the file was replaced. Threads may share it."""

    def __init__(self, log_dir: StrPath, name: str) -> None:
        self.log_dir, self.name = log_dir, name
        self._cached: tuple[tuple[int, int, int], Offsets] | None = None  # identity of the file read, and its offsets

    def read(self) -> Offsets:
        """As `read_offsets`; callers must not change it."""
        try:
            found = os.stat(Path(self.log_dir, self.name))
        except FileNotFoundError:
            return {}
        file, known = (found.st_ino, found.st_mtime_ns, found.st_size), self._cached
        if known is None or known[0] != file:
            self._cached = known = file, read_offsets(self.log_dir, self.name)
        return known[1]


def _parse_offset(words: list[str]) -> tuple[tuple[str, int], int]:
    topic, partition, offset = words
    if not -INT64_MAX - 1 <= int(offset) <= INT64_MAX:
        raise ValueError(offset)
    return (topic, int(partition)), int(offset)


# --- the mark of a clean stop ---


def mark_clean_shutdown(log_dir: StrPath, broker_epoch: int = -1, *, files: Files = FILES) -> None:
    """Writes the mark that everything was flushed; the last step of a clean stop."""
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    replace(Path(log_dir, CLEAN_SHUTDOWN), content.encode(), files=files)


def consume_clean_shutdown(log_dir: StrPath, *, files: Files = FILES) -> bool:
    """Whether the last stop was clean; removes the mark durably before anything is opened.

    Otherwise a crash between this start and the next stop would count as a clean stop.
    """
    if not remove(Path(log_dir, CLEAN_SHUTDOWN), files=files):
        return False
    files.sync_dir(log_dir)
    return True


# --- topic ids: 16 bytes, written as Kafka's Uuid in 22 characters of URL-safe base64 ---


def format_uuid(value: bytes) -> str:
    """16 bytes as 22 characters without padding."""
    if len(value) != 16:
        raise ValueError(f"a topic id has 16 bytes, not {len(value)}")
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def parse_uuid(text: str) -> bytes:
    """The 16 bytes of the id `text`; ValueError when it is not such an id."""
    if len(text) > 24:
        raise ValueError(f"{text!r} is too long for an id in base64")
    value = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if len(value) != 16:
        raise ValueError(f"{text!r} holds {len(value)} bytes, an id has 16")
    return value


def write_partition_metadata(directory: StrPath, topic_id: bytes, *, sync: bool = True) -> None:
    """Writes `partition.metadata` for the topic with this 16-byte id."""
    content = f"version: 0\ntopic_id: {format_uuid(topic_id)}"
    replace(Path(directory, PARTITION_METADATA), content.encode(), sync=sync)


def read_partition_metadata(directory: StrPath) -> bytes | None:
    """The 16-byte topic id of a partition directory, None without the file (before Kafka 2.8)."""
    path = os.path.join(directory, PARTITION_METADATA)
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: not text: {error}") from None
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    if fields.get("version") != "0":
        raise CheckpointError(f"{path}: unsupported version {fields.get('version')!r}, expected 0")
    try:
        return parse_uuid(fields["topic_id"])
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{path}: no valid topic_id: {error}") from None


# --- meta.properties ---


@dataclass(frozen=True)
class MetaProperties:
    """The cluster, broker and directory ids of a log directory (KIP-78, KIP-858).

    Version 0 is ZooKeeper's (`broker.id`), version 1 KRaft's (`node.id`). None: not recorded.
    """

    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: str | None = None
    version: int = 0

    def lines(self) -> list[str]:
        named = {
            "version": self.version,
            "cluster.id": self.cluster_id,
            "broker.id" if self.version == 0 else "node.id": self.node_id,
            "directory.id": self.directory_id,
        }
        return [f"{key}={value}" for key, value in named.items() if value is not None]


def write_meta_properties(log_dir: StrPath, meta: MetaProperties, *, files: Files = FILES) -> None:
    text = "#\n" + "".join(f"{line}\n" for line in meta.lines())
    replace(Path(log_dir, META_PROPERTIES), text.encode(), files=files)


def read_meta_properties(log_dir: StrPath) -> MetaProperties | None:
    """`meta.properties` of a log directory, None without one; CheckpointError when malformed."""
    path = Path(log_dir, META_PROPERTIES)
    try:
        return _meta_from(_parse_properties(path.read_text("utf-8")))
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise CheckpointError(f"{path}: it is damaged: not text") from None
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from None
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from None


def _parse_properties(text: str) -> dict[str, str]:
    pairs = (line.strip() for line in text.splitlines())
    split = (line.partition("=") for line in pairs if line and line[0] not in "#!")
    return {key.strip(): value.strip().replace("\\", "") for key, _, value in split}


def _meta_from(properties: dict[str, str]) -> MetaProperties:
    version = _number("version", properties.get("version", "0"))
    if version not in (0, 1):
        raise ValueError(f"unsupported version {version}, expected 0 or 1")
    name = "broker.id" if version == 0 else "node.id"
    node = _number(name, properties.get(name))
    cluster = properties.get("cluster.id")
    if node is None and cluster is None:
        raise ValueError("it has neither a cluster id nor a broker id")
    if version == 1 and (node is None or cluster is None):
        raise ValueError("version 1 needs cluster.id and node.id")
    return MetaProperties(cluster, node, properties.get("directory.id"), version)


@overload
def _number(name: str, text: str) -> int: ...


@overload
def _number(name: str, text: str | None) -> int | None: ...


def _number(name: str, text: str | None) -> int | None:
    """A non-negative int32 value; None stays None. ValueError names any other value."""
    if text is None:
        return None
    if text.isascii() and text.isdigit() and int(text) <= INT32_MAX:
        return int(text)
    raise ValueError(f"{name} is {text!r}, not a number from 0 to {INT32_MAX}")
