"""A cluster changes from PLAINTEXT to SASL_SSL with SCRAM, broker by broker under load, as Kafka documents.

    1. each broker gets a second listener, SECURED
    2. each broker reaches the others by it (inter.broker.listener.name)
    3. each broker removes the first

Clients of the first listener run until the third step, those of SECURED from the second on.
"""

from __future__ import annotations

import datetime
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from odradek.broker.commands.tls import certificates

from ..harness.broker import Broker
from ..harness.cluster import Cluster
from ..harness.process import free_port, wait_until
from ..security.tls.conftest import private
from .clients import Commits, Feed, Member, make_topic, read_all, running

pytestmark = [pytest.mark.long, pytest.mark.needs("java-3.9.1"), pytest.mark.timeout(600)]

PARTITIONS = 6
LOADED = 200  # records between two steps
PASSWORD = "hunter2"
MECHANISM = "SCRAM-SHA-512"
NOW = datetime.datetime.now(datetime.UTC)
JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    f'username="broker" password="{PASSWORD}";'
)  # fmt: skip


class Step:
    """The settings of each step, and how clients connect to SECURED."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.ports = [free_port() for _ in cluster.brokers]
        ca = certificates.new_ca(NOW)
        self.ca = private(folder / "ca.pem", ca.certificate_pem)
        pairs = [certificates.issue(ca, f"broker-{number}", ["127.0.0.1"], NOW, 90) for number in range(3)]
        self.stores = [
            private(folder / f"broker-{number}.pem", pair.key_pem + pair.certificate_pem)
            for number, pair in enumerate(pairs)
        ]
        self.clients: dict[str, Any] = {
            "bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in self.ports),
            "security.protocol": "sasl_ssl", "ssl.ca.location": self.ca,
            "sasl.mechanism": MECHANISM, "sasl.username": "client", "sasl.password": PASSWORD,
        }  # fmt: skip

    def open(self, broker: Broker, number: int) -> None:
        """Step 1."""
        broker.properties |= {
            "listeners": f"{broker.properties['listeners']},{self._secured(number)}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURED:SASL_SSL",
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM", "ssl.keystore.location": self.stores[number],
            "ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca,
            "sasl.enabled.mechanisms": MECHANISM, "sasl.mechanism.inter.broker.protocol": MECHANISM,
            f"listener.name.secured.{MECHANISM.lower()}.sasl.jaas.config": JAAS,
        }  # fmt: skip

    def switch(self, broker: Broker, number: int) -> None:
        """Step 2."""
        broker.properties["inter.broker.listener.name"] = "SECURED"

    def shut(self, broker: Broker, number: int) -> None:
        """Step 3."""
        broker.properties["listeners"] = self._secured(number)
        broker.answers = lambda: _shakes_hands(self.ports[number])

    def _secured(self, number: int) -> str:
        return f"SECURED://127.0.0.1:{self.ports[number]}"


def _shakes_hands(port: int) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        context.wrap_socket(socket.create_connection(("127.0.0.1", port), 5)).close()
    except OSError:
        return False
    return True


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, leader_imbalance_check_interval_seconds=1) as started:
        yield started


def add_users(cluster: Cluster) -> None:
    for user in ("broker", "client"):
        words = ["add", user, "--bootstrap-server", cluster.brokers[0].bootstrap, "--password-stdin"]
        done = cluster.brokers[0].command("users", *words, input=PASSWORD)
        assert done.returncode == 0, done.stdout + done.stderr


def in_sync(admin: AdminClient, topics: list[str]) -> bool:
    """Whether all three brokers are in all ISRs."""
    try:
        found = admin.list_topics(timeout=10).topics
    except KafkaException:
        return False
    rows = [row for topic in topics for row in found[topic].partitions.values()]
    return len(rows) == PARTITIONS * len(topics) and all(len(row.isrs) == 3 for row in rows)


class Load:
    """An idempotent producer and a consumer of one listener."""

    def __init__(self, cluster: Cluster, topic: str, **options: Any) -> None:
        self.cluster, self.topic, self.options = cluster, topic, options
        self.feed = Feed(cluster, topic, PARTITIONS, **options)
        self.member = Member(cluster, topic, f"group-{topic}", Commits(), **options)

    def await_progress(self) -> None:
        """Wait until more records are acknowledged and consumed."""
        for numbers in (self.feed.acked, self.member.seen):
            wanted = len(numbers) + LOADED
            wait_until(lambda n=numbers, w=wanted: len(n) >= w, 90, f"more records of {self.topic}")  # type: ignore[misc]  # a default in a lambda

    def check(self, **reading: Any) -> None:
        """Check that every record exists once and in order, and the consumer has missed none."""
        assert self.feed.errors == []
        found = read_all(self.cluster, self.topic, PARTITIONS, **reading)
        assert all(numbers == sorted(set(numbers)) for numbers in found.values())
        assert {number for numbers in found.values() for number in numbers} == self.feed.acked
        for numbers in found.values():
            last = max(self.member.seen.intersection(numbers))
            assert {number for number in numbers if number <= last} <= self.member.seen


def roll(cluster: Cluster, change: Any, loads: list[Load], admin: AdminClient) -> None:
    """Restart each broker with changed settings, once all are in sync."""
    topics = [load.topic for load in loads]
    for number, broker in enumerate(cluster.brokers):
        broker.stop()
        for load in loads:
            load.await_progress()
        change(broker, number)
        broker.start()
        wait_until(lambda: in_sync(admin, topics), 90, f"all to be in sync with broker {number}")
        for load in loads:
            load.await_progress()


def test_cluster_changes_to_scram_without_loss(cluster: Cluster, tmp_path: Path) -> None:
    step = Step(cluster, tmp_path)
    add_users(cluster)
    plain = Load(cluster, make_topic(cluster, PARTITIONS))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    with ExitStack() as of_secured:
        with running(plain.feed, plain.member):
            roll(cluster, step.open, [plain], admin)
            secured = Load(cluster, make_topic(cluster, PARTITIONS), **step.clients)
            of_secured.enter_context(running(secured.feed, secured.member))
            roll(cluster, step.switch, [plain, secured], admin)
        roll(cluster, step.shut, [secured], AdminClient(step.clients))
    for load in (plain, secured):
        load.check(**step.clients)
    for broker in cluster.brokers:
        assert PASSWORD not in broker.log
        assert "broker rejected" not in broker.log, "no controller request is lost"
