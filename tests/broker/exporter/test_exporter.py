"""The exporter of a real broker: metrics equal the clients' activity, and the exporter disturbs no other process."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import urllib.error
from collections.abc import Callable
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.structs import OffsetAndMetadata

from odradek.broker.exporter import http_server

from ...harness.broker import Broker
from ...harness.process import free_port, wait_until
from ...harness.wire import answers
from .conftest import Metered, await_exporter
from .scraping import OPENMETRICS, get, of, scrape, total

pytestmark = pytest.mark.live


def _create(broker: Broker, topic: str, partitions: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([NewTopic(topic, partitions, 1)])
    admin.close()


def _produce(broker: Broker, topic: str, partition: int, count: int, **settings: Any) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all", **settings) as producer:
        sent = [producer.send(topic, b"%d" % number, partition=partition) for number in range(count)]
        for future in sent:
            future.get(30)


def _commit(broker: Broker, group: str, offsets: dict[TopicPartition, int]) -> None:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False)
    consumer.commit({where: OffsetAndMetadata(offset, "", -1) for where, offset in offsets.items()})
    consumer.close()


@pytest.mark.smoke
def test_metrics_show_client_activity(metered: Metered) -> None:
    broker, address = metered()
    _create(broker, "flights", 3)
    _produce(broker, "flights", 1, 500)
    where = {"topic": "flights", "partition": 1}

    def counted() -> bool:
        return total(scrape(address), "odradek_messages_in_total") == 500

    wait_until(counted, 5, "the workers have counted the records")
    values = scrape(address)
    assert of(values, "odradek_partition_log_end_offset", **where) == 500
    assert of(values, "odradek_partition_high_watermark", **where) == 500
    assert of(values, "odradek_partition_leader", **where) == 0
    assert of(values, "odradek_partition_log_end_offset", topic="flights", partition=0) == 0
    assert of(values, "odradek_leader_partitions") >= 3
    assert of(values, "odradek_under_replicated_partitions") == 0
    assert of(values, "odradek_process_state", process="worker-0", state="running") == 1
    jmx = scrape(address, "jmx")
    assert of(jmx, "kafka_server_brokertopicmetrics_messagesin_total") == 500
    assert of(jmx, "kafka_log_log_logendoffset", **where) == 500
    other = scrape(address, "kafka_exporter")
    assert of(other, "kafka_topic_partition_current_offset", **where) == 500
    assert of(other, "kafka_topic_partitions", topic="flights") == 3
    assert scrape(address, accept=OPENMETRICS).keys() >= {("odradek_brokers", ())}


def test_how_long_requests_take(metered: Metered) -> None:
    """The wait of a fetch for records counts as remote time; counts survive a worker."""
    broker, address = metered(odradek_workers=1)
    _create(broker, "flights", 1)
    for _ in range(20):
        _produce(broker, "flights", 0, 1)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, fetch_min_bytes=1 << 20, fetch_max_wait_ms=400)
    consumer.assign([TopicPartition("flights", 0)])
    consumer.poll(1500)
    consumer.close()
    _await_produced(address, 20)
    values = scrape(address)
    assert of(values, "odradek_request_local_seconds_count", api="Produce") == 20
    assert of(values, "odradek_request_queue_seconds_count", api="Fetch") >= 1
    waits = of(values, "odradek_request_remote_seconds_count", api="Fetch")
    assert waits >= 1 and of(values, "odradek_request_remote_seconds_sum", api="Fetch") >= 0.39 * waits
    assert of(values, "odradek_request_seconds_sum", api="Fetch") >= 0.39 * waits
    fewer = of(values, "odradek_request_seconds_bucket", api="Produce", le=2**13 / 1e9)  # 8 us
    assert fewer <= of(values, "odradek_request_seconds_bucket", api="Produce", le="+Inf") == 20
    for stage in ("throttle", "send"):
        assert of(values, f"odradek_request_{stage}_seconds_count", api="Produce") == 20
        assert of(values, f"odradek_request_{stage}_seconds_sum", api="Produce") == 0
    jmx = scrape(address, "jmx")
    assert of(jmx, "kafka_network_requestmetrics_throttletimems_count", request="Produce") == 20
    name = "kafka_network_requestmetrics_totaltimems"
    assert of(jmx, f"{name}_count", request="Produce") == 20
    assert 0 < of(jmx, name, request="Produce", quantile="0.50") <= of(jmx, name, request="Produce", quantile="0.999")
    os.kill(broker.pids("worker")[0], signal.SIGKILL)
    _produce(broker, "flights", 0, 1)
    _await_produced(address, 21)


def _await_produced(address: str, count: int) -> None:
    """Wait until workers have counted this many produce responses."""
    name = ("odradek_request_seconds_count", (("api", "Produce"),))
    wait_until(lambda: scrape(address).get(name) == count, 20, f"{count} batches are counted")


def test_lag_is_that_of_consumer_groups(metered: Metered) -> None:
    broker, address = metered()
    _create(broker, "flights", 2)
    for partition, count in ((0, 100), (1, 30)):
        _produce(broker, "flights", partition, count, linger_ms=50)
    _commit(broker, "late", {TopicPartition("flights", 0): 40, TopicPartition("flights", 1): 30})
    _commit(broker, "early", {TopicPartition("flights", 0): 100})
    began = _timestamp(broker, TopicPartition("flights", 0), 40)
    before = time.time()
    values = scrape(address)
    now = time.time()
    assert of(values, "odradek_group_committed_offset", group="late", topic="flights", partition=0) == 40
    assert of(values, "odradek_group_lag", group="late", topic="flights", partition=0) == 60
    assert of(values, "odradek_group_lag", group="late", topic="flights", partition=1) == 0
    assert of(values, "odradek_group_lag_seconds", group="late", topic="flights", partition=1) == 0
    assert of(values, "odradek_group_lag", group="early", topic="flights", partition=0) == 0
    lag = of(values, "odradek_group_lag_seconds", group="late", topic="flights", partition=0)
    assert 0 < lag <= now - began / 1000
    later = of(scrape(address), "odradek_group_lag_seconds", group="late", topic="flights", partition=0)
    assert later - lag <= time.time() - before + 0.001 and later >= lag
    other = scrape(address, "kafka_exporter")
    assert of(other, "kafka_consumergroup_lag", consumergroup="late", topic="flights", partition=0) == 60


def _timestamp(broker: Broker, where: TopicPartition, offset: int) -> int:
    """The timestamp of a record, as a consumer sees it; in ms since 1970."""
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap)
    consumer.assign([where])
    consumer.seek(where, offset)
    record = next(consumer)
    consumer.close()
    assert record.offset == offset
    timestamp: int = record.timestamp
    return timestamp


def test_a_deleted_group_is_gone(metered: Metered) -> None:
    broker, address = metered()
    _create(broker, "flights", 1)
    _produce(broker, "flights", 0, 10)
    _commit(broker, "short", {TopicPartition("flights", 0): 4})
    name = "odradek_group_lag"
    assert of(scrape(address), name, group="short", topic="flights", partition=0) == 6
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.delete_groups(["short"])
    admin.close()
    assert total(scrape(address), name) == 0
    assert not [labels for found, labels in scrape(address) if found == name]


def test_lag_is_known_after_a_restart(metered: Metered) -> None:
    broker, address = metered()
    _create(broker, "flights", 1)
    _produce(broker, "flights", 0, 10)
    _commit(broker, "g", {TopicPartition("flights", 0): 4})
    broker.restart(kill=True)
    await_exporter(address)

    def known() -> bool:
        return scrape(address).get(("odradek_group_lag", _labels("g"))) == 6

    wait_until(known, 20, "the lag is known")


def _labels(group: str) -> tuple[tuple[str, str], ...]:
    return ("group", group), ("partition", "0"), ("topic", "flights")


def test_the_killed_exporter_comes_back_and_counters_go_on(metered: Metered) -> None:
    broker, address = metered()
    _create(broker, "flights", 1)
    _produce(broker, "flights", 0, 50)
    wait_until(lambda: total(scrape(address), "odradek_messages_in_total") == 50, 20, "all records are counted")
    dead = broker.kill_role("exporter")
    broker.await_respawn("exporter", dead)
    await_exporter(address)
    values = scrape(address)
    assert total(values, "odradek_messages_in_total") == 50
    assert of(values, "odradek_starts_total", process="exporter") == 2


def test_ready_says_what_is_missing(metered: Metered) -> None:
    broker, address = metered()
    assert get(address, "/ready") == b"ready\n"
    (acceptor,) = broker.pids("acceptor")
    (supervisor,) = broker.pids("supervisor")
    os.kill(supervisor, signal.SIGSTOP)  # otherwise the supervisor would restart the exporter
    try:
        os.kill(acceptor, signal.SIGKILL)
        assert wait_until(lambda: _refused(address, "/ready"), 10, "the exporter is not ready") == (
            503, "the acceptor does not run\n",
        )  # fmt: skip
    finally:
        os.kill(supervisor, signal.SIGCONT)
    wait_until(lambda: _refused(address, "/ready") is None, 30, "the exporter is ready again")


@pytest.mark.parametrize(
    "path, status, line",
    [
        ("/", 404, "there are /metrics, /healthz and /ready\n"),
        ("/metrics?names=ganglia", 400, "names=ganglia: must be one of odradek, jmx, kafka_exporter\n"),
        ("/metrics/../x", 404, "there are /metrics, /healthz and /ready\n"),
    ],
)
def test_unknown_pages_list_the_valid_ones(exporter: str, path: str, status: int, line: str) -> None:
    assert _refused(exporter, path) == (status, line)


@pytest.mark.parametrize("text", [b"\x00" * 100_000, b"GET " + b"/" * 100_000, b"POST /metrics HTTP/1.1\r\n\r\n"])
def test_broken_requests_end_their_connection_alone(exporter: str, text: bytes) -> None:
    host, _, port = exporter.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as sock:
        try:
            sock.sendall(text)
            answer = sock.recv(4096)
        except ConnectionError:
            answer = b""
    assert not answer or answer.split()[1] in (b"400", b"405", b"414")
    assert get(exporter, "/healthz") == b"healthy\n"


def test_broken_requests_are_not_logged(metered: Metered) -> None:
    """Each would be a traceback: a peer could fill the disk with them."""
    broker, address = metered()
    test_broken_requests_end_their_connection_alone(address, b"GET /" + b"x" * 100_000)
    test_broken_requests_end_their_connection_alone(address, b"\x00 \r\n\r\n")
    assert "Traceback" not in broker.log and " ERROR exporter " not in broker.log


def test_silent_peers_keep_no_scrape_out(exporter: str) -> None:
    host, _, port = exporter.rpartition(":")
    silent = [socket.create_connection((host, int(port)), timeout=10) for _ in range(3 * http_server.MOST)]
    try:
        assert get(exporter, "/healthz") == b"healthy\n"
        assert total(scrape(exporter), "odradek_brokers") == 1
    finally:
        for sock in silent:
            sock.close()


def _refused(address: str, path: str) -> tuple[int, str] | None:
    """Status and body of an HTTP error; None for 200."""
    try:
        get(address, path)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    return None


@pytest.fixture(scope="module")
def exporter(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The address of an exporter that several tests share."""
    address = f"127.0.0.1:{free_port()}"
    running = Broker(tmp_path_factory.mktemp("exporter"), odradek_metrics_listener=address)
    try:
        running.start()
        await_exporter(address)
        yield address
    finally:
        running.close()


def test_address_in_use_is_logged_once_and_retried(fresh_broker: Callable[..., Broker]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        broker = fresh_broker(odradek_metrics_listener=address)
        assert answers(broker.bootstrap)
        said = f"cannot serve metrics at odradek.metrics.listener={address}"
        wait_until(lambda: said in broker.log, 20, "the exporter logs the error")
        time.sleep(2.5)  # the exporter retries each second
    await_exporter(address)
    assert broker.log.count(said) == 1
    assert of(scrape(address), "odradek_starts_total", process="exporter") == 1


@pytest.mark.parametrize("value", ["9404", ":9404", "localhost:", "localhost:99999", "http://localhost:9404/x"])
def test_a_wrong_address_ends_the_start(fresh_broker: Callable[..., Broker], value: str) -> None:
    broker = fresh_broker(start=False, odradek_metrics_listener=value)
    broker.folder.mkdir(parents=True, exist_ok=True)
    done = broker.command("start", "--override", f"odradek.metrics.listener={value}")
    assert done.returncode == 3
    assert "odradek.metrics.listener" in done.stderr and "must be host:port" in done.stderr


def test_no_exporter_without_the_setting(fresh_broker: Callable[..., Broker]) -> None:
    broker = fresh_broker()
    assert broker.pids("exporter") == []
    done = broker.command("status", str(broker.properties_file), "--json")
    assert "exporter" not in [row["name"] for row in json.loads(done.stdout)["processes"]]
