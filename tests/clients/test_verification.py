"""Transactional batches outside a transaction are refused: they would hold back the last stable offset (KIP-890)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ..faults.failpoints.arming import Arming
from ..harness.process import wait_until
from ..harness.wire import Wire
from .admin import create_topic, unique
from .raw.batches import batch
from .raw.calls import list_offsets, produce, produce_request, producer_id, supports
from .transactions import TRANSACTIONAL, WAIT, Raw, await_stable, read, stable_end

pytestmark = pytest.mark.live

UNKNOWN_TOPIC_OR_PARTITION, OUT_OF_ORDER_SEQUENCE_NUMBER = 3, 45
NOT_ENOUGH_REPLICAS, INVALID_REQUEST, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE = 19, 42, 47, 48
INVALID_PRODUCER_ID_MAPPING, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TRANSACTION_ABORTABLE = 49, 53, 120
SETTING = "transaction.partition.verification.enable"


@pytest.fixture
def wire(broker: Any) -> Iterator[Wire]:
    with broker.wire() as connected:
        yield connected


def end_of(wire: Wire, topic: str, partition: int = 0) -> tuple[int, int]:
    """(log end, last stable offset)."""
    ends = [list_offsets(wire, topic, -1, partition=partition, isolation=level).offset for level in (0, 1)]
    return ends[0], ends[1]


def test_transactional_batch_without_a_transactional_id_is_refused(broker: Any, wire: Wire) -> None:
    topic, raw = create_topic(broker), Raw(wire)
    raw.add(topic)
    answer = raw.write(topic, b"x", transactional_id=None)
    assert answer.error_code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert end_of(wire, topic) == (0, 0)
    raw.sequence = 0
    assert raw.write(topic, b"x").error_code == 0


def test_missing_transactional_id_refuses_the_whole_request(broker: Any, wire: Wire) -> None:
    topic, raw = create_topic(broker, partitions=2), Raw(wire)
    raw.add(topic, 0, 1)
    request = produce_request(topic, batch([b"plain"]))
    rows = request.topic_data[0].partition_data
    data = batch([b"x"], producer=raw.id, epoch=raw.epoch, sequence=0, attributes=TRANSACTIONAL)
    rows.append(type(rows[0])(index=1, records=data))
    answer = wire.call(request)
    codes = [row.error_code for row in answer.responses[0].partition_responses]
    assert codes == [TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert [end_of(wire, topic, partition) for partition in (0, 1)] == [(0, 0), (0, 0)]


def test_missing_transactional_id_is_reported_before_other_faults(broker: Any, wire: Wire) -> None:
    topic, raw = create_topic(broker), Raw(wire)
    fields: dict[str, Any] = {"producer": raw.id, "epoch": raw.epoch, "sequence": 0, "attributes": TRANSACTIONAL}
    several: list[dict[str, Any]] = [{"break_crc": True}, {"count": 7}, {"payload": b"x"}]
    for wrong in several:
        answer = produce(wire, topic, batch([b"x"], **fields, **wrong))
        assert answer.error_code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED, wrong


def test_incomplete_batch_is_not_taken_as_transactional(broker: Any, wire: Wire) -> None:
    raw = Raw(wire)
    data = batch([b"x"], producer=raw.id, epoch=raw.epoch, sequence=0, attributes=TRANSACTIONAL)
    for records, code in ((data[:-1], UNKNOWN_TOPIC_OR_PARTITION), (data, TRANSACTIONAL_ID_AUTHORIZATION_FAILED)):
        assert produce(wire, unique("none"), records).error_code == code


@pytest.mark.parametrize(("version", "code"), [(3, INVALID_TXN_STATE), (10, INVALID_TXN_STATE), (11, 120), (12, 120)])
def test_batch_for_a_partition_that_was_not_added_is_refused(broker: Any, wire: Wire, version: int, code: int) -> None:
    if not supports(wire, 0, version):
        pytest.skip("not there")
    topic, other, raw = create_topic(broker), create_topic(broker), Raw(wire)
    raw.add(other)
    assert raw.write(topic, b"x", version=version).error_code == code
    assert end_of(wire, topic) == (0, 0)
    raw.sequence = 0
    raw.add(topic)
    assert raw.write(topic, b"x", version=version).error_code == 0
    assert raw.end() == 0
    await_stable(broker, topic)


def test_first_batch_must_not_exceed_the_lowest_refused_sequence(broker: Any, wire: Wire) -> None:
    """This holds for batches that are not transactional, too."""
    topic, raw = create_topic(broker), Raw(wire)
    raw.sequence = 2
    assert raw.write(topic, b"not added").error_code == INVALID_TXN_STATE
    late, first = (batch([b"x"], producer=raw.id, epoch=raw.epoch, sequence=sequence) for sequence in (3, 2))
    assert produce(wire, topic, late).error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(wire, topic, first).error_code == 0
    assert end_of(wire, topic) == (1, 1)


def test_batch_with_a_fenced_epoch_is_refused(broker: Any, wire: Wire) -> None:
    topic, raw = create_topic(broker), Raw(wire)
    raw.init()
    assert raw.write(topic, b"x").error_code == INVALID_PRODUCER_EPOCH
    assert end_of(wire, topic) == (0, 0)


def test_producer_id_of_another_transactional_id_is_refused(broker: Any, wire: Wire) -> None:
    """Also a producer id without a transactional id, and an unknown or empty transactional id."""
    topic, raw, other = create_topic(broker), Raw(wire), Raw(wire)
    raw.add(topic)
    plain, epoch = producer_id(wire)
    for producer, name, code in (
        (other.id, raw.name, INVALID_PRODUCER_ID_MAPPING),
        (plain, raw.name, INVALID_PRODUCER_ID_MAPPING),
        (raw.id, unique("unknown"), INVALID_PRODUCER_ID_MAPPING),
        (raw.id, "", INVALID_REQUEST),
    ):
        data = batch([b"x"], producer=producer, epoch=epoch, sequence=0, attributes=TRANSACTIONAL)
        assert produce(wire, topic, data, transactional_id=name).error_code == code
    assert end_of(wire, topic) == (0, 0)


def test_transactional_id_that_is_not_utf_8_is_refused(broker: Any, wire: Wire) -> None:
    """Replacement characters would make it longer than a string in a request to another broker may be."""
    if broker.external:
        pytest.skip("Kafka 3.9 ends itself over it")
    topic, raw = create_topic(broker), Raw(wire)
    data = batch([b"x"], producer=raw.id, epoch=raw.epoch, sequence=0, attributes=TRANSACTIONAL)
    body = struct.pack(">h20000shii", 20_000, b"\xff" * 20_000, -1, 1000, 1)
    body += struct.pack(f">h{len(topic)}siii", len(topic), topic.encode(), 1, 0, len(data)) + data
    error, base = struct.unpack_from(">hq", wire.ask(0, 7, body), 4 + 2 + len(topic) + 4 + 4)
    assert (error, base) == (INVALID_PRODUCER_ID_MAPPING, -1)


@pytest.mark.parametrize("commit", [True, False])
def test_batch_after_its_transactions_marker_is_refused(broker: Any, wire: Wire, commit: bool) -> None:
    topic, raw = create_topic(broker), Raw(wire)
    raw.add(topic)
    assert raw.write(topic, b"in time").error_code == 0
    assert raw.end(commit) == 0
    await_stable(broker, topic)
    assert raw.write(topic, b"late").error_code == INVALID_TXN_STATE
    assert end_of(wire, topic) == (2, 2)


def test_pipelined_batches_are_stored_in_order(broker: Any, wire: Wire) -> None:
    """Batches of a partition wait for the verification of the first, and the other partition does not wait for them."""
    topic, raw = create_topic(broker, partitions=2), Raw(wire)
    raw.add(topic, 0, 1)
    requests = [_request(raw, topic, number, partition) for number in range(20) for partition in (0, 1)]
    for request in requests:
        wire.put(request)
    answers = [_answer(wire, request) for request in requests]
    assert [answer.error_code for answer in answers] == [0] * 40
    assert [answer.base_offset for answer in answers] == [number // 2 for number in range(40)]
    assert raw.end() == 0
    await_stable(broker, topic)
    assert read(broker, topic, "read_committed") == [b"%d" % number for number in range(20)]


def _request(raw: Raw, topic: str, number: int, partition: int = 0) -> Any:
    data = batch([b"%d" % number], producer=raw.id, epoch=raw.epoch, sequence=number, attributes=TRANSACTIONAL)
    return produce_request(topic, data, partition=partition, transactional_id=raw.name)


def _answer(wire: Wire, request: Any) -> Any:
    return wire.take(request).responses[0].partition_responses[0]


def test_no_order_of_end_and_late_batches_leaves_a_transaction_open(broker: Any, wire: Wire) -> None:
    """EndTxn repeatedly overtakes batches in flight on another connection."""
    topic, raw = create_topic(broker), Raw(wire)
    sequence, stored = 0, 0
    with broker.wire() as other:
        for number in range(150):
            assert raw.add(topic) == [0]
            requests = [_request(raw, topic, sequence + step) for step in range(3)]
            for request in requests[: number % 3 + 1]:
                other.put(request)
            assert raw.end(commit=number % 2 == 0) == 0
            answers = [_answer(other, request) for request in requests[: number % 3 + 1]]
            accepted = [answer.error_code == 0 for answer in answers]
            assert accepted == sorted(accepted, reverse=True), "a batch is stored although an earlier one was refused"
            stored += sum(accepted)
            sequence += sum(accepted)
    await_stable(broker, topic)
    end, stable = end_of(wire, topic)
    assert end == stable
    assert end >= stored


def test_batch_is_refused_for_a_retry_when_the_coordinator_dies_during_verification(
    fresh_broker: Callable[..., Any], tmp_path: Path
) -> None:
    """It dies before it answers the worker. The refusal is retriable, and a retry is stored."""
    broker, arming = fresh_broker(start=False), Arming(tmp_path / "failpoints")
    broker.env |= arming.environment()
    broker.start()
    topic = create_topic(broker)
    with broker.wire() as wire:
        raw = Raw(wire)
        raw.add(topic)
        victim = broker.pids("coordinator")
        arming.arm("verification.before-answer")
        assert raw.write(topic, b"x").error_code == NOT_ENOUGH_REPLICAS
        assert [arming.fired("verification.before-answer")] == victim
        assert end_of(wire, topic) == (0, 0)
        assert _resent(raw, topic, b"x") == 0
        assert raw.end() == 0
    await_stable(broker, topic)
    assert read(broker, topic, "read_committed") == [b"x"]


def _resent(raw: Raw, topic: str, value: bytes) -> int:
    """The error of the first batch of a producer once it is not NOT_ENOUGH_REPLICAS."""
    codes: list[int] = []

    def decided() -> bool:
        raw.sequence = 0
        codes.append(raw.write(topic, value).error_code)
        return codes[-1] != NOT_ENOUGH_REPLICAS

    wait_until(decided, WAIT, "the coordinator verifies again")
    return codes[-1]


def test_verification_can_be_disabled(fresh_broker: Callable[..., Any]) -> None:
    broker = fresh_broker()
    topic = create_topic(broker)
    with broker.wire() as wire:
        raw = Raw(wire)
        assert raw.write(topic, b"x").error_code == INVALID_TXN_STATE
        _set(wire, "false")
        raw.sequence = 0
        assert raw.write(topic, b"x").error_code == 0
    assert stable_end(broker, topic) == 0


def _set(wire: Wire, value: str) -> None:
    from kafka.protocol.admin import IncrementalAlterConfigsRequest as Request

    change = Request.AlterConfigsResource.AlterableConfig(name=SETTING, config_operation=0, value=value)
    resource = Request.AlterConfigsResource(resource_type=4, resource_name="", configs=[change])
    answer = wire.call(Request[0](resources=[resource], validate_only=False))
    assert [row.error_code for row in answer.responses] == [0]


# -- markers


def mark(broker: Any, raw: Raw, topic: str, client: str) -> int:
    """WriteTxnMarkers over a new connection, as a coordinator of that client id."""
    from kafka.protocol.producer import WriteTxnMarkersRequest as Request

    row = Request.WritableTxnMarker
    topics = [row.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])]
    marker = row(
        producer_id=raw.id, producer_epoch=raw.epoch, transaction_result=True, coordinator_epoch=0, topics=topics
    )
    request = Request[1](markers=[marker])
    request.with_header(correlation_id=1, client_id=client)
    with broker.wire() as wire:
        wire.send_raw(bytes(request.encode(header=True, framed=True)))
        return int(wire.take(request).markers[0].topics[0].partitions[0].error_code)


def test_late_marker_from_a_replaced_connection_is_refused(broker: Any, wire: Wire) -> None:
    """The coordinator has resent it over a new connection; the producer's next transaction has the same epoch."""
    topic, raw = create_topic(broker), Raw(wire)
    raw.add(topic)
    raw.write(topic, b"first")
    assert mark(broker, raw, topic, "odradek-coordinator/7/b00/200") == 0
    assert raw.end() == 0
    await_stable(broker, topic)
    raw.add(topic)
    assert raw.write(topic, b"second").error_code == 0
    assert mark(broker, raw, topic, "odradek-coordinator/7/b00/100") == 6
    assert stable_end(broker, topic) < end_of(wire, topic)[0]
    assert mark(broker, raw, topic, "odradek-coordinator/7/b00/200") == 0
    await_stable(broker, topic)
