"""A follower's requests to its leader, and the responses: Fetch v13 and ListOffsets v5, flat; records stay in place.

v13 has topic ids, the replica's id at the front and the diverging epoch in a tag (KIP-595); every leader since Kafka
3.1 supports it. `protocol.fetch` is the leader's side of the same bytes. A follower ignores a response's aborted
transactions, preferred replica and current leader.

Responses are read from a frame without its length; WireError when it is malformed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from odradek.protocol import wire
from odradek.protocol.fetch import FetchRequest

FETCH, FETCH_VERSION = 1, 13
LIST_OFFSETS, LIST_OFFSETS_VERSION = 2, 5
LATEST, EARLIEST = -1, -2

_HEADER = struct.Struct(">hhi")
_FRONT = struct.Struct(">iiiibii")
_PART = struct.Struct(">iiqiqi")
_REPLY = struct.Struct(">ihi")  # throttled for ms, error, session id
_PART_REPLY = struct.Struct(">ihqqq")  # index, error, high watermark, last stable offset, log start
_DIVERGING = struct.Struct(">iq")
_DIVERGING_TAG = 0
_ABORTED_SIZE = 16
_NO_RECORDS = memoryview(b"")

Found = TypeVar("Found")


class FetchedPartition(NamedTuple):
    """One partition's response; `records` lie in the frame's buffer, `diverging` is (epoch, its end at the leader)."""

    topic: bytes
    partition: int
    error: int
    hw: int
    log_start: int
    records: memoryview
    diverging: tuple[int, int] | None


class FetchResponse(NamedTuple):
    """A Fetch response; `error` is the session's."""

    error: int
    session_id: int
    parts: list[FetchedPartition]


class ListOffsetsPartition(NamedTuple):
    """One partition of ListOffsets: requested at `at` (LATEST, EARLIEST), answered with `error` and an offset."""

    topic: bytes  # its name
    partition: int
    leader_epoch: int = -1
    error: int = 0
    offset: int = -1


# -- requests


def encode_fetch(request: FetchRequest, correlation: int, client: bytes) -> bytes:
    """The whole frame of a Fetch."""
    out = [
        _HEADER.pack(FETCH, FETCH_VERSION, correlation) + wire.pack_string(client, False) + b"\x00",
        _FRONT.pack(
            request.replica, request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation,
            request.session_id, request.session_epoch,
        ),
    ]  # fmt: skip
    parts = _grouped((part.topic, _PART.pack(*part[1:]) + b"\x00") for part in request.parts)
    gone = _grouped((topic, wire.I32.pack(index)) for topic, index in request.forgotten)
    for groups in (parts, gone):
        out.append(wire.pack_count(len(groups), True))
        for topic, packed in groups.items():
            out += (topic, wire.pack_count(len(packed), True), *packed, b"\x00")
    out.append(wire.pack_string(request.rack, True) + b"\x00")
    return _framed(out)


def encode_list_offsets(
    replica: int, at: int, places: Sequence[ListOffsetsPartition], correlation: int, client: bytes
) -> bytes:
    """The whole frame of a ListOffsets request for the offset `at` (LATEST or EARLIEST) of each of `places`."""
    groups = _grouped((place.topic, struct.pack(">iiq", place.partition, place.leader_epoch, at)) for place in places)
    out = [
        _HEADER.pack(LIST_OFFSETS, LIST_OFFSETS_VERSION, correlation) + wire.pack_string(client, False),
        struct.pack(">ib", replica, 0) + wire.pack_count(len(groups), False),
    ]
    for topic, packed in groups.items():
        out += (wire.pack_string(topic, False), wire.pack_count(len(packed), False), *packed)
    return _framed(out)


def _grouped(packed: Iterable[tuple[bytes, bytes]]) -> dict[bytes, list[bytes]]:
    groups: dict[bytes, list[bytes]] = {}
    for topic, data in packed:
        groups.setdefault(topic, []).append(data)
    return groups


def _framed(pieces: list[bytes]) -> bytes:
    body = b"".join(pieces)
    return wire.I32.pack(len(body)) + body


# -- answers


def parse_fetch(frame: memoryview, correlation: int) -> FetchResponse:
    """The response to the Fetch with this correlation id."""
    return _checked(_fetch, frame, correlation)


def parse_list_offsets(frame: memoryview, correlation: int) -> list[ListOffsetsPartition]:
    """The response to the ListOffsets with this correlation id."""
    return _checked(_list_offsets, frame, correlation)


def _checked(parse: Callable[[memoryview, int], tuple[Found, int]], frame: memoryview, correlation: int) -> Found:
    """`parse` from after the correlation id; WireError for any error, and for bytes left over."""
    try:
        (got,) = wire.I32.unpack_from(frame, 0)
        if got != correlation:
            raise wire.WireError(f"answer {got} is to another request")
        found, at = parse(frame, 4)
    except (struct.error, IndexError) as error:
        raise wire.WireError(f"an answer ends before its time: {error}") from None
    if at != len(frame):
        raise wire.WireError(f"an answer of {len(frame) - at} bytes too many")
    return found


def _fetch(frame: memoryview, at: int) -> tuple[FetchResponse, int]:
    end = len(frame)
    at = wire.skip_tags(frame, at, end)
    _, error, session = _REPLY.unpack_from(frame, at)
    parts: list[FetchedPartition] = []
    topics, at = wire.count(frame, at + _REPLY.size, end, True)
    for _ in range(topics):
        topic = bytes(frame[at : at + 16])
        partitions, at = wire.count(frame, at + 16, end, True)
        for _ in range(partitions):
            part, at = _part(frame, at, end, topic)
            parts.append(part)
        at = wire.skip_tags(frame, at, end)
    return FetchResponse(error, session, parts), wire.skip_tags(frame, at, end)


def _part(frame: memoryview, at: int, end: int, topic: bytes) -> tuple[FetchedPartition, int]:
    index, error, hw, _, log_start = _PART_REPLY.unpack_from(frame, at)
    aborted, at = wire.count(frame, at + _PART_REPLY.size, end, True)
    for _ in range(aborted):
        at = wire.skip_tags(frame, at + _ABORTED_SIZE, end)
    size, at = wire.span(frame, at + 4, end, True)  # after the preferred read replica
    records = frame[at : at + size] if size > 0 else _NO_RECORDS
    diverging, at = _diverging(frame, at + max(size, 0), end)
    return FetchedPartition(topic, index, error, hw, log_start, records, diverging), at


def _diverging(frame: memoryview, at: int, end: int) -> tuple[tuple[int, int] | None, int]:
    if not frame[at]:
        return None, at + 1
    found, at = wire.tags(frame, at, end)
    for tag, start, _ in found:
        if tag == _DIVERGING_TAG:
            epoch, offset = _DIVERGING.unpack_from(frame, start)
            return (None if epoch < 0 else (epoch, offset)), at
    return None, at


def _list_offsets(frame: memoryview, at: int) -> tuple[list[ListOffsetsPartition], int]:
    end = len(frame)
    places: list[ListOffsetsPartition] = []
    topics, at = wire.count(frame, at + 4, end, False)  # after the throttle time
    for _ in range(topics):
        topic, at = wire.string(frame, at, end, False)
        partitions, at = wire.count(frame, at, end, False)
        for _ in range(partitions):
            index, error, _, offset, epoch = struct.unpack_from(">ihqqi", frame, at)
            places.append(ListOffsetsPartition(topic or b"", index, epoch, error, offset))
            at += 26
    return places, at
