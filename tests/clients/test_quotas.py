"""Client quotas with real clients: a quota is in force at once, over all workers, and after a restart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from ..harness.broker import Broker
from ..harness.process import readable, wait_until
from ..harness.wire import Wire
from .admin import unique
from .quotas import (
    FLOOD,
    VALUE,
    Meter,
    alter,
    confluent_reads,
    confluent_sends,
    described,
    fill,
    kafka_python_reads,
    kafka_python_sends,
    running,
)
from .raw import batches, calls

pytestmark = pytest.mark.live

RATE = 500_000  # bytes a second: little for any machine
SECONDS = 90
CLIENTS = 4
SAMPLES = 3
OWN_REQUESTS = 500  # of 1 KB
ALONE = {"client-id": "alone"}
NOT_STRICT, STRICT, THROTTLED = 5, 6, 89
FreshBroker = Callable[..., Broker]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of four workers with quota windows of two samples; each test removes the quotas that it sets."""
    made = Broker(tmp_path_factory.mktemp("shared"), odradek_workers=4, quota_window_num=2)
    try:
        yield made.start()
    finally:
        made.close()


@contextmanager
def altered(broker: Broker, entity: Mapping[str, str | None], **quotas: float) -> Iterator[None]:
    """Set these quotas of an entity within the block."""
    assert alter(broker, entity, **quotas) == 0
    yield
    assert alter(broker, entity, **dict.fromkeys(quotas)) == 0


def cases(usual: tuple[Any, int], *clients: Any) -> list[Any]:
    """Each client with each number of workers; all but one are long."""
    every = [(client, workers) for client in clients for workers in (1, 2, 4)]
    return [pytest.param(*one, marks=[] if one == usual else [pytest.mark.long]) for one in every]


@pytest.mark.parametrize(("sends", "workers"), cases((confluent_sends, 4), confluent_sends, kafka_python_sends))
def test_producers_get_their_rate(fresh_broker: FreshBroker, sends: Any, workers: int) -> None:
    broker = fresh_broker(odradek_workers=workers, num_partitions=CLIENTS, quota_window_num=SAMPLES)
    fill(broker, "t", CLIENTS, len(VALUE))
    assert alter(broker, {"client-id": FLOOD}, producer_byte_rate=RATE) == 0
    meter = Meter(RATE)
    with running(sends(broker, "t", meter), CLIENTS, meter):
        assert meter.done.wait(SECONDS)


@pytest.mark.parametrize(("reads", "workers"), cases((kafka_python_reads, 2), confluent_reads, kafka_python_reads))
def test_consumers_get_their_rate(fresh_broker: FreshBroker, reads: Any, workers: int) -> None:
    broker = fresh_broker(odradek_workers=workers, num_partitions=CLIENTS, quota_window_num=SAMPLES)
    fill(broker, "t", CLIENTS, RATE * SECONDS // CLIENTS)
    assert alter(broker, {"client-id": FLOOD}, consumer_byte_rate=RATE) == 0
    meter = Meter(RATE)
    with running(reads(broker, "t", meter), CLIENTS, meter):
        assert meter.done.wait(SECONDS)


def test_throttled_client_does_not_delay_another(fresh_broker: FreshBroker) -> None:
    """Requests of the other client are answered without a throttle time while the throttled client waits."""
    broker = fresh_broker(odradek_workers=2, num_partitions=CLIENTS, quota_window_num=SAMPLES)
    fill(broker, "t", CLIENTS, len(VALUE))
    assert alter(broker, {"client-id": None}, producer_byte_rate=RATE) == 0
    meter = Meter(RATE)
    with running(confluent_sends(broker, "t", meter), CLIENTS, meter), broker.wire() as wire:
        wait_until(lambda: meter.total > 2 * RATE, SECONDS, "the flood is at its quota")
        for _ in range(OWN_REQUESTS):
            answer = wire.call(calls.produce_request("t", batches.batch([VALUE])))
            assert answer.throttle_time_ms == 0
            assert answer.responses[0].partition_responses[0].error_code == 0


def test_quotas_are_described_and_outlive_a_restart(shared: Broker) -> None:
    broker = shared
    entity: dict[str, str | None] = {"user": "al ice/é", "client-id": None}
    assert alter(broker, entity, producer_byte_rate=1000.0, request_percentage=12.5) == 0
    assert alter(broker, ALONE, consumer_byte_rate=5.0) == 0
    assert alter(broker, {"user": "bob"}, producer_byte_rate=-1.0) == 42
    assert described(broker, entity) == {"producer_byte_rate": 1000.0, "request_percentage": 12.5}
    broker.restart()
    assert described(broker, entity) == {"producer_byte_rate": 1000.0, "request_percentage": 12.5}
    assert alter(broker, entity, producer_byte_rate=None, request_percentage=None) == 0
    assert described(broker, entity) == {}
    assert described(broker, ALONE) == {"consumer_byte_rate": 5.0}
    assert alter(broker, ALONE, consumer_byte_rate=None) == 0


def test_a_quota_is_in_force_when_it_is_answered(shared: Broker) -> None:
    wires = [shared.wire() for _ in range(8)]
    for one in wires:
        assert one.call(calls.produce_request("t", batches.batch([VALUE] * 10))).throttle_time_ms == 0
    with altered(shared, {"user": "ANONYMOUS"}, producer_byte_rate=1000.0):
        answers = [one.call(calls.produce_request("t", batches.batch([VALUE] * 10))) for one in wires]
    assert [answer.throttle_time_ms > 0 for answer in answers] == [True] * 8
    for one in wires:
        one.close()


@pytest.mark.parametrize("version", [NOT_STRICT, STRICT])
def test_mutations_above_the_rate_are_refused_in_strict_versions(fresh_broker: FreshBroker, version: int) -> None:
    """Two samples of a second make a bucket of tokens, which the first topic overdraws."""
    from kafka.protocol.admin import CreateTopicsRequest as Request

    names = [unique("made") for _ in range(3)]
    topics = [Request.CreatableTopic(name=one, num_partitions=3, replication_factor=1, assignments=[], configs=[])
              for one in names]  # fmt: skip
    broker = fresh_broker(controller_quota_window_num=2)
    assert alter(broker, {"user": None}, controller_mutation_rate=0.5) == 0
    with broker.wire() as wire:
        answer = wire.call(Request[version](topics=topics, timeout_ms=10_000, validate_only=False))
    refused = THROTTLED if version == STRICT else 0
    assert [topic.error_code for topic in answer.topics] == [0, refused, refused]
    assert answer.throttle_time_ms > 0


@pytest.mark.parametrize("deletes", [False, True])
def test_mutations_are_throttled_in_versions_without_a_throttle_time(fresh_broker: FreshBroker, deletes: bool) -> None:
    """Kafka throttles these clients, too: CreateTopics before v2, DeleteTopics v0."""
    from kafka.protocol.admin import CreateTopicsRequest, DeleteTopicsRequest
    from kafka.protocol.metadata import MetadataRequest

    broker, name = fresh_broker(controller_quota_window_num=2), unique("made")
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=9, replication_factor=1, assignments=[], configs=[]
    )
    create = CreateTopicsRequest[1](topics=[topic], timeout_ms=10_000, validate_only=False)
    delete = DeleteTopicsRequest[0](topic_names=[name], timeout_ms=10_000)
    with broker.wire() as wire, broker.wire() as other:
        if deletes:
            assert not wire.call(create).topics[0].error_code
        assert alter(broker, {"user": None}, controller_mutation_rate=0.1) == 0
        answer = wire.call(delete if deletes else create)
        assert not (answer.responses if deletes else answer.topics)[0].error_code
        wire.put(MetadataRequest[1](topics=[]))
        for _ in range(3):
            other.metadata()
        assert not readable(wire.socket.fileno(), 0), "the other client is answered, this one waits"


def test_connections_above_the_rate_of_an_ip_are_closed(shared: Broker) -> None:
    """A connection above the rate is accepted, answers nothing, and is closed after its throttle time."""
    assert alter(shared, {"ip": "no.such.host"}, connection_creation_rate=1.0) == 42
    with altered(shared, {"ip": "127.0.0.9"}, connection_creation_rate=1.0):
        wires = [Wire(shared.bootstrap, source="127.0.0.9") for _ in range(8)]
        served = [_is_served(one) for one in wires]
    assert served[0]
    assert not served[-1]
    for one in wires:
        one.close()
    with shared.wire() as other:
        other.api_versions()


def _is_served(wire: Any) -> bool:
    try:
        wire.api_versions()
    except (EOFError, OSError):
        return False
    return True
