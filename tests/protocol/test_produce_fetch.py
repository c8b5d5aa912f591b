"""The flat codecs of Produce and Fetch against kafka-python's schemas: every version, both directions."""

from __future__ import annotations

import struct
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from odradek.protocol import fetch, produce, wire
from odradek.protocol.fetch import FetchResult
from odradek.protocol.produce import PartResult, single_reply

PRODUCE = range(produce.VERSIONS[0], produce.VERSIONS[1] + 1)
FETCH = range(fetch.VERSIONS[0], fetch.VERSIONS[1] + 1)
names = st.text("abcdefghijklmnopqrstuvwxyz.-_0123456789", min_size=1, max_size=30)
int32, int64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
int16, index = st.integers(-(1 << 15), (1 << 15) - 1), st.integers(0, (1 << 31) - 1)
MALFORMED = (wire.WireError, struct.error, IndexError)


def encoded(request: Any) -> bytes:
    request._header = None
    return bytes(request.encode(version=request.API_VERSION))


def around(body: bytes) -> tuple[memoryview, int, int]:
    """The body in the middle of a larger buffer, as in the worker."""
    return memoryview(b"\xaa" * 13 + body + b"\xff" * 64), 13, 13 + len(body)


def topic_of(name: str, by_id: bool) -> tuple[bytes, dict[str, Any]]:
    """The topic as our parser returns it, and its field in the request."""
    if by_id:
        topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, name)
        return topic_id.bytes, {"topic_id": topic_id}
    return name.encode(), {"name": name}


def decoded(response: Any, version: int, frame: bytes) -> Any:
    """The response in a frame; checks that it ends with the frame."""
    (size,) = struct.unpack_from(">i", frame)
    assert size == len(frame) - 4
    assert struct.unpack_from(">i", frame, 4) == (77,)
    flexible = response.flexible_version_q(version)
    body = memoryview(frame)[9 if flexible else 8 :]
    assert not flexible or frame[8] == 0
    decode = response._struct.compiled_decode_from(
        version, compact=flexible, tagged=flexible, data_class=response[None]
    )
    found, end = decode(body, 0)
    assert end == len(body)
    return found


# Produce

parts_to_write = st.dictionaries(
    names, st.lists(st.tuples(index, st.none() | st.binary(max_size=300)), max_size=4), max_size=4
)


def produce_body(
    version: int, acks: int, timeout: int, transaction: str | None, topics: dict[str, list[tuple[int, bytes | None]]]
) -> bytes:
    topic_class = ProduceRequest.TopicProduceData
    data = [
        topic_class(
            partition_data=[topic_class.PartitionProduceData(index=n, records=records) for n, records in parts],
            **topic_of(name, version >= produce.TOPIC_IDS)[1],
        )
        for name, parts in topics.items()
    ]
    request = ProduceRequest[version](transactional_id=transaction, acks=acks, timeout_ms=timeout, topic_data=data)
    return encoded(request)


@pytest.mark.parametrize("version", PRODUCE)
@given(acks=int16, timeout=int32, transaction=st.none() | names, topics=parts_to_write)
@settings(max_examples=15)
def test_produce_requests_of_the_library_are_parsed(
    version: int, acks: int, timeout: int, transaction: str | None, topics: dict[str, list[tuple[int, bytes | None]]]
) -> None:
    buffer, start, end = around(produce_body(version, acks, timeout, transaction, topics))
    request = produce.parse(buffer, start, end, version)
    assert (request.acks, request.timeout_ms) == (acks, timeout)
    assert request.transactional_id == (transaction.encode() if transaction is not None and version >= 3 else None)
    found = [
        (part.topic, part.partition, None if part.size < 0 else bytes(buffer[part.start : part.start + part.size]))
        for part in request.parts
    ]
    assert found == [
        (topic_of(name, version >= produce.TOPIC_IDS)[0], n, records)
        for name, parts in topics.items()
        for n, records in parts
    ]


@pytest.mark.parametrize("version", PRODUCE)
def test_prefix_of_a_produce_request_ends_before_its_records(version: int) -> None:
    one, other = (produce_body(version, -1, 5, None, {"t": [(3, records)]}) for records in (b"abc", b"x" * 90))
    ends = [produce.parse(*around(body), version).prefix_end for body in (one, other)]
    assert ends[0] == ends[1]
    assert one[: ends[0] - 13] == other[: ends[0] - 13]
    assert one[ends[0] - 13 :] != other[ends[0] - 13 :]


@pytest.mark.parametrize("version", PRODUCE)
def test_truncated_produce_request_is_malformed(version: int) -> None:
    body = produce_body(version, -1, 5, None, {"t": [(3, b"abc"), (4, b"de")], "u": [(0, b"f")]})
    for end in range(len(body)):
        with pytest.raises(MALFORMED):
            produce.parse(memoryview(body[:end]), 0, end, version)
    whole = produce.parse(*around(body), version)
    assert produce.parse(memoryview(body + b"\0"), 0, len(body) + 1, version).parts == [
        part._replace(start=part.start - 13) for part in whole.parts
    ]


@pytest.mark.parametrize("version", PRODUCE)
def test_null_array_of_a_produce_request_is_malformed(version: int) -> None:
    topics, flexible = produce_body(version, -1, 5, None, {}), version >= produce.FLEXIBLE
    null = topics[:-2] + b"\0\0" if flexible else topics[:-4] + b"\xff" * 4
    assert produce.parse(*around(topics), version).parts == []
    with pytest.raises(wire.WireError, match="array is null"):
        produce.parse(*around(null), version)


results = st.builds(
    PartResult,
    topic=st.just(b""), partition=index, error=int16, base_offset=int64, append_time=int64, log_start=int64,
    message=st.none() | st.text(max_size=20),
    record_errors=st.lists(st.tuples(index, st.none() | st.text(max_size=10)), max_size=3).map(tuple),
)  # fmt: skip


def told(version: int, part: Any) -> tuple[Any, ...]:
    """The fields of a partition in a decoded Produce response that its version has."""
    found = [part.index, part.error_code, part.base_offset]
    found += [part.log_append_time_ms] if version >= 2 else []
    found += [part.log_start_offset] if version >= 5 else []
    if version >= 8:
        errors = tuple((e.batch_index, e.batch_index_error_message) for e in part.record_errors)
        found += [part.error_message, errors]
    return tuple(found)


def meant(version: int, part: PartResult) -> tuple[Any, ...]:
    found = [part.partition, part.error, part.base_offset]
    found += [part.append_time] if version >= 2 else []
    found += [part.log_start] if version >= 5 else []
    return tuple(found + ([part.message, part.record_errors] if version >= 8 else []))


def topic_said(topic: Any, by_id: bool) -> bytes:
    return bytes(topic.topic_id.bytes) if by_id else topic.name.encode()


@pytest.mark.parametrize("version", PRODUCE)
@given(topics=st.dictionaries(names, st.lists(results, min_size=1, max_size=3), max_size=3))
@settings(max_examples=15)
def test_library_reads_our_produce_responses(version: int, topics: dict[str, list[PartResult]]) -> None:
    by_id = version >= produce.TOPIC_IDS
    rows = [part._replace(topic=topic_of(name, by_id)[0]) for name, parts in topics.items() for part in parts]
    answer = decoded(ProduceResponse, version, produce.response(version, 77, rows))
    found = [
        (topic_said(topic, by_id), told(version, part))
        for topic in answer.responses
        for part in topic.partition_responses
    ]
    assert found == [(row.topic, meant(version, row)) for row in rows]


@pytest.mark.parametrize("version", PRODUCE)
@given(name=names, partition=index, base=int64, time=int64, start=int64)
@settings(max_examples=10)
def test_reply_for_a_single_partition_equals_the_general_one(
    version: int, name: str, partition: int, base: int, time: int, start: int
) -> None:
    topic, _ = topic_of(name, version >= produce.TOPIC_IDS)
    whole = produce.response(version, 77, [PartResult(topic, partition, 0, base, time, start)])
    stored = SimpleNamespace(correlation=77, base_offset=base, append_time=time, log_start=start)
    assert single_reply(version, topic, partition)(stored) == whole


# Fetch

wanted = st.tuples(index, int32, int64, int32, int64, int32)
fetched_topics = st.dictionaries(names, st.lists(wanted, max_size=3), max_size=3)
forgotten_topics = st.dictionaries(names, st.lists(index, max_size=3), max_size=3)


def fetch_body(version: int, topics: dict[str, list[Any]], forgotten: dict[str, list[int]], **fields: Any) -> bytes:
    topic_class, forgotten_class = FetchRequest.FetchTopic, FetchRequest.ForgottenTopic
    by_id = version >= fetch.TOPIC_IDS

    def named(name: str) -> dict[str, Any]:
        field = topic_of(name, by_id)[1]
        return field if by_id else {"topic": name}

    request = FetchRequest[version](
        cluster_id=None,
        topics=[
            topic_class(
                partitions=[
                    topic_class.FetchPartition(
                        partition=n,
                        current_leader_epoch=epoch,
                        fetch_offset=offset,
                        last_fetched_epoch=last,
                        log_start_offset=start,
                        partition_max_bytes=most,
                    )
                    for n, epoch, offset, last, start, most in parts
                ],
                **named(name),
            )
            for name, parts in topics.items()
        ],
        forgotten_topics_data=[forgotten_class(partitions=parts, **named(name)) for name, parts in forgotten.items()],
        **fields,
    )
    return encoded(request)


@pytest.mark.parametrize("version", FETCH)
@given(
    topics=fetched_topics, forgotten=forgotten_topics, replica=int32, wait=int32, least=int32, most=int32,
    isolation=st.integers(0, 1), session=int32, epoch=int32, rack=names,
)  # fmt: skip
@settings(max_examples=15)
def test_fetch_requests_of_the_library_are_parsed(
    version: int, topics: dict[str, list[Any]], forgotten: dict[str, list[int]], replica: int, wait: int, least: int,
    most: int, isolation: int, session: int, epoch: int, rack: str,
) -> None:  # fmt: skip
    body = fetch_body(
        version, topics, forgotten, replica_id=replica, max_wait_ms=wait, min_bytes=least, max_bytes=most,
        isolation_level=isolation, session_id=session, session_epoch=epoch, rack_id=rack,
    )  # fmt: skip
    request = fetch.parse(*around(body), version)
    assert (request.max_wait_ms, request.min_bytes) == (wait, least)
    assert request.replica == (replica if version < 15 else -1)
    assert request.max_bytes == (most if version >= 3 else fetch.NO_LIMIT)
    assert request.isolation == (isolation if version >= 4 else 0)
    assert (request.session_id, request.session_epoch) == ((session, epoch) if version >= 7 else (0, -1))
    assert request.rack == (rack.encode() if version >= 11 else b"")
    by_id = version >= fetch.TOPIC_IDS
    expected = [
        (
            topic_of(name, by_id)[0],
            n,
            max(leader, -1) if version >= 9 else -1,  # FetchRequest.optionalEpoch: a negative epoch is none
            offset,
            last if version >= 12 else -1,
            start if version >= 5 else -1,
            size,
        )
        for name, parts in topics.items()
        for n, leader, offset, last, start, size in parts
    ]
    assert [tuple(part) for part in request.parts] == expected
    gone = [(topic_of(name, by_id)[0], n) for name, parts in forgotten.items() for n in parts]
    assert request.forgotten == (gone if version >= 7 else [])


@pytest.mark.parametrize("version", FETCH)
def test_truncated_fetch_request_is_malformed(version: int) -> None:
    part = (3, 1, 2, 3, 4, 5)
    body = fetch_body(version, {"t": [part, part], "u": [part]}, {"v": [1, 2]}, max_wait_ms=1, min_bytes=1, rack_id="r")
    for end in range(len(body)):
        with pytest.raises(MALFORMED):
            fetch.parse(memoryview(body[:end]), 0, end, version)
    assert fetch.parse(memoryview(body + b"\0"), 0, len(body) + 1, version) == fetch.parse(*around(body), version)


@pytest.mark.parametrize("version", [version for version in FETCH if version >= fetch.FLEXIBLE])
def test_cluster_id_longer_than_a_string_is_malformed(version: int) -> None:
    """Apache Kafka 3.9.1 closes the connection for a longer string, though it does not use the value."""
    body = fetch_body(version, {}, {}, max_wait_ms=1, min_bytes=1, rack_id="")
    assert body.endswith(b"\0"), "the body has no tagged fields"
    for length, whole in ((3, True), (wire.LONGEST_STRING, True), (wire.LONGEST_STRING + 1, False)):
        text = wire.pack_string(b"c" * length, True)
        tagged = body[:-1] + b"\1\0" + wire.pack_uvarint(len(text)) + text
        if whole:
            assert fetch.parse(*around(tagged), version) == fetch.parse(*around(body), version)
        else:
            with pytest.raises(MALFORMED):
                fetch.parse(*around(tagged), version)


@pytest.mark.parametrize("version", FETCH)
def test_null_array_or_rack_of_a_fetch_request_is_malformed(version: int) -> None:
    """The arrays and the rack are the last fields, so the test replaces each at the end of the body."""
    body = fetch_body(version, {}, {}, max_wait_ms=1, min_bytes=1, rack_id="")
    assert fetch.parse(*around(body), version).parts == []
    size = 1 if version >= fetch.FLEXIBLE else 4
    arrays = 1 + (version >= 7)
    behind = (size if size == 1 else 2) * (version >= 11) + (version >= fetch.FLEXIBLE)
    for number in range(arrays):
        at = len(body) - behind - size * (number + 1)
        null = body[:at] + (b"\0" if size == 1 else b"\xff" * 4) + body[at + size :]
        with pytest.raises(wire.WireError, match="array is null"):
            fetch.parse(*around(null), version)
    if version >= 11:
        at = len(body) - behind
        null = body[:at] + (b"\0\0" if size == 1 else b"\xff\xff")
        with pytest.raises(wire.WireError, match="rack id is null"):
            fetch.parse(*around(null), version)


fetched = st.builds(
    FetchResult,
    topic=st.just(b""), partition=index, error=int16, hw=int64, stable=int64, log_start=int64,
    payloads=st.lists(st.binary(min_size=1, max_size=200), max_size=2),
    aborted=st.none() | st.lists(st.tuples(int64, int64), max_size=3),
    diverging=st.none() | st.tuples(int32, int64), preferred=int32,
)  # fmt: skip


@pytest.mark.parametrize("version", FETCH)
@given(topics=st.dictionaries(names, st.lists(fetched, min_size=1, max_size=3), max_size=3), error=int16, session=int32)
@settings(max_examples=15)
def test_library_reads_our_fetch_responses(
    version: int, topics: dict[str, list[FetchResult]], error: int, session: int
) -> None:
    by_id = version >= fetch.TOPIC_IDS
    rows = [part._replace(topic=topic_of(name, by_id)[0]) for name, parts in topics.items() for part in parts]
    pieces = fetch.response(version, 77, rows, error, session)
    answer = decoded(FetchResponse, version, b"".join(bytes(piece) for piece in pieces))  # type: ignore[arg-type]  # bytes, no file slices
    if version >= 7:
        assert (answer.error_code, answer.session_id) == (error, session)
    parts = [
        (bytes(topic.topic_id.bytes) if by_id else topic.topic.encode(), part)
        for topic in answer.responses
        for part in topic.partitions
    ]
    assert len(parts) == len(rows)
    for (topic, part), row in zip(parts, rows, strict=True):
        assert (topic, part.partition_index, part.error_code) == (row.topic, row.partition, row.error)
        assert part.high_watermark == row.hw
        assert bytes(part.records or b"") == b"".join(row.payloads)  # type: ignore[arg-type]  # bytes, no file slices
        if version >= 4:
            aborted = part.aborted_transactions
            assert part.last_stable_offset == row.stable
            said = None if aborted is None else [(a.producer_id, a.first_offset) for a in aborted]
            assert said == (None if row.aborted is None else list(row.aborted))
        if version >= 5:
            assert part.log_start_offset == row.log_start
        if version >= 11:
            assert part.preferred_read_replica == row.preferred
        if version >= 12:
            diverging = part.diverging_epoch
            assert row.diverging == (None if diverging is None else (diverging.epoch, diverging.end_offset))


@given(st.binary(max_size=200), st.sampled_from(PRODUCE), st.sampled_from(FETCH))
@settings(max_examples=150)
def test_random_bytes_are_malformed_or_read_within_their_frame(data: bytes, one: int, other: int) -> None:
    buffer, start, end = around(data)
    try:
        for part in produce.parse(buffer, start, end, one).parts:
            assert part.size < 0 or start <= part.start <= part.start + part.size <= end
    except MALFORMED:
        pass
    try:
        fetch.parse(buffer, start, end, other)
    except MALFORMED:
        pass


@given(st.integers(0, (1 << 35) - 1))
def test_unsigned_varint_round_trip(value: int) -> None:
    packed = wire.pack_uvarint(value)
    assert wire.uvarint(packed, 0) == (value, len(packed))


def test_endless_varint_is_malformed() -> None:
    with pytest.raises(wire.WireError):
        wire.uvarint(b"\xff" * 10, 0)
