"""A log handler and a real broker: what arrives in the topic, also when the broker is killed, hangs or refuses records.

confluent-kafka reads.
"""

from __future__ import annotations

import json
import logging
import logging.config
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from odradek.inside import topics
from odradek.logging import KafkaHandler
from odradek.loghandler.backlog import QUEUE_FULL, TOO_LARGE

from ..clients.admin import create_named, create_topic, unique
from ..harness.broker import Broker
from ..harness.process import family, free_port, wait_until
from .conftest import Attach, Stderr, exit_code

pytestmark = pytest.mark.live

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="secret"'
NEVER = {"linger.ms": 600_000}  # only a flush sends


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that creates no topics by itself, with a second listener that authenticates."""
    made = Broker(tmp_path_factory.mktemp("broker"), auto_create_topics_enable="false")
    secured = f"SASL_PLAINTEXT://127.0.0.1:{free_port()}"
    made.properties |= {
        "listeners": f"PLAINTEXT://{made.bootstrap},{secured}",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{JAAS} user_ann="secret";',
    }
    try:
        yield made.start()
    finally:
        made.close()


@pytest.fixture
def attach(attach: Attach) -> Attach:
    """The broker answers, so the end of a handler may wait for it."""
    return partial(attach, close_timeout=60)


class Found(NamedTuple):
    """A record in a topic."""

    partition: int
    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes]]
    timestamp: int  # ms

    @property
    def content(self) -> dict[str, Any]:
        """The JSON object."""
        found: dict[str, Any] = json.loads(self.value)
        return found


def read(server: Broker, topic: str, partitions: int = 1) -> list[Found]:
    """All records of a topic, partition by partition."""
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "none", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    found: list[Any] = []
    ends = 0
    try:
        while ends < partitions:
            message = consumer.poll(30)
            assert message is not None, "no answer in 30 s"
            if error := message.error():
                assert error.code() == KafkaError._PARTITION_EOF, error
                ends += 1
            else:
                found.append(message)
    finally:
        consumer.close()
    found.sort(key=lambda one: (one.partition(), one.offset()))
    return [Found(m.partition(), m.key(), m.value(), m.headers() or [], m.timestamp()[1]) for m in found]


def texts(server: Broker, topic: str) -> list[str]:
    """The messages of the JSON objects in a topic."""
    return [one.content["message"] for one in read(server, topic)]


def flushed(handler: KafkaHandler) -> None:
    assert handler.flush(60), handler.counters()


# -- what arrives


@pytest.mark.smoke
def test_records_arrive_as_json_with_their_time_key_and_headers(server: Broker, attach: Attach) -> None:
    topic = create_topic(server)
    logger, handler = attach(
        server.bootstrap, topic, key="%(name)s", headers={"level": "%(levelname)s", "none": lambda _: None}
    )
    logger.warning("paid %d", 5, extra={"order": 7})
    flushed(handler)
    (found,) = read(server, topic)
    content = found.content
    assert (content["message"], content["level"], content["extra"]) == ("paid 5", "WARNING", {"order": 7})
    assert (found.key, found.headers) == (logger.name.encode(), [("level", b"WARNING")])
    assert content["timestamp"].endswith(f"{found.timestamp % 1000:03}Z")
    assert handler.counters() == {"accepted": 1, "sent": 1, "waiting": 0, "dropped": 0}


def test_handler_of_logging_config_sends_the_text_of_its_formatter(server: Broker) -> None:
    topic = create_topic(server)
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"text": {"format": "%(levelname)s %(message)s"}},
            "handlers": {
                "kafka": {
                    "class": "odradek.logging.KafkaHandler",
                    "bootstrap_servers": [server.bootstrap],
                    "topic": topic,
                    "formatter": "text",
                    "properties": {"compression.type": "zstd", "acks": 1},
                }
            },
            "loggers": {"sends text": {"handlers": ["kafka"], "propagate": False}},
        }
    )
    logger = logging.getLogger("sends text")
    logger.error("caf\xe9 \udc80")
    (handler,) = logger.handlers
    handler.close()
    logger.removeHandler(handler)
    assert [one.value for one in read(server, topic)] == ["ERROR café \\udc80".encode()]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_compressed_batches_can_be_read(server: Broker, attach: Attach, codec: str) -> None:
    topic = create_topic(server)
    logger, handler = attach(server.bootstrap, topic, properties={"compression.type": codec} | NEVER)
    for number in range(100):
        logger.info("%d", number)
    flushed(handler)
    assert texts(server, topic) == [str(number) for number in range(100)]


def test_keys_choose_partitions_as_in_kafka_and_keep_their_order(server: Broker, attach: Attach) -> None:
    topic = create_topic(server, partitions=3)
    logger, handler = attach(server.bootstrap, topic, key="%(key)s", properties={"batch.size": 2000})
    for number in range(200):
        logger.info("%d", number, extra={"key": f"k{number % 7}"})
    flushed(handler)
    producer = Producer({"bootstrap.servers": server.bootstrap, "partitioner": "murmur2_random"})
    expected: dict[Any, Any] = {}
    for number in range(7):
        producer.produce(topic, b"", f"k{number}", on_delivery=lambda _, m: expected.update({m.key(): m.partition()}))
    producer.flush()
    found = [one for one in read(server, topic, partitions=3) if one.value]
    assert all(one.partition == expected[one.key] for one in found)
    for key in expected:
        numbers = [int(one.content["message"]) for one in found if one.key == key]
        assert numbers == list(range(int(key[1:]), 200, 7))


def test_records_without_a_key_use_all_partitions(server: Broker, attach: Attach) -> None:
    topic = create_topic(server, partitions=3)
    logger, handler = attach(server.bootstrap, topic, properties={"batch.size": 1})
    for number in range(9):
        logger.info("%d", number)
    flushed(handler)
    assert Counter(one.partition for one in read(server, topic, partitions=3)) == {0: 3, 1: 3, 2: 3}


# -- what the broker refuses


def test_record_above_max_message_bytes_is_dropped_alone(server: Broker, attach: Attach, stderr: Stderr) -> None:
    topic = create_topic(server, max_message_bytes=2000)
    logger, handler = attach(server.bootstrap, topic, properties=NEVER)
    for text in ("a", "b", "x" * 3000, "c"):
        logger.info(text)
    flushed(handler)
    assert handler.dropped() == {TOO_LARGE: 1}
    handler.close()
    assert "1 record dropped: 1 larger than the topic's max.message.bytes" in stderr.text
    *sent, report = texts(server, topic)
    assert sent == ["a", "b", "c"]
    assert report == "1 record dropped: 1 larger than the topic's max.message.bytes"


def test_records_that_the_topic_refuses_are_dropped_alone(server: Broker, attach: Attach, stderr: Stderr) -> None:
    """A compacted topic takes no records without a key."""
    topic = create_topic(server, cleanup_policy="compact")
    logger, handler = attach(
        server.bootstrap, topic, key=lambda record: record.getMessage() if record.levelname == "INFO" else None,
        properties=NEVER,
    )  # fmt: skip
    for number in range(6):
        logger.log(logging.WARNING if number in (2, 3) else logging.INFO, "%d", number)
    flushed(handler)
    assert texts(server, topic) == ["0", "1", "4", "5"]
    assert handler.dropped() == {"refused by the broker with INVALID_RECORD": 2}
    assert "key" in stderr.wait_for("2 records dropped")


def test_missing_topic_is_said_and_records_wait_for_it(server: Broker, attach: Attach, stderr: Stderr) -> None:
    topic = unique("late")
    logger, handler = attach(server.bootstrap, topic)
    logger.info("early")
    line = stderr.wait_for("cannot send")
    assert "it does not exist: create it, or set auto.create.topics.enable on the brokers; 1 record waits" in line
    with server.wire() as wire:
        create_named(wire, topic)
    flushed(handler)
    stderr.wait_for(f"topic {topic}: sends again")
    assert texts(server, topic) == ["early"]


def test_records_go_to_the_partitions_of_a_topic_that_is_created_again_with_fewer(
    server: Broker, attach: Attach
) -> None:
    topic = create_topic(server, partitions=8)
    logger, handler = attach(server.bootstrap, topic, key="%(message)s", properties=NEVER)
    logger.info("former")
    flushed(handler)
    topics.delete(server.bootstrap, topic)
    with server.wire() as wire:
        create_named(wire, topic)
    for number in range(50):
        logger.info("%d", number)
    flushed(handler)
    assert handler.counters()["dropped"] == 0
    assert texts(server, topic) == [str(number) for number in range(50)]


def test_wrong_password_is_said(server: Broker, attach: Attach, stderr: Stderr) -> None:
    logger, _ = attach(secured(server), "any", properties=login("wrong"), close_timeout=0.1)
    logger.info("hello")
    assert "refused the authentication" in stderr.wait_for("cannot send")


def secured(server: Broker) -> str:
    return str(server.properties["listeners"]).rpartition("//")[2]


def login(password: str) -> dict[str, str]:
    jaas = JAAS.replace("secret", password) + ";"
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}


# -- no recursion


_auditor: logging.Logger | None = None


def _log_connections(event: str, _: Any) -> None:
    """An audit hook, which stays until the process ends: logs in the thread that connects."""
    if event == "socket.connect" and _auditor is not None:
        _auditor.info("connects")


def test_what_is_logged_in_the_threads_that_send_does_not_come_back(
    server: Broker, attach: Attach, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two handlers on one logger: neither sends what the thread of the other one logs."""
    topic = create_topic(server)
    logger, handler = attach(secured(server), topic, properties=login("secret"))
    other = attach(secured(server), topic, properties=login("secret"))[1]
    logger.addHandler(other)
    records: list[logging.LogRecord] = []
    logger.addFilter(lambda record: records.append(record) or True)
    sys.addaudithook(_log_connections)
    monkeypatch.setitem(globals(), "_auditor", logger)
    logger.info("of the program")
    flushed(handler)
    flushed(other)
    monkeypatch.undo()
    logger.removeHandler(other)
    assert [record.getMessage() for record in records if record.threadName == "odradek-logging"]
    assert texts(server, topic) == ["of the program"] * 2


def test_what_librdkafka_logs_for_the_program_is_sent(server: Broker, attach: Attach) -> None:
    topic = create_topic(server)
    logger, handler = attach(server.bootstrap, topic)
    program = Producer({"bootstrap.servers": server.bootstrap, "debug": "broker"}, logger=logger)
    wait_until(lambda: program.poll(0.05) or handler.counters()["accepted"] > 3, 60, "librdkafka logs")
    logger.handlers.clear()
    flushed(handler)
    assert len(texts(server, topic)) == handler.counters()["accepted"]


# -- a broker that hangs or dies


def test_all_records_arrive_once_though_the_broker_is_killed(server: Broker, attach: Attach) -> None:
    topic = create_topic(server)
    options = {"linger.ms": 0, "queue.buffering.max.messages": 1_000_000, "batch.size": 500}
    logger, handler = attach(server.bootstrap, topic, properties=options)
    ends, counts = threading.Event(), Counter[str]()

    def log(name: str) -> None:
        while not ends.is_set() or counts[name] < 200:
            logger.info("%d", counts[name])
            counts[name] += 1
            ends.wait(0.002)

    threads = [threading.Thread(target=log, args=(name,), name=name) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: handler.counters()["sent"] > 20, 60, "records are sent")
        server.kill()
        server.start()
        sent = handler.counters()["sent"]
        wait_until(lambda: handler.counters()["sent"] > sent, 60, "records are sent again")
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    flushed(handler)
    assert handler.counters()["dropped"] == 0
    found = [one.content for one in read(server, topic)]
    for name, count in counts.items():
        numbers = [int(one["message"]) for one in found if one["thread"] == name]
        assert numbers == list(range(count)), "each once, in the thread's order"


def test_drops_are_counted_and_told_in_the_topic_after_the_broker_hung(
    server: Broker, attach: Attach, stderr: Stderr
) -> None:
    topic = create_topic(server)
    options = {"linger.ms": 0, "queue.buffering.max.messages": 50, "request.timeout.ms": 500}
    logger, handler = attach(server.bootstrap, topic, properties=options)
    logger.info("before")
    flushed(handler)
    with stopped(server):
        for number in range(500):
            logger.info("%d", number)
        assert handler.counters() == {"accepted": 51, "sent": 1, "waiting": 50, "dropped": 450}
        stderr.wait_for("cannot send")
    flushed(handler)
    stderr.wait_for("sends again")
    handler.close()
    assert handler.dropped() == {QUEUE_FULL: 450}
    found = [one.content for one in read(server, topic)]
    reports = [one for one in found if one["logger"] == "odradek.logging"]
    assert sum(one["extra"]["dropped"][QUEUE_FULL] for one in reports) == 450
    assert [one["message"] for one in found if one not in reports] == ["before", *map(str, range(50))]
    said = [line for line in stderr.text.splitlines() if " dropped: " in line]
    assert sum(int(line.rpartition(" dropped: ")[2].split()[0]) for line in said) == 450


@contextmanager
def stopped(server: Broker) -> Iterator[None]:
    """SIGSTOP for all processes of the broker."""
    assert server.process is not None
    processes = family(server.process.pid)
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in reversed(processes):
            process.resume()


# -- processes


def test_forked_child_sends_its_own_records_and_the_parents_are_sent_once(server: Broker, attach: Attach) -> None:
    topic = create_topic(server)
    logger, handler = attach(server.bootstrap, topic, properties=NEVER)
    logger.info("connected")
    flushed(handler)
    logger.info("parent")
    pid = os.fork()
    if not pid:
        logger.info("child")
        os._exit(0 if handler.flush(60) and handler.counters()["sent"] == 1 else 1)
    assert exit_code(pid) == 0
    assert texts(server, topic) == ["connected", "child"]
    logger.info("parent again")
    flushed(handler)
    assert texts(server, topic) == ["connected", "child", "parent", "parent again"]


PROGRAM = """
import logging, multiprocessing, os, sys
from odradek.logging import KafkaHandler

logger = logging.getLogger("program")
logger.setLevel("INFO")
logger.addHandler(KafkaHandler(sys.argv[1], sys.argv[2], close_timeout=float(sys.argv[3]), key="%(process)d"))
logger.info("before the forks")
workers = [multiprocessing.get_context("fork").Process(target=logger.info, args=("process %d", at)) for at in (1, 2)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
pid = os.fork()
if not pid:
    logger.info("forked")
    sys.exit()
os.waitpid(pid, 0)
for number in range(1000):
    logger.info("%d", number)
"""


def test_program_and_its_forked_workers_send_all_before_they_end(server: Broker) -> None:
    """`multiprocessing` ends its workers without `logging.shutdown`; a pre-forking server calls `sys.exit`."""
    topic = create_topic(server)
    done = run_program(server.bootstrap, topic, 60)
    assert (done.returncode, done.stderr) == (0, "")
    first = ["before the forks", "process 1", "process 2", "forked"]
    assert sorted(texts(server, topic)) == sorted([*first, *map(str, range(1000))])


def test_program_ends_without_its_broker(server: Broker) -> None:
    """Each process says what it dropped."""
    with stopped(server):
        done = run_program(server.bootstrap, "any", 0.3)
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert len(lines) == 4 and all(line.endswith(" the handler was closed") for line in lines), done.stderr
    assert sum(int(line.rpartition(" dropped: ")[2].split()[0]) for line in lines) == 1004


def run_program(*arguments: Any) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=240)
