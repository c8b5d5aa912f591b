"""Faults that a test wants of its broker: real clients meet each, and find the broker as before after the block."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as Partition
from kafka.errors import KafkaStorageError, KafkaTimeoutError

from odradek import Broker, BrokerError, FaultError

from ..clients.admin import unique
from ..harness.process import die_with_parent, family, wait_dead, wait_until
from ..harness.wire import answers
from .left import left

pytestmark = pytest.mark.live

DAY_MS = 86_400_000
LONG = 600.0  # seconds that no test waits


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """One that every test leaves as it was."""
    with Broker() as running:
        yield running


@pytest.fixture
def topic(broker: Broker) -> str:
    name = unique("faults")
    broker.create_topic(name)
    return name


@pytest.fixture
def producer(broker: Broker) -> Iterator[KafkaProducer]:
    """Of kafka-python, connected; it sends nothing again."""
    made = KafkaProducer(bootstrap_servers=broker.bootstrap, retries=0, enable_idempotence=False, acks=1)
    yield made
    made.close(0)


def stored(broker: Broker, topic: str) -> list[bytes | None]:
    """The values in a topic, as confluent-kafka reads them to the end."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(end, timeout=30)]
    finally:
        consumer.close()


# -- errors


@pytest.mark.smoke
def test_producer_sends_again_what_was_answered_with_a_retriable_error(broker: Broker, topic: str) -> None:
    """confluent-kafka; nothing of a refused request is stored."""
    found: list[tuple[Any, Message]] = []
    with broker.failing("Produce", error="NOT_LEADER_OR_FOLLOWER", times=3) as fault:
        sender = Producer({"bootstrap.servers": broker.bootstrap, "retry.backoff.ms": 10, "linger.ms": 0})
        sender.produce(topic, b"once", on_delivery=lambda error, message: found.append((error, message)))
        assert sender.flush(60) == 0
        assert fault.hits == 3
    ((error, message),) = found
    assert error is None and message.offset() == 0
    assert (stored(broker, topic), fault.hits) == ([b"once"], 3)


def test_fault_begins_after_the_requests_that_it_lets_pass(broker: Broker, topic: str, producer: KafkaProducer) -> None:
    with broker.failing("produce", "KAFKA_STORAGE_ERROR", times=1, after=2) as fault:
        sent = [_outcome(producer, topic, b"%d" % number) for number in range(4)]
        assert fault.hits == 1
    assert sent == [None, None, KafkaStorageError, None]
    assert stored(broker, topic) == [b"0", b"1", b"3"]


def _outcome(producer: KafkaProducer, topic: str, value: bytes) -> type[Exception] | None:
    """The error of one record that is sent alone."""
    try:
        producer.send(topic, value).get(timeout=30)
    except Exception as error:
        return type(error)
    return None


def test_member_joins_its_group_after_errors_of_the_coordinator(broker: Broker, topic: str) -> None:
    """kafka-python looks the coordinator up again, and joins again."""
    KafkaProducerOf(broker).put(topic, b"read")
    with (
        broker.failing("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", times=1) as lookup,
        broker.failing("JoinGroup", "NOT_COORDINATOR", times=1) as join,
    ):
        consumer = KafkaConsumer(
            topic, bootstrap_servers=broker.bootstrap, group_id=unique("g"), auto_offset_reset="earliest",
            retry_backoff_ms=10,
        )  # fmt: skip
        assert next(consumer).value == b"read"
        consumer.close()
        assert (lookup.hits, join.hits) == (1, 1)


class KafkaProducerOf:
    """Puts single records."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def put(self, topic: str, value: bytes) -> Any:
        made = KafkaProducer(bootstrap_servers=self._broker.bootstrap)
        try:
            return made.send(topic, value).get(timeout=60)
        finally:
            made.close()


# -- delays


def test_consumer_waits_for_a_delayed_fetch_and_continues_when_the_delay_is_removed(broker: Broker, topic: str) -> None:
    KafkaProducerOf(broker).put(topic, b"late")
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", request_timeout_ms=500_000
    )
    consumer.assign([Partition(topic, 0)])
    with broker.delaying("Fetch", seconds=LONG) as fault:
        wait_until(lambda: consumer.poll(timeout_ms=50) or fault.hits, 60, "a fetch is delayed")
        assert consumer.poll(timeout_ms=300) == {}
    assert next(consumer).value == b"late"
    consumer.close()


def test_delayed_produce_keeps_its_place_among_later_ones(broker: Broker, topic: str) -> None:
    """aiokafka sends on when its request times out, and the records of the first one are stored once."""

    async def send() -> list[int]:
        made = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=0)
        await made.start()
        try:
            with broker.delaying("Produce", seconds=LONG, times=1) as fault:
                first = await made.send(topic, b"first")
                while not fault.hits:
                    await asyncio.sleep(0.01)
                second = await made.send(topic, b"second")
                await asyncio.sleep(0.1)
                assert not first.done() and not second.done()
            return [(await first).offset, (await second).offset]
        finally:
            await made.stop()

    assert asyncio.run(send()) == [0, 1]
    assert stored(broker, topic) == [b"first", b"second"]


# -- connections and processes


def test_new_client_is_refused_while_an_old_one_is_served(broker: Broker, topic: str, producer: KafkaProducer) -> None:
    producer.send(topic, b"before").get(timeout=30)
    with broker.refusing():
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=1)
        producer.send(topic, b"in between").get(timeout=30)
    assert topic in admin.list_topics(timeout=60).topics


@pytest.mark.parametrize("process", ["worker", None])
def test_request_waits_while_processes_are_paused(
    broker: Broker, topic: str, producer: KafkaProducer, process: str | None
) -> None:
    producer.send(topic, b"first").get(timeout=30)
    pids = {one.pid for one in family(broker.pid)}
    with broker.paused(process):
        sent = producer.send(topic, b"second")
        with pytest.raises(KafkaTimeoutError):
            sent.get(timeout=1)
    assert sent.get(timeout=60).offset == 1
    assert {one.pid for one in family(broker.pid)} == pids, "no process was replaced"


def test_killed_worker_is_replaced(broker: Broker, topic: str) -> None:
    sender = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, "reconnect.backoff.ms": 20})
    found: list[Any] = []
    for number in range(2):
        sender.produce(topic, b"%d" % number, on_delivery=lambda error, _: found.append(error))
        assert sender.flush(60) == 0
        if not number:
            broker.kill("worker")
    assert found == [None, None]
    assert stored(broker, topic) == [b"0", b"1"]


PAUSING = """
import time
from odradek import Broker
broker = Broker().start()
with broker.paused():
    print(broker.pid, broker.log_file.parent, flush=True)
    time.sleep(600)
"""


def test_paused_broker_ends_with_a_killed_program() -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PAUSING], stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent
    )
    assert program.stdout is not None
    pid, folder = program.stdout.readline().split()
    members = family(int(pid))
    program.kill()
    program.wait()
    program.stdout.close()
    assert wait_dead(members) == []
    assert left(Path(folder)) == []


# -- the disk and the clock


def test_full_disk_refuses_records_and_serves_fetches(broker: Broker, topic: str, producer: KafkaProducer) -> None:
    assert _outcome(producer, topic, b"before") is None
    with broker.disk_full():
        assert _outcome(producer, topic, b"lost") is KafkaStorageError
        assert stored(broker, topic) == [b"before"]
    assert _outcome(producer, topic, b"after") is None
    assert stored(broker, topic) == [b"before", b"after"]


def test_clock_is_that_of_log_append_time(broker: Broker) -> None:
    topic = unique("appended")
    broker.create_topic(topic, configs={"message.timestamp.type": "LogAppendTime"})
    sender = KafkaProducerOf(broker)
    before = sender.put(topic, b"1").timestamp
    with broker.clock(2 * DAY_MS / 1000), broker.clock(-DAY_MS / 1000):
        ahead = sender.put(topic, b"2").timestamp
    after = sender.put(topic, b"3").timestamp
    assert DAY_MS <= ahead - before < 2 * DAY_MS
    assert 0 <= after - before < DAY_MS


# -- blocks


def test_fault_ends_with_a_block_that_raises(broker: Broker, topic: str, producer: KafkaProducer) -> None:
    with pytest.raises(ZeroDivisionError), broker.disk_full(), broker.failing("Produce", "NOT_CONTROLLER"):
        raise ZeroDivisionError
    assert _outcome(producer, topic, b"stored") is None


def test_broker_can_be_stopped_and_restarted_within_a_block() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        with broker.failing("Produce", "KAFKA_STORAGE_ERROR") as fault:
            broker.restart()
            made = KafkaProducer(bootstrap_servers=broker.bootstrap, retries=0, enable_idempotence=False)
            assert _outcome(made, "t", b"refused") is KafkaStorageError
            made.close(0)
            broker.stop()
        assert fault.hits == 1
        with pytest.raises(BrokerError, match="does not run"), broker.refusing():
            pass


def test_broker_that_a_program_started_without_faults_says_so() -> None:
    with Broker({"odradek.faults.file": None}) as broker:
        assert answers(broker.bootstrap)
        with pytest.raises(FaultError, match=r"do not set odradek\.faults\.file"), broker.disk_full():
            pass


def test_broker_does_not_start_with_faults_that_others_may_set(tmp_path: Path) -> None:
    file = tmp_path / "faults"
    file.write_bytes(b"x")
    with pytest.raises(BrokerError, match=f"odradek.faults.file={file}: not a table of faults of this user alone"):
        Broker({"odradek.faults.file": file}).start()


@pytest.mark.parametrize(
    ("api", "error", "times", "says"),
    [
        ("Prodoose", "NOT_CONTROLLER", 1, "api='Prodoose': Kafka has no such API"),
        ("Produce", "NOT_A_LEADER", 1, "error='NOT_A_LEADER': no error code of Kafka has this name"),
        ("Produce", "NONE", 1, "error='NONE'"),
        ("Produce", "NOT_CONTROLLER", 0, "times=0, after=0: times must be above 0"),
    ],
)
def test_wrong_argument_is_one_line_that_says_what_to_change(
    broker: Broker, api: str, error: str, times: int, says: str
) -> None:
    with pytest.raises(FaultError, match=says), broker.failing(api, error, times):
        pass


def test_wrong_delay_and_unknown_process_are_refused(broker: Broker) -> None:
    with pytest.raises(FaultError, match="seconds=0: it must be above 0"):
        broker.delaying("Fetch", 0)
    with pytest.raises(FaultError, match="no process 'wroker': it has controller, coordinator, janitor, worker-0"):
        broker.kill("wroker")


def test_fork_of_the_program_cannot_set_faults(broker: Broker) -> None:
    pid = os.fork()
    if not pid:
        try:
            with broker.refusing():
                os._exit(1)
        except BrokerError:
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
