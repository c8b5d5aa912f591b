"""Requests that are cheap to send and expensive to answer do not delay a background client.

Each of these once blocked a worker or the coordinator for at least half a minute.
"""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from odradek.protocol.library import message_class

from ..clients.admin import create_topic
from ..clients.raw.batches import CODEC_BITS, batch, message, record
from ..clients.raw.calls import part, produce, produce_request, session_request
from ..harness.broker import Broker
from ..harness.process import readable
from ..harness.wire import Wire
from .background_client import BackgroundClient, broker_with_client

pytestmark = pytest.mark.live

PATIENCE_S = 30  # of the background client, for each of its requests
INVALID_RECORD, MESSAGE_TOO_LARGE, BROKEN = 87, 10, -1
MANY = 60_000  # elements of one request
TINY = b"\x0c\0\0\0\0\x01\0"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, BackgroundClient]]:
    """A broker and a background client."""
    with broker_with_client(tmp_path_factory.mktemp("greedy"), PATIENCE_S) as both:
        yield both


@contextmanager
def reading(wire: Wire) -> Iterator[None]:
    """Read the answers as fast as they arrive, during the block."""
    reader = threading.Thread(target=_drain, args=(wire,))
    reader.start()
    try:
        yield
    finally:
        wire.socket.shutdown(2)
        reader.join()


def _drain(wire: Wire) -> None:
    try:
        while wire.socket.recv(1 << 20):
            pass
    except OSError:
        pass


def frame(request: Any) -> bytes:
    request.with_header(correlation_id=1, client_id="greedy")
    return bytes(request.encode(header=True, framed=True))


def configs() -> Any:
    request = message_class("DescribeConfigsRequest")
    broker = request.DescribeConfigsResource(resource_type=4, resource_name="0", configuration_keys=None)
    return request[1](resources=[broker], include_synonyms=True)


def opened(topic: str) -> Any:
    """Twenty thousand records in a few hundred bytes, which the broker must decode one by one."""
    packed = gzip.compress(TINY * 20_000, 9)
    records = batch([None], payload=packed, attributes=CODEC_BITS["gzip"], count=20_000, last_delta=19_999)
    return produce_request(topic, records)


@pytest.mark.parametrize("kind", ["configs", "records"])
def test_thousands_of_pipelined_requests_do_not_delay_others(world: tuple[Broker, BackgroundClient], kind: str) -> None:
    """Their client reads every answer, so only the fairness of the broker slows it down."""
    broker, background = world
    request = configs() if kind == "configs" else opened(create_topic(broker, "many", compression_type="lz4"))
    one = frame(request)
    with broker.wire(120) as wire, reading(wire):
        wire.send_raw(one * ((1 << 20) // len(one)))
        background.await_more(5)


@pytest.mark.smoke
def test_batch_of_refused_records_does_not_delay_others(world: tuple[Broker, BackgroundClient]) -> None:
    """Each record has its own error message; the broker once copied the answer for each of them."""
    broker, background = world
    topic = create_topic(broker, "compacted", cleanup_policy="compact")
    with broker.wire(300) as wire:
        body = b"".join(record(at, None) for at in range(130_000))
        records = batch(
            [None], payload=gzip.compress(body), attributes=CODEC_BITS["gzip"], count=130_000, last_delta=129_999
        )
        answer = produce(wire, topic, records, version=8)
        assert (answer.error_code, len(answer.record_errors)) == (INVALID_RECORD, 130_000)
    background.await_more()


def test_batch_of_many_empty_gzip_members_does_not_delay_others(world: tuple[Broker, BackgroundClient]) -> None:
    broker, background = world
    topic = create_topic(broker, "members")
    packed = gzip.compress(b"") * 50_000
    with broker.wire(120) as wire:
        answer = produce(wire, topic, batch([None], payload=packed, attributes=CODEC_BITS["gzip"]))
        assert answer.error_code == INVALID_RECORD
    background.await_more()


@pytest.mark.parametrize("magic", [0, 1])
def test_wrapper_of_many_old_messages_does_not_delay_others(world: tuple[Broker, BackgroundClient], magic: int) -> None:
    broker, background = world
    topic = create_topic(broker, "old")
    value = gzip.compress(message(b"", magic=magic) * 900_000)
    with broker.wire(120) as wire:
        answer = produce(wire, topic, message(value, magic=magic, attributes=CODEC_BITS["gzip"]), version=1 + magic)
        assert answer.error_code == MESSAGE_TOO_LARGE
    background.await_more()


def test_repeated_resource_types_are_answered_once(world: tuple[Broker, BackgroundClient]) -> None:
    """A request with sixty thousand equal types gets the answer of a request with one."""
    broker, background = world
    for name in ("a", "b", "c"):
        create_topic(broker, name)
    request = message_class("ListConfigResourcesRequest")
    with broker.wire(120) as wire:
        once = wire.call(request[1](resource_types=[2]))
        often = wire.call(request[1](resource_types=[2] * 60_000))
        assert len(often.config_resources) == len(once.config_resources)
    background.await_more()


def test_fetch_session_of_unknown_partitions_does_not_delay_others(world: tuple[Broker, BackgroundClient]) -> None:
    """A request of fifty bytes fetches all of them again, a hundred times."""
    broker, background = world
    parts = [part(at, 0) for at in range(60_000)]
    with broker.wire(120) as wire:
        answer = wire.call(session_request([("nowhere", parts)], session_epoch=0))
        assert answer.session_id
        asks = [frame(session_request([], session=answer.session_id, session_epoch=1 + at)) for at in range(100)]
        with reading(wire):
            wire.send_raw(b"".join(asks))
            background.await_more(5)


def test_expensive_pattern_does_not_delay_heartbeats(world: tuple[Broker, BackgroundClient]) -> None:
    """The coordinator once handled no heartbeat meanwhile."""
    broker, background = world
    request = message_class("ListTransactionsRequest")
    asked = request[2](
        state_filters=[], producer_id_filters=[], duration_filter=-1, transactional_id_pattern="(){4000000000}"
    )
    with broker.wire(PATIENCE_S) as wire, broker.wire(PATIENCE_S) as other:
        wire.send_raw(frame(asked))
        heartbeat = message_class("HeartbeatRequest")
        assert other.call(heartbeat[0](group_id="g", generation_id=1, member_id="m")).error_code
    background.await_more()


def delete_topics() -> Any:
    return message_class("DeleteTopicsRequest")[5](topic_names=[f"no{at}" for at in range(MANY)], timeout_ms=1000)


def test_large_requests_to_the_controller_do_not_delay_small_ones(world: tuple[Broker, BackgroundClient]) -> None:
    """The controller handles small requests between the steps of a large one, not only after it."""
    broker, background = world
    asked, answered = frame(delete_topics()), 0
    topics = message_class("ListPartitionReassignmentsRequest")[0](timeout_ms=1000, topics=None)
    with ExitStack() as stack:
        large = [stack.enter_context(broker.wire(300)) for _ in range(4)]
        small = stack.enter_context(broker.wire(PATIENCE_S))
        for wire in large:
            wire.send_raw(asked)
        while not all(readable(wire.socket, 0) for wire in large):
            assert small.call(topics).error_code == 0
            answered += 1
        assert answered > 25
        for wire in large:
            assert len(wire.read_frame()) > MANY
    background.await_more()
