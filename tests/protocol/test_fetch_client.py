"""The leader reads the follower's requests, and the follower reads the leader's responses."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol import fetch, fetch_client, wire
from odradek.protocol.fetch import FetchPartition, FetchRequest, FetchResult
from odradek.protocol.fetch_client import EARLIEST, LATEST, ListOffsetsPartition
from odradek.protocol.library import message_class

INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TOPIC = st.sampled_from([bytes([number]) * 16 for number in range(3)])
EPOCH = st.integers(-1, (1 << 31) - 1)
PARTS = st.lists(st.builds(FetchPartition, TOPIC, INT32, EPOCH, INT64, INT32, INT64, INT32), max_size=20)
REQUESTS = st.builds(
    FetchRequest, INT32, INT32, INT32, INT32, st.integers(0, 1), INT32, INT32, PARTS,
    st.lists(st.tuples(TOPIC, INT32), max_size=5), st.binary(max_size=200),
)  # fmt: skip
RESULTS = st.builds(
    FetchResult, TOPIC, INT32, INT16, INT64, INT64, INT64,
    st.lists(st.binary(min_size=1, max_size=300), max_size=3),
    st.none() | st.lists(st.tuples(INT64, INT64), max_size=3),
    st.none() | st.tuples(st.integers(0, 100), INT64), preferred=INT32,
)  # fmt: skip


@given(REQUESTS, INT32)
def test_leader_reads_the_followers_fetch_request(request: FetchRequest, correlation: int) -> None:
    frame = memoryview(fetch_client.encode_fetch(request, correlation, b"broker-1"))
    assert wire.I32.unpack_from(frame)[0] == len(frame) - 4
    assert struct.unpack_from(">hhi", frame, 4) == (1, 13, correlation)
    begin = 4 + 8 + 2 + len(b"broker-1") + 1
    got = fetch.parse(frame, begin, len(frame), 13)
    by_topic = sorted(request.parts, key=lambda part: [one.topic for one in request.parts].index(part.topic))
    gone = sorted(request.forgotten, key=lambda one: [topic for topic, _ in request.forgotten].index(one[0]))
    assert got == request._replace(parts=by_topic, forgotten=gone)


@given(st.lists(RESULTS, max_size=10), INT32, INT32, INT16)
def test_follower_reads_the_leaders_fetch_response(
    results: list[FetchResult], correlation: int, session: int, error: int
) -> None:
    frame = b"".join(bytes(piece) for piece in fetch.response(13, correlation, results, error, session))  # type: ignore[arg-type]  # bytes, no file slices
    answer = fetch_client.parse_fetch(memoryview(frame)[4:], correlation)
    assert (answer.error, answer.session_id) == (error, session)
    for part, result in zip(answer.parts, results, strict=True):
        assert part[:5] == (result.topic, result.partition, result.error, result.hw, result.log_start)
        assert bytes(part.records) == b"".join(bytes(one) for one in result.payloads)  # type: ignore[arg-type]  # bytes, no file slices
        assert part.diverging == result.diverging


def test_unknown_diverging_epoch_is_none() -> None:
    frame = b"".join(fetch.response(13, 5, [_result(b"abc")._replace(diverging=(-1, -1))]))  # type: ignore[arg-type]  # bytes, no file slices
    assert fetch_client.parse_fetch(memoryview(frame)[4:], 5).parts[0].diverging is None


def test_records_are_not_copied() -> None:
    frame = bytearray(b"".join(fetch.response(13, 5, [_result(b"abc")])))  # type: ignore[arg-type]  # bytes, no file slices
    part = fetch_client.parse_fetch(memoryview(frame)[4:], 5).parts[0]
    frame[frame.index(b"abc")] = ord("X")
    assert bytes(part.records) == b"Xbc"


def test_tagged_fields_of_a_fetch_response_are_skipped() -> None:
    """A partition has tags 1 and 2, its current leader and its snapshot; the response and topics have tags, too."""
    tags = b"\x02" + b"\x01\x09" + struct.pack(">ii", 3, 4) + b"\x00" + b"\x02\x0d" + struct.pack(">qi", 5, 6) + b"\x00"
    body = (
        struct.pack(">i", 9) + b"\x00" + struct.pack(">ihi", 100, 0, 77) + b"\x02" + bytes(16) + b"\x02"
        + struct.pack(">ihqqq", 1, 6, 2, 3, 4) + b"\x00" + struct.pack(">i", 8) + b"\x00" + tags
        + b"\x01\x07\x01z" + b"\x01\x08\x02yy"
    )  # fmt: skip
    answer = fetch_client.parse_fetch(memoryview(body), 9)
    assert answer.parts == [fetch_client.FetchedPartition(bytes(16), 1, 6, 2, 4, memoryview(b""), None)]


def test_foreign_long_or_truncated_response_is_refused() -> None:
    frame = b"".join(fetch.response(13, 5, [_result(b"abc")], 0, 8))[4:]  # type: ignore[arg-type]  # bytes, no file slices
    with pytest.raises(wire.WireError, match="answer 5 is to another request"):
        fetch_client.parse_fetch(memoryview(frame), 6)
    with pytest.raises(wire.WireError, match="1 bytes too many"):
        fetch_client.parse_fetch(memoryview(frame + b"\x00"), 5)
    for size in range(len(frame)):
        with pytest.raises(wire.WireError):
            fetch_client.parse_fetch(memoryview(frame)[:size], 5)


@given(st.binary(max_size=120))
def test_random_bytes_are_a_wire_error_or_a_response(body: bytes) -> None:
    frame = memoryview(wire.I32.pack(1) + body)
    for parse in (fetch_client.parse_fetch, fetch_client.parse_list_offsets):
        try:
            parse(frame, 1)
        except wire.WireError:
            pass


@pytest.mark.parametrize("at", [LATEST, EARLIEST])
def test_library_reads_our_list_offsets_request(at: int) -> None:
    places = [ListOffsetsPartition(b"t", 0, 3), ListOffsetsPartition(b"u", 1, 4), ListOffsetsPartition(b"t", 2, 5)]
    frame = fetch_client.encode_list_offsets(7, at, places, 11, b"me")
    request = message_class("ListOffsetsRequest").decode(frame[4:], version=5, header=True, framed=False)
    assert request.header.correlation_id == 11
    assert (request.replica_id, request.isolation_level) == (7, 0)
    asked = [
        (t.name, p.partition_index, p.current_leader_epoch, p.timestamp) for t in request.topics for p in t.partitions
    ]
    assert asked == [("t", 0, 3, at), ("t", 2, 5, at), ("u", 1, 4, at)]


def test_list_offsets_response_of_the_library_is_read() -> None:
    kind = message_class("ListOffsetsResponse")
    topic = kind.ListOffsetsTopicResponse
    part = topic.ListOffsetsPartitionResponse(
        partition_index=4, error_code=3, timestamp=9, offset=100, leader_epoch=6, version=5
    )
    response = kind(throttle_time_ms=0, topics=[topic(name="t", partitions=[part], version=5)], version=5)
    response.with_header(correlation_id=8)
    body = response.encode(header=True, framed=False)
    places = fetch_client.parse_list_offsets(memoryview(body), 8)
    assert places == [ListOffsetsPartition(b"t", 4, 6, 3, 100)]
    with pytest.raises(wire.WireError):
        fetch_client.parse_list_offsets(memoryview(body)[:-1], 8)


def _result(records: bytes) -> FetchResult:
    return FetchResult(bytes(16), 0, 0, 1, 1, 0, [records])
