"""Fetch (key 1), versions 0 to 18, decoded and encoded flat; record bytes stay in their files.

Facts from Kafka's FetchRequest/FetchResponse schemas: v3 bounds the whole response, v4 isolation level, v5 log start
offset, v7 sessions (KIP-227), v9 leader epoch (KIP-320), v11 rack, v12 flexible and last fetched epoch, v13 topic
ids, v15 moves the replica id into a tag, v17 and v18 add tags that are ignored.

A response is a list of `bytes` and of payloads: anything with a `size`, which the connection sends from its file.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from odradek.protocol import wire

FLEXIBLE = 12
READ_COMMITTED = 1  # the isolation level
TOPIC_IDS = 13
VERSIONS = (0, 18)
NO_LIMIT = wire.INT32_MAX

_SESSION = struct.Struct(">ii")


class FetchPartition(NamedTuple):
    """One requested partition; epochs are -1 when the client does not know them."""

    topic: bytes  # name, or 16 bytes of topic id from v13 on
    partition: int
    leader_epoch: int
    offset: int
    last_epoch: int
    log_start: int
    max_bytes: int


class FetchRequest(NamedTuple):
    """A parsed request; `replica` is the follower's broker id or -1 for a consumer."""

    replica: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int
    session_id: int
    session_epoch: int
    parts: list[FetchPartition]
    forgotten: list[tuple[bytes, int]]
    rack: bytes


_PART_5 = struct.Struct(">iqqi")
_PART_0 = struct.Struct(">iqi")
_PART_9 = struct.Struct(">iiqqi")
_PART_12 = struct.Struct(">iiqiqi")


def parse(buf: memoryview, at: int, end: int, version: int) -> FetchRequest:
    """The request whose body lies in buf[at:end]; WireError, struct.error or IndexError when malformed.

    Ignores bytes after it, as Kafka does.
    """
    flexible = version >= FLEXIBLE
    replica, session, epoch, isolation, limit = -1, 0, -1, 0, NO_LIMIT
    if version < 15:
        (replica,) = wire.I32.unpack_from(buf, at)
        at += 4
    wait, least = _SESSION.unpack_from(buf, at)
    at += 8
    if version >= 3:
        (limit,) = wire.I32.unpack_from(buf, at)
        at += 4
    if version >= 4:
        isolation = buf[at]
        at += 1
    if version >= 7:
        session, epoch = _SESSION.unpack_from(buf, at)
        at += 8
    parts, at = _parts(buf, at, end, version)
    forgotten: list[tuple[bytes, int]] = []
    if version >= 7:
        forgotten, at = _forgotten(buf, at, end, version)
    rack = b""
    if version >= 11:
        text, at = wire.string(buf, at, end, flexible)
        if text is None:
            raise wire.WireError("rack id is null")
        rack = text
    if flexible:
        replica, at = _top_tags(buf, at, end, version, replica)
    if at > end:
        raise wire.WireError("fetch request runs past its frame")
    return FetchRequest(replica, wait, least, limit, isolation, session, epoch, parts, forgotten, rack)


def _topic(buf: memoryview, at: int, end: int, version: int) -> tuple[bytes, int]:
    if version >= TOPIC_IDS:
        if end - at < 16:
            raise wire.WireError("topic id runs past its frame")
        return bytes(buf[at : at + 16]), at + 16
    name, at = wire.string(buf, at, end, version >= FLEXIBLE)
    if name is None:
        raise wire.WireError("topic name is null")
    return name, at


def skip_topic(buf: memoryview, at: int, end: int, version: int) -> int:
    """The position after a topic's name or id."""
    return _topic(buf, at, end, version)[1]


def _parts(buf: memoryview, at: int, end: int, version: int) -> tuple[list[FetchPartition], int]:
    flexible = version >= FLEXIBLE
    parts: list[FetchPartition] = []
    tagged = 0
    topics, at = wire.present(buf, at, end, flexible)
    for _ in range(topics):
        topic, at = _topic(buf, at, end, version)
        partitions, at = wire.present(buf, at, end, flexible)
        wire.check_elements(topics + len(parts) + partitions)
        for _ in range(partitions):
            part, at = _part(buf, at, topic, version)
            parts.append(part)
            if flexible:
                at, tagged = wire.pass_tags(buf, at, end, tagged)
        if flexible:
            at, tagged = wire.pass_tags(buf, at, end, tagged)
    return parts, at


def _part(buf: memoryview, at: int, topic: bytes, version: int) -> tuple[FetchPartition, int]:
    if version >= 12:
        index, leader_epoch, offset, last_epoch, log_start, limit = _PART_12.unpack_from(buf, at)
        return FetchPartition(
            topic, index, max(leader_epoch, -1), offset, last_epoch, log_start, limit
        ), at + _PART_12.size
    if version >= 9:
        index, leader_epoch, offset, log_start, limit = _PART_9.unpack_from(buf, at)
        return FetchPartition(topic, index, max(leader_epoch, -1), offset, -1, log_start, limit), at + _PART_9.size
    if version >= 5:
        index, offset, log_start, limit = _PART_5.unpack_from(buf, at)
        return FetchPartition(topic, index, -1, offset, -1, log_start, limit), at + _PART_5.size
    index, offset, limit = _PART_0.unpack_from(buf, at)
    return FetchPartition(topic, index, -1, offset, -1, -1, limit), at + _PART_0.size


def _forgotten(buf: memoryview, at: int, end: int, version: int) -> tuple[list[tuple[bytes, int]], int]:
    flexible = version >= FLEXIBLE
    forgotten: list[tuple[bytes, int]] = []
    tagged = 0
    topics, at = wire.present(buf, at, end, flexible)
    for _ in range(topics):
        topic, at = _topic(buf, at, end, version)
        partitions, at = wire.present(buf, at, end, flexible)
        wire.check_elements(topics + len(forgotten) + partitions)
        for _ in range(partitions):
            forgotten.append((topic, wire.I32.unpack_from(buf, at)[0]))
            at += 4
        if flexible:
            at, tagged = wire.pass_tags(buf, at, end, tagged)
    return forgotten, at


def _top_tags(buf: memoryview, at: int, end: int, version: int, replica: int) -> tuple[int, int]:
    found, at = wire.tags(buf, at, end)
    for tag, start, _ in found:
        if tag == 0:
            wire.string(buf, start, end, True)  # the cluster id: unused, but Kafka refuses a malformed string
        elif tag == 1 and version >= 15:
            (replica,) = wire.I32.unpack_from(buf, start)
    return replica, at


class Payload(Protocol):
    """Record bytes by reference."""

    size: int


def size_of(pieces: Sequence[Payload | bytes]) -> int:
    """The total bytes of `pieces`."""
    return sum(len(piece) if isinstance(piece, bytes) else piece.size for piece in pieces)


class FetchResult(NamedTuple):
    """The response data of one partition.

    `payloads` are its records in order, `aborted` (producer id, first offset), `diverging` the point where a follower's
    log diverges (epoch, end offset; v12+), `preferred` the broker to fetch from instead (v11+), -1 for none.
    """

    topic: bytes
    partition: int
    error: int
    hw: int
    stable: int
    log_start: int
    payloads: Sequence[Payload | bytes] = ()
    aborted: Sequence[tuple[int, int]] | None = None
    diverging: tuple[int, int] | None = None
    preferred: int = -1


def response(
    version: int,
    correlation: int,
    results: Sequence[FetchResult],
    error: int = 0,
    session_id: int = 0,
    throttle_ms: int = 0,
) -> list[bytes | Payload]:
    """The whole frame as a list to send in order; results of one topic must be adjacent."""
    flexible = version >= FLEXIBLE
    out: list[bytes | Payload] = []
    text = [wire.I32.pack(correlation), b"\x00" if flexible else b""]
    if version >= 1:
        text.append(wire.I32.pack(throttle_ms))
    if version >= 7:
        text.append(struct.pack(">hi", error, session_id))
    groups = _by_topic(results)
    text.append(wire.pack_count(len(groups), flexible))
    for topic, parts in groups:
        text.append(topic if version >= TOPIC_IDS else wire.pack_string(topic, flexible))
        text.append(wire.pack_count(len(parts), flexible))
        for part in parts:
            text.append(_part_head(part, version, flexible))
            if part.payloads:
                out.append(b"".join(text))
                text = []
                out.extend(part.payloads)
            if flexible:
                text.append(_part_tags(part))
        if flexible:
            text.append(b"\x00")
    if flexible:
        text.append(b"\x00")
    if text:
        out.append(b"".join(text))
    first = out[0]
    assert isinstance(first, bytes)
    out[0] = wire.I32.pack(size_of(out)) + first
    return out


def _by_topic(results: Sequence[FetchResult]) -> list[tuple[bytes, list[FetchResult]]]:
    groups: list[tuple[bytes, list[FetchResult]]] = []
    for result in results:
        if groups and groups[-1][0] == result.topic:
            groups[-1][1].append(result)
        else:
            groups.append((result.topic, [result]))
    return groups


_HEAD_0 = struct.Struct(">ihq")
_HEAD_4 = struct.Struct(">ihqq")
_HEAD_5 = struct.Struct(">ihqqq")


def _part_head(part: FetchResult, version: int, flexible: bool) -> bytes:
    """A partition's response up to its records, including their length."""
    if version >= 5:
        out = _HEAD_5.pack(part.partition, part.error, part.hw, part.stable, part.log_start)
    elif version >= 4:
        out = _HEAD_4.pack(part.partition, part.error, part.hw, part.stable)
    else:
        out = _HEAD_0.pack(part.partition, part.error, part.hw)
    if version >= 4:
        out += _aborted(part.aborted, flexible)
    if version >= 11:
        out += wire.I32.pack(part.preferred)
    return out + wire.pack_count(size_of(part.payloads), flexible)


def _aborted(aborted: Sequence[tuple[int, int]] | None, flexible: bool) -> bytes:
    if aborted is None:
        return wire.pack_count(-1, flexible)
    tail = b"\x00" if flexible else b""
    return wire.pack_count(len(aborted), flexible) + b"".join(struct.pack(">qq", *one) + tail for one in aborted)


def _part_tags(part: FetchResult) -> bytes:
    if part.diverging is None:
        return b"\x00"
    epoch, end = part.diverging
    return b"\x01\x00" + wire.pack_uvarint(13) + struct.pack(">iq", epoch, end) + b"\x00"
