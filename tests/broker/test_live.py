"""A complete real broker: clients during stops, kills, scaling and retention."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from ..harness.broker import Broker
from ..harness.process import wait_until
from ..harness.wire import answers

pytestmark = pytest.mark.live

Fresh = Callable[..., Broker]


def _create(broker: Broker, topic: str, partitions: int = 1, **config: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    configs = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)])
    admin.close()


def _producer(broker: Broker, **settings: Any) -> KafkaProducer:
    return KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all", **settings)


def _read(broker: Broker, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, consumer_timeout_ms=20_000)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    found = []
    for record in consumer:
        found.append(record.value)
        if len(found) == count:
            break
    consumer.close()
    return found


def _status(broker: Broker) -> dict[str, Any]:
    return dict(json.loads(broker.command("status", str(broker.properties_file), "--json").stdout))


@pytest.mark.smoke
def test_stop_is_clean_and_the_next_start_knows_everything(fresh_broker: Fresh) -> None:
    broker = fresh_broker()
    _create(broker, "t")
    producer = _producer(broker)
    for number in range(100):
        producer.send("t", str(number).encode())
    producer.close()
    assert broker.command("stop", str(broker.properties_file)).returncode == 0
    assert broker.process is not None and broker.process.wait(60) == 0
    broker.process = None
    assert not broker.shared_memory()
    assert (broker.data_dir / ".kafka_cleanshutdown").exists()
    assert "t 0 100" in (broker.data_dir / "recovery-point-offset-checkpoint").read_text()
    broker.start()
    assert not (broker.data_dir / ".kafka_cleanshutdown").exists()
    assert _read(broker, "t", 100) == [str(number).encode() for number in range(100)]
    (partition,) = [one for one in _status(broker)["partitions"] if one["topic"] == "t"]
    assert (partition["log_end"], partition["flushed"]) == (100, 100)


@pytest.mark.parametrize(
    ("where", "goes_to"), [(">/dev/full", "/dev/full"), pytest.param(">&-", "/dev/null", marks=pytest.mark.long)]
)
def test_broker_serves_without_a_reader_of_its_output(fresh_broker: Fresh, where: str, goes_to: str) -> None:
    """Standard output is a full disk, or closed."""
    broker = fresh_broker()
    broker.stop()
    broker.prefix = ["sh", "-c", f'exec "$@" {where}', "sh"]
    broker.launch()
    wait_until(lambda: answers(broker.bootstrap), 60, "the broker answers")
    assert broker.process is not None
    assert os.readlink(f"/proc/{broker.process.pid}/fd/1") == goes_to
    _create(broker, "t")
    assert _producer(broker).send("t", b"x").get(60).offset == 0
    broker.stop()


OTHERS = ["acceptor", "controller", "coordinator", "janitor"]


@pytest.mark.parametrize("role", ["worker", *(pytest.param(role, marks=pytest.mark.long) for role in OTHERS)])
def test_nothing_acknowledged_is_lost_when_a_process_dies(fresh_broker: Fresh, role: str) -> None:
    broker = fresh_broker()
    _create(broker, "t")
    producer = _producer(broker, retries=1000)
    acked = []
    for number in range(300):
        producer.send("t", str(number).encode()).get(60)
        acked.append(str(number).encode())
        if number == 100:
            dead = broker.kill_role(role)
    broker.await_respawn(role, dead)
    producer.close()
    assert _read(broker, "t", 300) == acked
    broker.stop()


def test_nothing_acknowledged_is_lost_when_the_supervisor_dies(fresh_broker: Fresh, short_folder: Path) -> None:
    broker = fresh_broker(start=False)
    broker.env["TMPDIR"] = str(short_folder)  # or the start of another test's broker removes what the kill leaves
    broker.start()
    _create(broker, "t")
    producer = _producer(broker)
    for number in range(200):
        producer.send("t", str(number).encode()).get(60)
    producer.close()
    broker.kill()
    assert broker.shared_memory()
    broker.start()
    assert _read(broker, "t", 200) == [str(number).encode() for number in range(200)]
    broker.stop()


def test_scaling_disturbs_no_connection(fresh_broker: Fresh) -> None:
    """With retries=0, one failed request fails the test; retired workers pass their connections on."""
    broker = fresh_broker(odradek_workers=1)
    _create(broker, "t")
    producers = [_producer(broker, retries=0, enable_idempotence=False) for _ in range(3)]
    sent = 0
    for workers in (4, 1, 2, 1):
        assert broker.command("scale", str(broker.properties_file), "--workers", str(workers)).returncode == 0
        assert len(broker.pids("worker")) == workers
        producers.append(_producer(broker, retries=0, enable_idempotence=False))
        for producer in producers:
            for _ in range(20):
                producer.send("t", str(sent).encode()).get(60)
                sent += 1
    for producer in producers:
        producer.close()
    assert _read(broker, "t", sent) == [str(number).encode() for number in range(sent)]
    broker.stop()


def test_retention_and_removal(fresh_broker: Fresh) -> None:
    broker = fresh_broker(log_retention_check_interval_ms=300, log_segment_delete_delay_ms=100)
    _create(broker, "t", segment_bytes="1000", retention_ms="1000", file_delete_delay_ms="100")
    producer = _producer(broker)
    for _ in range(20):
        producer.send("t", b"x" * 400).get(60)
    producer.close()
    folder = broker.data_dir / "t-0"

    def only_an_empty_segment() -> bool:
        names = sorted(os.listdir(folder))
        logs = [name for name in names if ".log" in name]
        return logs == ["00000000000000000020.log"] and not any(name.endswith(".deleted") for name in names)

    wait_until(only_an_empty_segment, 60, "only the active segment is left")
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.delete_topics(["t"])
    admin.close()
    wait_until(lambda: not any(name.startswith("t-0") for name in os.listdir(broker.data_dir)), 60, "t-0 is removed")
    broker.stop()


def test_several_listeners(fresh_broker: Fresh) -> None:
    broker = fresh_broker(start=False)
    broker.set(
        listeners=f"PLAINTEXT://{broker.host}:{broker.port},SIX://[::1]:0",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,SIX:PLAINTEXT",
    )
    broker.start()
    _create(broker, "t")
    six = next(text for text in _status(broker)["listeners"] if text.startswith("SIX://"))
    consumer = KafkaConsumer(bootstrap_servers=six.removeprefix("SIX://"))
    assert consumer.partitions_for_topic("t") == {0}
    consumer.close()
    broker.stop()
