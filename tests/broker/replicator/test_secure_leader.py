"""A follower of an Apache Kafka leader whose inter-broker listener uses TLS, SASL, or both."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer

from odradek.broker.commands.tls import certificates
from odradek.broker.interbroker.link_security import LinkSecurity
from odradek.cluster.tree import znodes
from odradek.cluster.tree.zookeeper import ZooKeeperTree
from odradek.security.sasl import scram_keys
from odradek.security.sasl.password import Password
from odradek.security.sasl.scram_keys import ScramMechanism

from ...harness.apache import ApacheMember
from ...harness.process import free_port
from ...harness.zookeeper import ZooKeeper
from ...security.tls.conftest import private
from .leading import LEADER, OWN, TOPIC, TOPIC_ID, Maker

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

_NOW = datetime.datetime.now(datetime.UTC)
_LOGIN = "org.apache.kafka.common.security."
_USER = 'username="broker" password="hunter2"'
_JAAS = {
    "PLAIN": f'{_LOGIN}plain.PlainLoginModule required {_USER} user_broker="hunter2";',
    "SCRAM-SHA-256": f"{_LOGIN}scram.ScramLoginModule required {_USER};",
    "SCRAM-SHA-512": f"{_LOGIN}scram.ScramLoginModule required {_USER};",
}
_PORTS = {"SSL": "MTLS", "SASL_PLAINTEXT": "OPEN", "SASL_SSL": "INTERNAL"}


def _credential(mechanism: ScramMechanism) -> str:
    return scram_keys.format_credential(scram_keys.derive(mechanism, Password("hunter2")))


class Leader:
    """Apache Kafka as broker LEADER, with a topic whose other replica is on OWN."""

    def __init__(self, folder: Path) -> None:
        self.zookeeper = ZooKeeper(folder / "zookeeper").start()
        self.ports = {name: free_port() for name in _PORTS.values()}
        ca = certificates.new_ca(_NOW)
        trusted = private(folder / "ca.pem", ca.certificate_pem)
        self.settings = {
            "ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM", "ssl.truststore.location": trusted,
            "ssl.keystore.location": "", "ssl.client.auth": "none",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            **{f"listener.name.{listener.lower()}.{name.lower()}.sasl.jaas.config": text
               for listener in ("OPEN", "INTERNAL") for name, text in _JAAS.items()},
        }  # fmt: skip
        stores = []
        for name in ("leader", "follower"):
            pair = certificates.issue(ca, name, ["127.0.0.1"], _NOW, 9)
            stores.append(private(folder / f"{name}.pem", pair.key_pem + pair.certificate_pem))
        self.apache = ApacheMember(folder / "apache", LEADER, self.zookeeper.connect)
        self._configure(stores[0])
        self.settings["ssl.keystore.location"] = stores[1]
        self._prepare()
        self.apache.start()

    def _configure(self, store: str) -> None:
        ends = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        more = self.settings | {
            "ssl.keystore.location": store,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.apache.port},{ends}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,MTLS:SSL,OPEN:SASL_PLAINTEXT,INTERNAL:SASL_SSL",
            "inter.broker.listener.name": "INTERNAL",
            "sasl.enabled.mechanisms": ",".join(_JAAS),
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.open.connections.max.reauth.ms": 2000,
            "replica.lag.time.max.ms": 500_000,
        }
        lines = "".join(f"{key}={value}\n" for key, value in more.items())
        self.apache.properties.write_text(self.apache.properties.read_text() + lines)

    def _prepare(self) -> None:
        """Create the credentials and the topic before the broker starts."""
        credentials = {name.value: _credential(name) for name in ScramMechanism}
        with closing(ZooKeeperTree(self.zookeeper.connect)) as tree:
            for path in (znodes.TOPICS, "/config/users"):
                tree.ensure(path)
            tree.create("/config/users/broker", znodes.encode_config(credentials))
            replicas = {0: [LEADER, OWN]}
            tree.create(znodes.topic_path(TOPIC), znodes.encode_topic(znodes.TopicNode(TOPIC_ID, replicas)))

    def write(self, count: int) -> None:
        """Write records to the only partition."""
        producer = Producer({"bootstrap.servers": self.apache.bootstrap, "acks": 1})
        for number in range(count):
            producer.produce(TOPIC, b"%d" % number * 100, partition=0)
        assert producer.flush(60) == 0

    def security(self, protocol: str, mechanism: str) -> LinkSecurity:
        """The link security of a broker with the leader's inter-broker listener."""
        settings = {key: str(value) for key, value in self.settings.items()}
        return LinkSecurity(
            _PORTS[protocol], protocol, settings | {"sasl.mechanism.inter.broker.protocol": mechanism}, "broker-0"
        )

    def content(self) -> bytes:
        """The leader's log."""
        names = sorted((self.apache.data_dir / f"{TOPIC}-0").glob("*.log"))
        return b"".join(name.read_bytes() for name in names)

    def close(self) -> None:
        self.apache.kill()
        self.zookeeper.kill()


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Leader]:
    running = Leader(tmp_path_factory.mktemp("apache"))
    yield running
    running.close()


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [("SSL", "PLAIN"), ("SASL_PLAINTEXT", "PLAIN"), *(("SASL_SSL", name) for name in _JAAS)],
)
def test_it_follows(apache: Leader, follow: Maker, protocol: str, mechanism: str) -> None:
    apache.write(1000)
    follower = follow(leaders={LEADER: ("127.0.0.1", apache.ports[_PORTS[protocol]])})
    follower.replicator._security = apache.security(protocol, mechanism)
    same: Callable[[], bool] = lambda: follower.content() == apache.content()  # noqa: E731
    follower.turn_until(same, "the leader's log", 60)
    apache.write(1000)
    follower.turn_until(same, "what came since", 60)
    assert follower.count_of("connections") == 1


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Log lines without those of a ZooKeeper client that another test has left running."""
    found = (one for one in caplog.records if one.name.startswith("odradek") and one.levelname == "WARNING")
    return [one.getMessage() for one in found]


def test_replication_continues_after_sessions_expire(
    apache: Leader, follow: Maker, caplog: pytest.LogCaptureFixture
) -> None:
    """KIP-368: the leader closes connections with expired sessions."""
    follower = follow(leaders={LEADER: ("127.0.0.1", apache.ports["OPEN"])})
    follower.replicator._security = apache.security("SASL_PLAINTEXT", "SCRAM-SHA-256")
    due: list[float] = []

    def renewed() -> bool:
        fetcher = next(iter(follower.replicator._leaders.values()), None)
        found = fetcher and fetcher.link._authentication
        if found and found._due_ms and found._due_ms not in due:
            due.append(found._due_ms)
        return len(due) >= 4

    follower.turn_until(renewed, "three more authentications", 60)
    apache.write(10)
    follower.turn_until(lambda: follower.content() == apache.content(), "what came since", 60)
    assert follower.count_of("errors") == 0 and warnings(caplog) == []


def test_a_wrong_password_is_one_line(apache: Leader, follow: Maker, caplog: pytest.LogCaptureFixture) -> None:
    security = apache.security("SASL_SSL", "SCRAM-SHA-256")
    right = security._settings
    wrong = {key: value.replace('password="hunter2"', 'password="hunter3"') for key, value in right.items()}
    security._settings = security._wanted = wrong
    follower = follow(leaders={LEADER: ("127.0.0.1", apache.ports["INTERNAL"])})
    follower.replicator._security = security
    follower.turn_until(lambda: follower.count_of("errors") >= 3, "3 attempts", 60)
    lines = warnings(caplog)
    assert len(lines) == 1 and "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256: error 58" in lines[0], lines
    assert "hunter" not in caplog.text
    security._settings = security._wanted = right
    follower.turn_until(lambda: follower.content() == apache.content(), "the leader's log", 60)
