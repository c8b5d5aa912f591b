"""The coordinator process of a real broker: acknowledged commits survive it, and clients find its successor."""

from __future__ import annotations

import logging
import select
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import psutil
import pytest

from ..harness.broker import Broker
from ..harness.process import wait_until

pytestmark = pytest.mark.live

TOPIC, PARTITIONS = "t", 3


@pytest.fixture
def broker(fresh_broker: Callable[..., Broker]) -> Broker:
    return fresh_broker(num_partitions=PARTITIONS)


def retrying(call: Callable[[], Any]) -> Any:
    """The first answer of `call` that is neither a closed connection nor a missing coordinator."""

    def answered() -> Any:
        try:
            return call()
        except (OSError, EOFError):
            return None

    return wait_until(answered, 60, "an answer")


def find(broker: Broker) -> None:
    """Wait until a coordinator is found, which first creates `__consumer_offsets`, and has loaded it."""
    from kafka.protocol.metadata import FindCoordinatorRequest as Request
    from kafka.protocol.metadata import MetadataRequest

    def found() -> bool:
        with broker.wire() as wire:
            wire.call(MetadataRequest[1](topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)]))
            return wire.call(Request[1](key="g", key_type=0)).error_code == 0

    retrying(found)
    fetched(broker)  # the coordinator may still load its partitions


def answered(wires: list[Any]) -> int:
    """The number of these requests that have an answer."""
    poll = select.poll()
    for wire in wires:
        poll.register(wire.socket, select.POLLIN)
    return len(poll.poll(0))


def commit(wire: Any, offset: int, group: str = "g", partitions: int = PARTITIONS) -> int:
    """Commit `offset` of all partitions; the error code."""
    from kafka.protocol.consumer import OffsetCommitRequest as Request

    topic = Request.OffsetCommitRequestTopic
    rows = [
        topic.OffsetCommitRequestPartition(partition_index=n, committed_offset=offset, committed_metadata="")
        for n in range(partitions)
    ]
    request = Request[5](
        group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=[topic(name=TOPIC, partitions=rows)]
    )
    return max(row.error_code for row in wire.call(request).topics[0].partitions)


def committed(wire: Any, group: str = "g") -> list[int] | None:
    """The committed offsets of all partitions; None while the coordinator loads."""
    from kafka.protocol.consumer import OffsetFetchRequest as Request

    topics = [Request.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=list(range(PARTITIONS)))]
    answer = wire.call(Request[5](group_id=group, topics=topics))
    return None if answer.error_code else [row.committed_offset for row in answer.topics[0].partitions]


def fetched(broker: Broker, group: str = "g") -> list[int]:
    def ask() -> list[int] | None:
        with broker.wire() as wire:
            return committed(wire, group)

    return retrying(ask)


def test_answered_commits_survive_coordinator_and_broker(broker: Broker) -> None:
    find(broker)
    last = 0
    for _ in range(2):
        with broker.wire() as wire:
            for _ in range(50):
                assert commit(wire, last + 1) == 0
                last += 1
        broker.await_respawn("coordinator", broker.kill_role("coordinator"))
        assert set(fetched(broker)) == {last}
    broker.restart(kill=True)
    assert set(fetched(broker)) == {last}


def test_consumer_continues_when_coordinator_dies(broker: Broker) -> None:
    from confluent_kafka import Consumer, Producer

    find(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 30_000,
        }
    )
    consumer.subscribe([TOPIC])
    seen: list[bytes] = []

    def read(count: int) -> None:
        for n in range(count):
            producer.produce(TOPIC, b"%d" % (len(seen) + n))
        producer.flush(30)
        wanted = len(seen) + count

        def enough() -> bool:
            message = consumer.poll(1)
            if message is not None and not message.error():
                seen.append(message.value() or b"")
            return len(seen) == wanted

        wait_until(enough, 90, f"{wanted} messages")

    try:
        read(20)
        consumer.commit(asynchronous=False)
        broker.await_respawn("coordinator", broker.kill_role("coordinator"))
        read(20)
        retrying(lambda: _commit_or_none(consumer))
        assert sorted(seen, key=int) == [b"%d" % n for n in range(40)]
        assert sum(max(offset, 0) for offset in fetched(broker)) == 40  # a partition may have got no record
    finally:
        consumer.close()


def test_member_reads_its_partitions_though_the_coordinator_died_with_their_offset_fetch(
    fresh_broker: Callable[..., Broker],
) -> None:
    """The coordinator is stopped when the group has its assignment, and dies when the next request waits for it.

    librdkafka never reads a partition whose OffsetFetch gets NOT_COORDINATOR.
    """
    from confluent_kafka import Consumer, Producer

    broker = fresh_broker(odradek_workers=1, num_partitions=PARTITIONS)
    find(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition in range(PARTITIONS):
        producer.produce(TOPIC, b"x", partition=partition)
    producer.flush(30)
    lines = _Lines()
    config = {"group.id": "g", "auto.offset.reset": "earliest", "debug": "protocol", "log_level": 7}
    once = {"session.timeout.ms": 40_000, "heartbeat.interval.ms": 30_000}  # a heartbeat under way would die instead
    consumer = Consumer(config | once | {"bootstrap.servers": broker.bootstrap}, logger=lines.logger)
    (coordinator,) = map(psutil.Process, broker.pids("coordinator"))
    seen: set[int | None] = set()

    def assigned(consumer: Any, partitions: list[Any]) -> None:
        consumer.committed(partitions, timeout=30)  # the first OffsetFetch: what was sent before has its answer
        coordinator.suspend()

    def read() -> set[int | None]:
        message = consumer.poll(0.1)
        if message is not None and not message.error():
            seen.add(message.partition())
        return seen

    consumer.subscribe([TOPIC], on_assign=assigned)
    try:
        wait_until(lambda: read() or lines.count("Sent OffsetFetchRequest") == 2, 60, "the second OffsetFetch is sent")
        assert not seen
        with broker.wire() as wire:
            wire.metadata(TOPIC)  # the worker has forwarded by then what was sent before
        broker.kill_role("coordinator")
        wait_until(lambda: len(read()) == PARTITIONS, 60, "records of every partition")
    finally:
        consumer.close()


class _Lines(logging.Handler):
    """Keeps the lines of librdkafka."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[str] = []
        self.logger = logging.Logger("librdkafka", logging.DEBUG)
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._kept.append(record.getMessage())

    def count(self, words: str) -> int:
        """The number of lines with these words."""
        return sum(words in line for line in self._kept)


def _commit_or_none(consumer: Any) -> Any:
    from confluent_kafka import KafkaException

    try:
        return consumer.commit(asynchronous=False)
    except KafkaException:
        return None


def test_small_request_overtakes_large_ones(fresh_broker: Callable[..., Broker]) -> None:
    """Each large request takes a while. The worker forwards all of them in the order of arrival."""
    from kafka.protocol.admin import DescribeGroupsRequest as Request

    broker = fresh_broker(odradek_workers=1, num_partitions=PARTITIONS)
    find(broker)
    large = Request[5](groups=[f"group-{number}" for number in range(50_000)], include_authorized_operations=False)
    with ExitStack() as stack:
        wires = [stack.enter_context(broker.wire(120)) for _ in range(8)]
        small = stack.enter_context(broker.wire(120))
        for wire in wires:
            wire.put(large)
        assert commit(small, 1) == 0
        assert answered(wires) < 8
        assert [len(wire.take(large).groups) for wire in wires] == [50_000] * 8


def test_small_request_overtakes_ones_with_large_answers(fresh_broker: Callable[..., Broker]) -> None:
    """The large requests name only the group, and get all its offsets."""
    from kafka.protocol.consumer import OffsetFetchRequest as Request

    broker = fresh_broker(odradek_workers=1, num_partitions=3000)
    find(broker)
    whole = Request[7](group_id="g", topics=None, require_stable=False)
    with ExitStack() as stack:
        wires = [stack.enter_context(broker.wire(120)) for _ in range(24)]
        small = stack.enter_context(broker.wire(120))
        wait_until(lambda: commit(small, 1, partitions=3000) == 0, 60, "the topic")
        for wire in wires:
            wire.put(whole)
        assert commit(small, 2) == 0
        assert answered(wires) < 24
        assert [len(wire.take(whole).topics[0].partitions) for wire in wires] == [3000] * 24
