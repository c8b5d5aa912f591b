"""Produce (key 0), versions 0 to 13, decoded and encoded flat.

Facts from Kafka's ProduceRequest/ProduceResponse schemas: v3 adds the transactional id; v9 is flexible; v13 has topic
ids instead of names. Responses: v1 adds the throttle time, v2 the append time, v5 the log start offset, v8 record
errors and a message, v10 (tagged) the current leader, which is only sent with NOT_LEADER.

A client sends the same bytes before the records again and again, so a parsed request returns the bytes between the
correlation id and the record length (`prefix`): the next request that begins with them needs no parsing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple, Protocol

from odradek.protocol import wire

FLEXIBLE = 9
TOPIC_IDS = 13
VERSIONS = (0, 13)
_HEAD = struct.Struct(">hi")


class ProducePart(NamedTuple):
    """One partition of a request; `start`/`size` place its records in the frame's buffer (size -1: null)."""

    topic: bytes  # name, or 16 bytes of topic id from v13 on
    partition: int
    start: int
    size: int


class ProduceRequest(NamedTuple):
    """A parsed request; `prefix_end` is the position of the records' length, for a request of one partition."""

    acks: int
    timeout_ms: int
    transactional_id: bytes | None
    parts: list[ProducePart]
    prefix_end: int


def parse(buf: memoryview, at: int, end: int, version: int) -> ProduceRequest:
    """The request whose body lies in buf[at:end]; WireError or struct.error when malformed.

    Ignores bytes after it, as Kafka does.
    """
    flexible = version >= FLEXIBLE
    transactional_id: bytes | None = None
    if version >= 3:
        transactional_id, at = wire.string(buf, at, end, flexible)
    acks, timeout = _HEAD.unpack_from(buf, at)
    topics, at = wire.present(buf, at + 6, end, flexible)
    parts: list[ProducePart] = []
    prefix_end, tagged = at, 0
    for _ in range(topics):
        topic, at = _topic(buf, at, end, version, flexible)
        partitions, at = wire.present(buf, at, end, flexible)
        wire.check_elements(topics + len(parts) + partitions)
        for _ in range(partitions):
            (index,) = wire.I32.unpack_from(buf, at)
            prefix_end = at + 4
            size, start = wire.span(buf, prefix_end, end, flexible)
            parts.append(ProducePart(topic, index, start, size))
            at = start + max(size, 0)
            if flexible:
                at, tagged = wire.pass_tags(buf, at, end, tagged)
        if flexible:
            at, tagged = wire.pass_tags(buf, at, end, tagged)
    if flexible:
        at = wire.skip_tags(buf, at, end)
    if at > end:
        raise wire.WireError("produce request runs past its frame")
    return ProduceRequest(acks, timeout, transactional_id, parts, prefix_end)


def _topic(buf: memoryview, at: int, end: int, version: int, flexible: bool) -> tuple[bytes, int]:
    if version >= TOPIC_IDS:
        if end - at < 16:
            raise wire.WireError("topic id runs past its frame")
        return bytes(buf[at : at + 16]), at + 16
    name, at = wire.string(buf, at, end, flexible)
    if name is None:
        raise wire.WireError("topic name is null")
    return name, at


class PartResult(NamedTuple):
    """The response data of one partition."""

    topic: bytes
    partition: int
    error: int
    base_offset: int
    append_time: int
    log_start: int
    message: str | None = None
    record_errors: tuple[tuple[int, str | None], ...] = ()


class StoredBatch(Protocol):
    """The response data of a stored batch, with its request's correlation id."""

    correlation: int
    base_offset: int
    append_time: int
    log_start: int


def single_reply(version: int, topic: bytes, index: int) -> Callable[[StoredBatch], bytes]:
    """A function that makes the whole success frame, length first, for one partition: one pack call each."""
    flexible = version >= FLEXIBLE
    named = topic if version >= TOPIC_IDS else wire.pack_string(topic, flexible)
    head = (b"\x00" if flexible else b"") + wire.pack_count(1, flexible) + named + wire.pack_count(1, flexible)
    head += wire.I32.pack(index) + b"\x00\x00"  # no error
    tail = _tail(version, flexible)
    fields = 1 + (version >= 2) + (version >= 5)
    packer = struct.Struct(f">ii{len(head)}s{fields}q{len(tail)}s")
    pack, size = packer.pack, packer.size - 4
    if fields == 3:
        return lambda s: pack(size, s.correlation, head, s.base_offset, s.append_time, s.log_start, tail)
    if fields == 2:
        return lambda s: pack(size, s.correlation, head, s.base_offset, s.append_time, tail)
    return lambda s: pack(size, s.correlation, head, s.base_offset, tail)


def _tail(version: int, flexible: bool) -> bytes:
    """The bytes after a partition's log start offset without an error, to the end of the frame."""
    tail = b""
    if version >= 8:
        tail += wire.pack_count(0, flexible) + wire.pack_string(None, flexible)
    if flexible:
        tail += b"\x00\x00"  # partition's and topic's tags
    if version >= 1:
        tail += wire.I32.pack(0)
    return tail + (b"\x00" if flexible else b"")


def response(version: int, correlation: int, results: list[PartResult], throttle_ms: int = 0) -> bytes:
    """The whole frame for any number of partitions; those of one topic must be adjacent."""
    flexible = version >= FLEXIBLE
    topics: dict[bytes, list[PartResult]] = {}
    for result in results:
        topics.setdefault(result.topic, []).append(result)
    out = [b"", wire.I32.pack(correlation), b"\x00" if flexible else b"", wire.pack_count(len(topics), flexible)]
    for topic, parts in topics.items():
        out.append(topic if version >= TOPIC_IDS else wire.pack_string(topic, flexible))
        out.append(wire.pack_count(len(parts), flexible))
        out.extend(_part(part, version, flexible) for part in parts)
        out.append(b"\x00" if flexible else b"")
    if version >= 1:
        out.append(wire.I32.pack(throttle_ms))
    out.append(b"\x00" if flexible else b"")
    out[0] = wire.I32.pack(sum(map(len, out)))
    return b"".join(out)


def _part(part: PartResult, version: int, flexible: bool) -> bytes:
    out = struct.pack(">ihq", part.partition, part.error, part.base_offset)
    if version >= 2:
        out += wire.I64.pack(part.append_time)
    if version >= 5:
        out += wire.I64.pack(part.log_start)
    if version >= 8:
        out += wire.pack_count(len(part.record_errors), flexible)
        out += b"".join([_record_error(index, text, flexible) for index, text in part.record_errors])
        out += wire.pack_string(None if part.message is None else part.message.encode(), flexible)
    return out + (b"\x00" if flexible else b"")


def _record_error(index: int, text: str | None, flexible: bool) -> bytes:
    message = wire.pack_string(None if text is None else text.encode(), flexible)
    return wire.I32.pack(index) + message + (b"\x00" if flexible else b"")
