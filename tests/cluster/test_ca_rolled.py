"""Brokers that connect to each other by TLS change their CA while they run: no restart, no gap, no error."""

from __future__ import annotations

import datetime
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography import x509

from odradek.broker.commands.tls import certificates
from odradek.broker.commands.tls.certificates import Pair

from ..harness.broker import Broker
from ..harness.cluster import Cluster
from ..harness.process import free_port, wait_until
from ..security.tls.conftest import private
from .clients import Feed, read_all, running

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1"), pytest.mark.timeout(240)]

PARTITIONS = 4
LOADED = 200  # records between two steps
NOW = datetime.datetime.now(datetime.UTC)


class Member:
    """A broker, and the files that its listener INTERNAL is secured with."""

    def __init__(self, broker: Broker, number: int, folder: Path) -> None:
        self.broker, self.number = broker, number
        self.port = free_port()
        self.folder = folder
        folder.mkdir()
        broker.properties |= {
            "listeners": f"{broker.properties['listeners']},INTERNAL://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SSL",
            "inter.broker.listener.name": "INTERNAL",
            "ssl.keystore.type": "PEM", "ssl.keystore.location": folder / "broker.pem",
            "ssl.truststore.type": "PEM", "ssl.truststore.location": folder / "ca.pem",
            "ssl.client.auth": "required",
        }  # fmt: skip

    def issue(self, ca: Pair) -> Pair:
        return certificates.issue(ca, f"broker-{self.number}", ["127.0.0.1"], NOW, 90)

    def put(self, pair: Pair | None, trusted: bytes) -> None:
        """Replace the content of the same files; the trust store first."""
        private(self.folder / "ca.pem", trusted)
        if pair is not None:
            private(self.folder / "broker.pem", pair.key_pem + pair.certificate_pem)

    def alter(self, pair: Pair | None, trusted: bytes) -> None:
        """Name new files by dynamic configs."""
        folder = self.folder / str(len(list(self.folder.iterdir())))
        folder.mkdir()
        configs = [f"ssl.truststore.location={private(folder / 'ca.pem', trusted)}"]
        if pair is not None:
            path = private(folder / "broker.pem", pair.key_pem + pair.certificate_pem)
            configs.append(f"listener.name.internal.ssl.keystore.location={path}")
        words = ["--bootstrap-server", self.broker.bootstrap, "--entity-type", "brokers"]
        words += ["--entity-name", str(self.number), "--alter", "--add-config", ",".join(configs)]
        done = self.broker.command("configs", *words)
        assert done.returncode == 0, done.stdout + done.stderr

    def serial(self) -> int:
        """The serial number of the certificate that a new connection to INTERNAL gets."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(socket.create_connection(("127.0.0.1", self.port), 10)) as sock:
            der = sock.getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(der or b"").serial_number

    def loaded(self, roles: tuple[str, ...]) -> list[int]:
        """The number of times that the processes of each role have loaded new files."""
        return [
            len(re.findall(rf"INFO {role} .*: new (?:ones use|connections get)", self.broker.log)) for role in roles
        ]


def make_topic(cluster: Cluster) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic("t", PARTITIONS, 2, config={"min.insync.replicas": "2"})
    admin.create_topics([new])["t"].result(30)
    return "t"


def load(feed: Feed) -> None:
    """Wait until both brokers acknowledge more records."""
    wanted = len(feed.acked) + LOADED
    wait_until(lambda: len(feed.acked) >= wanted, 60, "more acknowledged records")


class Roll:
    """A way to give a broker new certificates."""

    def __init__(self, act: Callable[[Member, Pair | None, bytes], None], roles: tuple[str, ...]) -> None:
        """`roles`: the roles whose processes load the files."""
        self._act, self._roles = act, roles

    def step(self, member: Member, pair: Pair | None, trusted: bytes, feed: Feed) -> None:
        """Give every broker the files, and wait until they are in force."""
        wanted = [count + 1 for count in member.loaded(self._roles)]
        self._act(member, pair, trusted)
        wait_until(lambda: member.loaded(self._roles) == wanted, 30, f"it is in force in {self._roles}")
        load(feed)


WAYS = {
    "files": Roll(Member.put, ("worker-0", "replicator")),
    "dynamic configs": Roll(Member.alter, ("worker-0", "replicator", "controller", "coordinator")),
}


@pytest.fixture
def ca() -> Pair:
    return certificates.new_ca(NOW)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path, 2)


@pytest.fixture
def members(tmp_path: Path, cluster: Cluster, ca: Pair) -> Iterator[list[Member]]:
    made = [Member(broker, number, tmp_path / f"tls-{number}") for number, broker in enumerate(cluster.brokers)]
    for member in made:
        member.put(member.issue(ca), ca.certificate_pem)
    with cluster:
        yield made


@pytest.mark.parametrize("way", WAYS)
def test_ca_is_replaced_under_load(cluster: Cluster, members: list[Member], ca: Pair, way: str) -> None:
    """First both CAs are trusted, then all certificates are of the new CA, then the old one goes;

    then processes die.
    """
    new_ca, roll = certificates.new_ca(NOW, "New CA"), WAYS[way]
    both = ca.certificate_pem + new_ca.certificate_pem
    feed, issued = Feed(cluster, make_topic(cluster), PARTITIONS), [member.issue(new_ca) for member in members]
    with running(feed):
        load(feed)
        for pair, trusted in ((False, both), (True, both), (True, new_ca.certificate_pem)):
            for member in members:
                roll.step(member, issued[member.number] if pair else None, trusted, feed)
        assert [member.serial() for member in members] == [pair.certificate.serial_number for pair in issued]
        for broker in cluster.brokers:
            for role in ("replicator", "controller", "coordinator", "worker"):
                broker.await_respawn(role, broker.kill_role(role))
            load(feed)
    _check(cluster, feed)


def _check(cluster: Cluster, feed: Feed) -> None:
    assert feed.errors == []
    found = read_all(cluster, "t", PARTITIONS)
    assert all(numbers == sorted(set(numbers)) for numbers in found.values())
    assert {number for numbers in found.values() for number in numbers} == feed.acked
    for broker in cluster.brokers:
        wrong = [line for line in broker.log.splitlines() if re.search("stay.? in force|certificate is", line)]
        assert wrong == []
