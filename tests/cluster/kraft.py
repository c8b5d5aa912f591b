"""Values of KRaft's metadata records, encoded by hand, and a metadata log of them on disk."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from odradek.protocol import wire
from odradek.protocol.batch import CONTROL
from odradek.protocol.records import batch_v2
from odradek.storage.files import names

NO_TAGS = b"\0"
TOPIC_TYPE, BROKER_TYPE = 2, 4


def frame(api_key: int, fields: bytes, version: int = 0) -> bytes:
    return b"\x01" + wire.pack_uvarint(api_key) + wire.pack_uvarint(version) + fields


def text(value: str | None) -> bytes:
    return wire.pack_string(None if value is None else value.encode(), True)


def ints(values: Sequence[int]) -> bytes:
    return wire.pack_count(len(values), True) + b"".join(struct.pack(">i", value) for value in values)


def tagged(fields: dict[int, bytes]) -> bytes:
    parts = [wire.pack_uvarint(tag) + wire.pack_uvarint(len(data)) + data for tag, data in sorted(fields.items())]
    return wire.pack_uvarint(len(parts)) + b"".join(parts)


def topic(name: str, topic_id: bytes) -> bytes:
    return frame(2, text(name) + topic_id + NO_TAGS)


def partition(topic_id: bytes, index: int, replicas: Sequence[int] = (0,), isr: Sequence[int] = (0,)) -> bytes:
    lists = ints(replicas) + ints(isr) + ints(()) + ints(())
    fields = struct.pack(">i", index) + topic_id + lists + struct.pack(">iii", replicas[0], 4, 0) + NO_TAGS
    return frame(3, fields)


def partition_change(topic_id: bytes, index: int, **changed: Sequence[int] | int) -> bytes:
    """`isr`, `replicas`: lists; `leader`: a broker."""
    tags = {tag: ints(changed[name]) for tag, name in ((0, "isr"), (2, "replicas")) if name in changed}  # type: ignore[arg-type]  # these are lists
    if "leader" in changed:
        tags[1] = struct.pack(">i", changed["leader"])
    return frame(5, struct.pack(">i", index) + topic_id + tagged(tags))


def config(kind: int, resource: str, name: str, value: str | None) -> bytes:
    return frame(4, struct.pack(">b", kind) + text(resource) + text(name) + text(value) + NO_TAGS)


def remove_topic(topic_id: bytes) -> bytes:
    return frame(9, topic_id + NO_TAGS)


BEGIN, END, ABORT = (frame(key, NO_TAGS) for key in (23, 24, 25))
NO_OP = frame(20, NO_TAGS)
UNKNOWN = frame(99, b"whatever")


def batch(base: int, values: Sequence[bytes], epoch: int = 1) -> bytes:
    """A batch of the log with one record for each value."""
    rows = [(base + number, 1000, None, value, ()) for number, value in enumerate(values)]
    return batch_v2.build(rows, leader_epoch=epoch)


def control_batch(base: int, kind: int, value: bytes = b"\0\0\0\0", epoch: int = 1) -> bytes:
    row = (base, 1000, struct.pack(">hh", 0, kind), value, ())
    return batch_v2.build([row], attributes=CONTROL, leader_epoch=epoch)


def leader_change(base: int, voters: Sequence[int], epoch: int = 1) -> bytes:
    listed = wire.pack_count(len(voters), True) + b"".join(struct.pack(">i", one) + NO_TAGS for one in voters)
    return control_batch(base, 2, struct.pack(">hi", 0, voters[0]) + listed + b"\x01\0", epoch)


def snapshot(directory: Path, end: int, values: Sequence[bytes], epoch: int = 1) -> Path:
    """A complete snapshot of the log up to `end`."""
    parts = [control_batch(0, 3), batch(1, values) if values else b"", control_batch(1 + len(values), 4)]
    path = directory / f"{end:020d}-{epoch:010d}.checkpoint"
    path.write_bytes(b"".join(parts))
    return path


def segment(directory: Path, base: int, batches: Sequence[bytes]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = names.segment_path(directory, base)
    path.write_bytes(b"".join(batches))
    return path
