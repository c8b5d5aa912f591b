"""Requests between brokers, byte for byte as Apache Kafka's classes write them, and malformed ones."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.protocol import interbroker, notation, requests
from odradek.protocol.interbroker import strict
from odradek.protocol.wire import MALFORMED, WireError, skip_tags

from . import interbroker as golden

SAMPLES = golden.samples()
OURS = [sample for sample in SAMPLES if sample.name not in ("ApiVersions", "WriteTxnMarkers")]
# The messages that we can write: we have no tagged fields of a later version.
WRITABLE = [sample for sample in SAMPLES if sample.sample != "later"]
LAST = {"LeaderAndIsr": 7, "StopReplica": 4, "UpdateMetadata": 8, "ControlledShutdown": 3}
ZERO_TO_LAST = [(name, version) for name, last in LAST.items() for version in range(last + 1)]

INTEGERS = {f"int{bits}": st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)}
VALUES = INTEGERS | {"bool": st.booleans(), "string": st.text(max_size=200)}
VALUES["uuid"] = st.none() | st.uuids().filter(lambda found: found.int)


def only(samples: Iterable[golden.Sample], kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("sample", [each for each in samples if each.kind == kind], ids=str)


def request_body(sample: golden.Sample) -> memoryview:
    """The body of a golden request, after the header."""
    at = 12
    if (sample.name, sample.version) != ("ControlledShutdown", 0):
        at += 2 + len(sample.client_id or "")
    if interbroker.message_class(sample.name + "Request").flexible_version_q(sample.version):
        at = skip_tags(memoryview(sample.frame), at, len(sample.frame))
    return memoryview(sample.frame)[at:]


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
def test_golden_frames_equal_kafkas() -> None:
    assert golden.written_by_kafka() == golden.GOLDEN.read_text("utf-8")


def test_golden_frames_cover_every_version() -> None:
    for kind in ("Request", "Response"):
        for sample in ("unset", "empty", "bare", "full", "later"):
            found = {(each.name, each.version) for each in OURS if (each.kind, each.sample) == (kind, sample)}
            assert found == set(ZERO_TO_LAST)


@only(WRITABLE, "Request")
def test_requests_are_written_as_kafka_does(sample: golden.Sample) -> None:
    fields = golden.fields_of(interbroker.message_class(sample.name + "Request"), sample.json)
    frame = interbroker.request(sample.name, sample.version, golden.CORRELATION, sample.client_id, **fields)
    assert frame.hex() == sample.frame.hex()


@only(WRITABLE, "Response")
def test_responses_are_written_as_kafka_does(sample: golden.Sample) -> None:
    response = golden.made(interbroker.message_class(sample.name + "Response"), sample.json)
    body = interbroker.Codec(sample.name).encode(sample.version, response)
    header = 8 + (sample.name != "ApiVersions" and response.flexible_version_q(sample.version))
    assert body.hex() == sample.frame[header:].hex()


@only(SAMPLES, "Request")
def test_requests_are_read_as_kafka_does(sample: golden.Sample) -> None:
    body = request_body(sample)
    decoded = interbroker.Codec(sample.name).decode(sample.version, body)
    assert golden.told(decoded, sample.version) == sample.json
    assert requests.decode(interbroker.message_class(sample.name + "Request"), sample.version, body) == decoded


@only(SAMPLES, "Response")
def test_responses_are_read_as_kafka_does(sample: golden.Sample) -> None:
    correlation, decoded = interbroker.response(sample.name, sample.version, sample.frame[4:])
    assert correlation == golden.CORRELATION
    assert golden.told(decoded, sample.version) == sample.json


@only(SAMPLES, "Request")
def test_truncated_requests_are_refused(sample: golden.Sample) -> None:
    body, codec = request_body(sample), interbroker.Codec(sample.name)
    for size in range(len(body)):
        with pytest.raises(WireError):
            codec.decode(sample.version, body[:size])


@only(SAMPLES, "Response")
def test_truncated_responses_are_refused(sample: golden.Sample) -> None:
    frame = memoryview(sample.frame)[4:]
    for size in range(len(frame)):
        with pytest.raises(WireError):
            interbroker.response(sample.name, sample.version, frame[:size])


def message(message_class: Any, version: int) -> st.SearchStrategy[Any]:
    """Messages with all fields of `version`."""
    fields = [field for field in message_class._struct._fields if field.for_version_q(version)]
    values = {field.name: value(field, message_class, version) for field in fields}
    return st.builds(message_class, **values)


def value(field: Any, message_class: Any, version: int) -> st.SearchStrategy[Any]:
    if field.is_struct_array():
        return st.lists(message(getattr(message_class, field.type_str), version), max_size=3)
    if field.is_array():
        return st.lists(VALUES[field.array_of.type_str.removeprefix("[]")], max_size=4)
    nullable = field.nullable_for_version_q(version)
    return st.none() | VALUES[field.type_str] if nullable else VALUES[field.type_str]


@pytest.mark.parametrize(("name", "version"), ZERO_TO_LAST)
@settings(max_examples=20)
@given(data=st.data())
def test_message_round_trip(name: str, version: int, data: st.DataObject) -> None:
    for kind in ("Request", "Response"):
        message_class = interbroker.message_class(name + kind)
        sent = data.draw(message(message_class, version))
        body = sent.encode(version=version)
        assert strict.decode(message_class, version, memoryview(body)) == sent
        assert requests.decode(message_class, version, memoryview(body)) == sent


@settings(max_examples=500)
@given(sample=st.sampled_from(OURS), at=st.floats(0, 1, exclude_max=True), junk=st.binary(min_size=1, max_size=9))
def test_damaged_messages_are_refused_or_read(sample: golden.Sample, at: float, junk: bytes) -> None:
    frame = bytearray(sample.frame[4:])
    place = int(at * len(frame))
    frame[place : place + len(junk)] = junk
    try:
        if sample.kind == "Response":
            interbroker.response(sample.name, sample.version, bytes(frame))
        else:
            interbroker.Codec(sample.name).decode(sample.version, memoryview(frame)[8:])
    except WireError as error:
        assert isinstance(error, MALFORMED)


def test_all_partitions_of_a_large_broker_fit() -> None:
    request = interbroker.message_class("LeaderAndIsrRequest")
    replicas = [1, 2, 3]
    partitions = [
        request.TopicState.PartitionState(partition_index=index, isr=replicas, replicas=replicas)
        for index in range(20_000)
    ]
    body = request(topic_states=[request.TopicState(topic_name="t", partition_states=partitions)]).encode(version=7)
    decoded = interbroker.Codec("LeaderAndIsr").decode(7, memoryview(body))
    assert len(decoded.topic_states[0].partition_states) == 20_000


def test_all_partitions_of_a_cluster_fit_into_one_frame() -> None:
    """The frame has 150,000 partitions with three replicas, which are more than 2**20 elements."""
    request = interbroker.message_class("UpdateMetadataRequest")
    replicas = [1, 2, 3]
    partition = request.TopicState.PartitionState(isr=replicas, zk_version=0, replicas=replicas, offline_replicas=[])
    states = [request.TopicState(topic_name="t", partition_states=[partition] * 150_000)]
    body = request(topic_states=states, live_brokers=[]).encode(version=8)
    decoded = interbroker.Codec("UpdateMetadata").decode(8, memoryview(body))
    assert len(decoded.topic_states[0].partition_states) == 150_000


def test_array_longer_than_its_bytes_is_refused() -> None:
    empty = bytes.fromhex("00 00000000 00000000 0000000000000000 00 01")  # LeaderAndIsr v7 up to its live leaders
    with pytest.raises(WireError, match="live_leaders of length 268435454"):
        interbroker.Codec("LeaderAndIsr").decode(7, memoryview(empty + bytes.fromhex("ffffff7f") + bytes(99)))
    with pytest.raises(WireError, match="98 elements and tagged fields, where there may be 39"):
        interbroker.Codec("LeaderAndIsr").decode(7, memoryview(empty + bytes([99]) + bytes(99)))


@pytest.mark.parametrize("sample", [each for each in OURS if each.sample == "unset"], ids=str)
def test_unset_fields_have_kafkas_defaults(sample: golden.Sample) -> None:
    if sample.kind == "Request":
        assert interbroker.request(sample.name, sample.version, golden.CORRELATION, None).hex() == sample.frame.hex()
    else:
        unset = interbroker.message_class(sample.name + "Response")()
        assert sample.frame.endswith(interbroker.Codec(sample.name).encode(sample.version, unset))


def test_unset_fields_of_structs_have_kafkas_defaults() -> None:
    partition = interbroker.message_class("StopReplicaRequest").TopicState.PartitionState()
    assert (partition.partition_index, partition.leader_epoch, partition.delete_partition) == (0, -1, False)
    assert interbroker.message_class("LeaderAndIsrRequest").TopicState().topic_id is None


def test_null_in_a_field_that_is_not_nullable_is_refused() -> None:
    with pytest.raises(WireError, match="remaining_partitions is null"):
        interbroker.response("ControlledShutdown", 1, bytes(6) + b"\xff" * 4)


def test_unknown_versions_fields_and_messages_are_errors() -> None:
    with pytest.raises(ValueError, match="StopReplica has no version 5"):
        interbroker.request("StopReplica", 5, 1, None)
    with pytest.raises(ValueError, match="no_such_field"):
        interbroker.request("StopReplica", 4, 1, None, no_such_field=1)
    with pytest.raises(LookupError):
        interbroker.message_class("VoteRequest")
    with pytest.raises(ValueError, match="what is 3x"):
        notation.fields("a int32 3x")


def test_unsupported_api_versions_response_is_read_in_version_0() -> None:
    kind = interbroker.message_class("ApiVersionsResponse")
    body = bytes(kind(error_code=35, api_keys=[kind.ApiVersion(api_key=18, min_version=0, max_version=3)]).encode(0))
    correlation, told = interbroker.response("ApiVersions", 4, (7).to_bytes(4, "big") + body)
    assert (correlation, told.error_code, told.api_keys[0].max_version) == (7, 35, 3)


def test_topic_ids_are_uuids_or_none() -> None:
    kind = interbroker.message_class("LeaderAndIsrRequest")
    topic_id = uuid.uuid4()
    body = kind(topic_states=[kind.TopicState(topic_id=topic_id), kind.TopicState()]).encode(version=7)
    assert [topic.topic_id for topic in strict.decode(kind, 7, memoryview(body)).topic_states] == [topic_id, None]
