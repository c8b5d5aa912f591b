"""Produce to internal topics is refused: only coordinators write offsets and transaction states into them.

Apache Kafka answers INVALID_TOPIC_EXCEPTION, but for the client id `__admin_client`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from ..harness.process import wait_until
from ..harness.wire import Wire
from .admin import create_topic, topic_id
from .raw.batches import batch, message
from .raw.calls import list_offsets, produce_request, supports

pytestmark = pytest.mark.live

INVALID_TOPIC, INVALID_ACKS, UNKNOWN_TOPIC = 17, 21, 3
ADMIN = "__admin_client"
TOPICS = ("__consumer_offsets", "__transaction_state")


@pytest.fixture
def wire(broker: Any) -> Iterator[Wire]:
    from kafka.protocol.metadata import FindCoordinatorRequest as Request

    with broker.wire() as connection:
        for kind, _ in enumerate(TOPICS):
            asked = Request[1](key="x", key_type=kind)
            wait_until(lambda asked=asked: connection.call(asked).error_code == 0, 60, "the coordinators' topics")  # type: ignore[misc]  # a default in a lambda
        yield connection


def ask(wire: Wire, topics: list[str], version: int, client: str = "c", acks: int = -1) -> list[int]:
    """Produce a record to partition 0 of each; the error codes."""
    request = asked(wire, topics, version, acks)
    request.with_header(correlation_id=1, client_id=client)
    wire.send_raw(bytes(request.encode(header=True, framed=True)))
    answer = wire.take(request)
    return [part.error_code for topic in answer.responses for part in topic.partition_responses]


def asked(wire: Wire, topics: list[str], version: int, acks: int) -> Any:
    magic = {0: 0, 1: 0, 2: 1}.get(version, 2)
    records = batch([b"forged"], key=b"\0\x63") if magic == 2 else message(b"forged", b"k", magic=magic)
    names = [topic_id(wire, topic) if version >= 13 else topic for topic in topics]
    requests = [produce_request(name, records, version=version, acks=acks) for name in names]
    for other in requests[1:]:
        requests[0].topic_data += other.topic_data
    return requests[0]


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("topic", TOPICS)
def test_produce_to_internal_topics_is_refused_in_every_version(wire: Wire, topic: str, version: int) -> None:
    if not supports(wire, 0, version):
        pytest.skip(f"Produce v{version} is not served")
    before = list_offsets(wire, topic, -1).offset
    for _ in range(3):  # the broker recognizes the second and third by their prefix
        assert ask(wire, [topic], version) == [INVALID_TOPIC]
    assert list_offsets(wire, topic, -1).offset == before


def test_the_other_partitions_of_a_request_are_written(broker: Any, wire: Wire) -> None:
    mine, other = create_topic(broker), create_topic(broker)
    assert ask(wire, [mine, "__consumer_offsets", other], 7) == [0, INVALID_TOPIC, 0]


def test_invalid_acks_and_unknown_partitions_are_reported_first(wire: Wire) -> None:
    assert ask(wire, ["__consumer_offsets"], 7, acks=5) == [INVALID_ACKS]
    request = asked(wire, ["__consumer_offsets"], 7, -1)
    request.topic_data[0].partition_data[0].index = 10_000
    assert wire.call(request).responses[0].partition_responses[0].error_code == UNKNOWN_TOPIC


def test_only_the_exact_admin_client_id_may_write(broker: Any, wire: Wire) -> None:
    """The record's key is none of the coordinator's: it skips the record when it loads the log."""
    for _ in range(3):
        assert ask(wire, ["__transaction_state"], 7, ADMIN) == [0]
        assert ask(wire, ["__transaction_state"], 7, ADMIN[:-1] + "x") == [INVALID_TOPIC]
        assert ask(wire, ["__transaction_state"], 7, ADMIN + "2") == [INVALID_TOPIC]
        assert ask(wire, ["__transaction_state"], 7, "") == [INVALID_TOPIC]


def test_produce_without_acks_closes_the_connection(wire: Wire) -> None:
    request = asked(wire, ["__consumer_offsets"], 7, 0)
    wire.put(request)
    assert wire.closed_by_peer()


def test_a_null_client_id_is_not_the_admin_client(wire: Wire) -> None:
    request = asked(wire, ["__consumer_offsets"], 7, -1)
    body = bytes(request.encode())
    frame = struct.pack(">hhih", 0, 7, 1, -1) + body
    wire.send_frame(frame)
    assert struct.pack(">h", INVALID_TOPIC) in wire.read_frame()
