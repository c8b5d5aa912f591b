"""A cluster whose brokers connect by TLS and SASL, with and without Apache Kafka."""

from __future__ import annotations

import datetime
import itertools
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.broker.commands.tls import certificates
from odradek.cluster.tree import znodes
from odradek.cluster.tree.zookeeper import ZooKeeperTree
from odradek.security.sasl import scram_keys
from odradek.security.sasl.password import Password
from odradek.security.sasl.scram_keys import ScramMechanism

from ..harness.apache import ApacheMember
from ..harness.broker import Broker
from ..harness.process import free_port, wait_until
from ..harness.token_server import CLIENT, SECRET, TokenServer
from ..harness.zookeeper import ZooKeeper
from ..security.tls.conftest import private

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

_NOW = datetime.datetime.now(datetime.UTC)
_LOGIN = "org.apache.kafka.common.security."
_USER = 'username="broker" password="hunter2"'
JAAS = {
    "PLAIN": f'{_LOGIN}plain.PlainLoginModule required {_USER} user_broker="hunter2";',
    "SCRAM-SHA-512": f"{_LOGIN}scram.ScramLoginModule required {_USER};",
    "OAUTHBEARER": f'{_LOGIN}oauthbearer.OAuthBearerLoginModule required clientId="{CLIENT}" clientSecret="{SECRET}";',
}


def settings(folder: Path, protocol: str, mechanism: str) -> dict[str, Any]:
    """The settings of each broker for its listener INTERNAL, except its port."""
    ca = certificates.new_ca(_NOW)
    pair = certificates.issue(ca, "broker", ["127.0.0.1"], _NOW, 9)
    return {
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,INTERNAL:{protocol}",
        "inter.broker.listener.name": "INTERNAL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": private(folder / "broker.pem", pair.key_pem + pair.certificate_pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": private(folder / "ca.pem", ca.certificate_pem),
        "ssl.client.auth": "required",
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        f"listener.name.internal.{mechanism.lower()}.sasl.jaas.config": JAAS[mechanism],
        "listener.name.internal.connections.max.reauth.ms": 3000,
        "offsets.topic.replication.factor": 2,
    }


def odradek(folder: Path, number: int, zookeeper: ZooKeeper, secured: dict[str, Any]) -> Broker:
    broker = Broker(folder / f"broker-{number}", broker_id=number, zookeeper_connect=zookeeper.connect)
    broker.properties |= secured | {"zookeeper.session.timeout.ms": 6000, "odradek.workers": 1}
    broker.properties["listeners"] += f",INTERNAL://127.0.0.1:{free_port()}"
    broker.properties_file.parent.mkdir(parents=True, exist_ok=True)
    broker.properties_file.touch(0o600)
    return broker


def apache(folder: Path, number: int, zookeeper: ZooKeeper, secured: dict[str, Any]) -> ApacheMember:
    member = ApacheMember(folder / f"apache-{number}", number, zookeeper.connect, factor=2)
    ends = f"PLAINTEXT://127.0.0.1:{member.port},INTERNAL://127.0.0.1:{free_port()}"
    lines = [f"{key}={value}" for key, value in (secured | {"listeners": ends}).items()]
    member.properties.write_text(member.properties.read_text() + "\n".join(lines) + "\n")
    return member


def prepare(zookeeper: ZooKeeper) -> None:
    """Create the brokers' user before the first broker starts."""
    credentials = {
        mechanism.value: scram_keys.format_credential(scram_keys.derive(mechanism, Password("hunter2")))
        for mechanism in ScramMechanism
    }
    with closing(ZooKeeperTree(zookeeper.connect)) as tree:
        tree.ensure("/config/users")
        tree.create("/config/users/broker", znodes.encode_config(credentials))


CASES = [("SSL", "PLAIN"), ("SASL_PLAINTEXT", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-512")]
USUAL = {("SSL", "odradek"), ("SASL_PLAINTEXT", "apache first"), ("SASL_SSL", "apache second")}  # the others are long


def cases() -> list[Any]:
    every = itertools.product(CASES, ("odradek", "apache first", "apache second"))
    return [
        pytest.param(*c, others, marks=[] if (c[0], others) in USUAL else [pytest.mark.long]) for c, others in every
    ]


@pytest.mark.parametrize(("protocol", "mechanism", "others"), cases())
def test_replication_and_control_work_between_secured_brokers(
    tmp_path: Path, protocol: str, mechanism: str, others: str
) -> None:
    """The broker that starts first is the controller."""
    _check(tmp_path, settings(tmp_path, protocol, mechanism), others, ["hunter2"])


@pytest.mark.parametrize("others", ["apache second", pytest.param("odradek", marks=pytest.mark.long)])
def test_brokers_re_authenticate_with_new_bearer_tokens(tmp_path: Path, others: str) -> None:
    """Tokens are so short-lived that connections re-authenticate every three seconds with new ones.

    A shorter time would fail: Apache's brokers refuse a second authentication within a second of the last.
    """
    server, handlers = TokenServer(), "listener.name.internal.oauthbearer.sasl.{}.callback.handler.class"
    server.seconds = 15
    more = {
        "sasl.oauthbearer.token.endpoint.url": server.url,
        "sasl.oauthbearer.jwks.endpoint.url": server.keys,
        handlers.format("login"): _LOGIN + "oauthbearer.OAuthBearerLoginCallbackHandler",
        handlers.format("server"): _LOGIN + "oauthbearer.OAuthBearerValidatorCallbackHandler",
    }
    try:
        _check(tmp_path, settings(tmp_path, "SASL_PLAINTEXT", "OAUTHBEARER") | more, others, [SECRET, "eyJ"])
    finally:
        server.close()
    assert {one[:2] for one in server.requests} == {(CLIENT, SECRET)}


def _check(tmp_path: Path, secured: dict[str, Any], others: str, secrets: list[str]) -> None:
    zookeeper = ZooKeeper(tmp_path / "zookeeper").start()
    prepare(zookeeper)
    makers = {"odradek": (odradek, odradek), "apache first": (apache, odradek), "apache second": (odradek, apache)}
    brokers: list[Any] = [make(tmp_path, number, zookeeper, secured) for number, make in enumerate(makers[others])]
    try:
        for broker in brokers:
            broker.start()
        _replicate(",".join(broker.bootstrap for broker in brokers))
        for broker in brokers:
            if isinstance(broker, Broker):
                assert not [secret for secret in secrets if secret in broker.log]
    finally:
        for broker in brokers:
            broker.kill() if isinstance(broker, ApacheMember) else broker.close()
        zookeeper.kill()


def _replicate(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wait_until(lambda: _count(admin) == 2, 150, "both brokers")
    admin.create_topics([NewTopic("t", 4, 2)])["t"].result(60)

    def in_sync() -> bool:
        partitions = admin.list_topics("t", timeout=10).topics["t"].partitions
        return all(len(one.isrs) == 2 for one in partitions.values())

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for round_ in range(5):
        for number in range(200):
            producer.produce("t", b"%d-%d" % (round_, number))
        assert producer.flush(60) == 0
    wait_until(in_sync, 150, "all replicas in sync")
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    found: list[bytes] = []
    wait_until(lambda: found.extend(_values(consumer)) or len(found) >= 1000, 120, "all records")
    consumer.close()
    assert len(set(found)) == 1000


def _count(admin: AdminClient) -> int:
    """The number of brokers; Apache's broker has none until the controller's first request."""
    try:
        return len(admin.list_topics(timeout=10).brokers)
    except KafkaException:
        return 0


def _values(consumer: Consumer) -> list[bytes]:
    return [value for one in consumer.consume(500, 1) if not one.error() and (value := one.value()) is not None]
