"""Brokers change the user of their connections to each other while they run (AlterConfigs, sasl.jaas.config)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
)

from odradek.cluster.tree import znodes
from odradek.cluster.tree.zookeeper import ZooKeeperTree
from odradek.security.sasl import scram_keys
from odradek.security.sasl.password import Password

from ..harness.cluster import Cluster
from ..harness.process import free_port, wait_until
from .clients import Feed, read_all, running
from .test_ca_rolled import PARTITIONS, load, make_topic

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1"), pytest.mark.timeout(240)]

MECHANISM = "SCRAM-SHA-512"
JAAS = f"listener.name.internal.{MECHANISM.lower()}.sasl.jaas.config"
USERS = {"first": "hunter2", "second": "hunter3"}
SECRET = "hunter4"


def jaas(user: str, password: str) -> str:
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    return f'{login} username="{user}" password="{password}";'


def add_users(cluster: Cluster) -> None:
    with closing(ZooKeeperTree(cluster.zookeeper.connect)) as tree:
        tree.ensure("/config/users")
        for user, password in USERS.items():
            found = scram_keys.derive(scram_keys.ScramMechanism(MECHANISM), Password(password))
            tree.create(f"/config/users/{user}", znodes.encode_config({MECHANISM: scram_keys.format_credential(found)}))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, 2)
    for broker in made.brokers:
        broker.properties |= {
            "listeners": f"{broker.properties['listeners']},INTERNAL://127.0.0.1:{free_port()}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "sasl.enabled.mechanisms": MECHANISM, "sasl.mechanism.inter.broker.protocol": MECHANISM,
            JAAS: jaas("first", USERS["first"]),
            "password.encoder.secret": SECRET,
        }  # fmt: skip
    try:
        made.zookeeper.start()
        add_users(made)
        for broker in made.brokers:
            broker.start()
        yield made
    finally:
        made.stop()


def alter(admin: AdminClient, broker: int, value: str) -> None:
    entry = ConfigEntry(JAAS, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)


def test_brokers_change_their_user_without_an_error(cluster: Cluster) -> None:
    admins = [AdminClient({"bootstrap.servers": broker.bootstrap}) for broker in cluster.brokers]
    feed = Feed(cluster, make_topic(cluster), PARTITIONS)
    with running(feed):
        load(feed)
        with pytest.raises(Exception, match=rf"{JAAS}: the login module must be"):
            alter(admins[0], 0, jaas("second", "hunter5").replace("ScramLogin", "PlainLogin"))
        for number, admin in enumerate(admins):
            alter(admin, number, jaas("second", USERS["second"]))
            _await_loaded(cluster, number)
            load(feed)
        deletion = UserScramCredentialDeletion("first", ScramMechanism.SCRAM_SHA_512)
        admins[0].alter_user_scram_credentials([deletion])["first"].result(30)
        for broker in cluster.brokers:
            for role in ("replicator", "controller", "coordinator"):
                broker.await_respawn(role, broker.kill_role(role))
            load(feed)
    assert feed.errors == []
    found = read_all(cluster, "t", PARTITIONS)
    assert {number for numbers in found.values() for number in numbers} == feed.acked
    _check_secrets(cluster, admins)


def _await_loaded(cluster: Cluster, number: int) -> None:
    """Wait until all processes that connect have loaded the user."""
    line = "connections to other brokers: new ones use the new settings"
    log = lambda: cluster.brokers[number].log  # noqa: E731
    wait_until(lambda: log().count(line) == 3, 30, "the new user is in force")


def _check_secrets(cluster: Cluster, admins: list[AdminClient]) -> None:
    """Check that the passwords are in no log and no answer, and encrypted in the tree."""
    for number, (broker, admin) in enumerate(zip(cluster.brokers, admins, strict=True)):
        assert "hunter" not in broker.log and "authentication failed" not in broker.log
        resource = ConfigResource(ResourceType.BROKER, str(number))
        found = admin.describe_configs([resource])[resource].result(30)
        assert found[JAAS].value is None and found[JAAS].is_sensitive
    with closing(ZooKeeperTree(cluster.zookeeper.connect)) as tree:
        for number in range(2):
            stored = znodes.decode_config(tree.get(f"{znodes.BROKER_CONFIGS}/{number}")[0])
            assert "encryptedPassword:" in stored[JAAS] and "hunter" not in stored[JAAS]
