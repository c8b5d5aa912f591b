"""A broker of Apache Kafka 3.9.1 and two of ours in one ZooKeeper: each applies the ACLs that another one creates."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from odradek.protocol.errors import NONE, TOPIC_AUTHORIZATION_FAILED
from odradek.protocol.library import message_class
from odradek.security.acls import acl_nodes

from ...clients.admin import create_named
from ...commands.conftest import command_line
from ...harness import java
from ...harness.apache import ApacheMember
from ...harness.broker import Broker
from ...harness.process import wait_until
from ...harness.wire import Wire
from ...harness.zookeeper import ZooKeeper

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.needs("java-3.9.1")]

AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
CLIENT = "127.0.0.2"
BROKERS = "--add --allow-principal User:ANONYMOUS --allow-host 127.0.0.1 --operation All --cluster --topic * --group *"
READS = f"--allow-principal User:ANONYMOUS --allow-host {CLIENT} --operation Read --topic"


class Cluster:
    """The brokers and their ZooKeeper."""

    def __init__(self, folder: Path) -> None:
        self.zookeeper = ZooKeeper(folder / "zookeeper").start()
        java.run(
            "3.9.1", "kafka.admin.AclCommand", "--authorizer-properties", f"zookeeper.connect={self.zookeeper.connect}",
            *BROKERS.split(),
        )  # fmt: skip
        self.kafka = ApacheMember(folder / "kafka", 0, self.zookeeper.connect, factor=1)
        self.kafka.properties.write_text(self.kafka.properties.read_text() + f"authorizer.class.name={AUTHORIZER}\n")
        self.brokers = [
            Broker(
                folder / f"broker-{number}", broker_id=number, zookeeper_connect=self.zookeeper.connect,
                authorizer_class_name=AUTHORIZER, transaction_state_log_min_isr=None,
            )
            for number in (1, 2)
        ]  # fmt: skip
        self.kafka.start()
        for broker in self.brokers:
            broker.start()
        self.tree = KazooClient(self.zookeeper.connect)
        self.tree.start()

    def close(self) -> None:
        self.tree.stop()
        self.tree.close()
        for broker in self.brokers:
            broker.close()
        self.kafka.stop()
        self.zookeeper.kill()

    @property
    def bootstraps(self) -> list[str]:
        return [self.kafka.bootstrap, *(broker.bootstrap for broker in self.brokers)]

    def ours(self, at: str, line: str) -> str:
        """`odradek acls` at a broker."""
        words = command_line("acls", "--bootstrap-server", at, *line.split())
        return subprocess.run(words, capture_output=True, text=True, timeout=120, check=True).stdout

    def theirs(self, at: str, line: str) -> str:
        """`kafka-acls.sh` at a broker."""
        words = ["--bootstrap-server", at, *line.split()]
        return java.run("3.9.1", "kafka.admin.AclCommand", *words).stdout.decode()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("shared"))
    yield found
    found.close()


def described(bootstrap: str, topic: str) -> int:
    """The error of a topic's metadata for the client."""
    with Wire(bootstrap, 30, CLIENT) as wire:
        found: int = wire.metadata(topic).topics[0].error_code
        return found


def wait_described(cluster: Cluster, topic: str, error: int) -> None:
    for bootstrap in cluster.bootstraps:
        wait_until(lambda at=bootstrap: described(at, topic) == error, 10, f"{topic}: {error} at {bootstrap}")  # type: ignore[misc]


@pytest.mark.timeout(300)
def test_brokers_apply_acls_that_another_one_creates(cluster: Cluster) -> None:
    apache, first, second = cluster.bootstraps
    with Wire(apache, 60) as wire:
        create_named(wire, "shared")
    wait_described(cluster, "shared", TOPIC_AUTHORIZATION_FAILED)
    changes = [
        (cluster.ours, first, cluster.theirs, apache),
        (cluster.theirs, apache, cluster.ours, second),
        (cluster.theirs, second, cluster.theirs, first),
    ]
    for add, adds_at, remove, removes_at in changes:
        add(adds_at, f"--add {READS} shared")
        wait_described(cluster, "shared", NONE)
        remove(removes_at, f"--remove --force {READS} shared")
        wait_described(cluster, "shared", TOPIC_AUTHORIZATION_FAILED)
    for prefix in ("prefixed", "literal"):
        cluster.ours(second, f"--add {READS} sha --resource-pattern-type {prefix}")
    wait_described(cluster, "shared", NONE)
    listed = [cluster.theirs(at, "--list --topic sha --resource-pattern-type any") for at in cluster.bootstraps]
    assert sorted(listed[0].split()) == sorted(listed[1].split()) == sorted(listed[2].split())
    cluster.theirs(first, "--remove --force --topic sha --resource-pattern-type any")
    wait_described(cluster, "shared", TOPIC_AUTHORIZATION_FAILED)


@pytest.mark.timeout(300)
def test_our_nodes_and_announcements_equal_kafkas(cluster: Cluster) -> None:
    """The same request writes the same bytes."""
    apache, first, _ = cluster.bootstraps
    for pattern in ("literal", "prefixed"):
        line = f"--add {READS} same --resource-pattern-type {pattern}"
        found = []
        for bootstrap in (apache, first):
            before = announced(cluster.tree)
            cluster.theirs(bootstrap, line)
            node = next(path for path in nodes("same") if cluster.tree.exists(path) and pattern_of(path) == pattern)
            new = announced(cluster.tree)
            found.append((cluster.tree.get(node)[0], [new[path] for path in sorted(new.keys() - before.keys())]))
            cluster.theirs(bootstrap, f"--remove --force {READS} same --resource-pattern-type {pattern}")
            assert cluster.tree.exists(node) is None
        assert found[0] == found[1]
        assert len(found[0][1]) == 1


def nodes(name: str) -> list[str]:
    return [f"{root}/Topic/{name}" for root in acl_nodes.ACLS.values()]


def pattern_of(path: str) -> str:
    return "prefixed" if "extended" in path else "literal"


def announced(tree: KazooClient) -> dict[str, bytes]:
    paths = [f"{parent}/{name}" for parent in acl_nodes.CHANGES.values() for name in tree.get_children(parent)]
    return {path: tree.get(path)[0] for path in paths}


@pytest.mark.timeout(300)
def test_malformed_node_disables_only_its_own_acls(cluster: Cluster) -> None:
    _, first, second = cluster.bootstraps
    with Wire(first, 60) as wire:
        for name in ("good", "bad"):
            create_named(wire, name)
    cluster.ours(first, f"--add {READS} good")
    cluster.ours(first, f"--add {READS} bad")
    wait_described(cluster, "bad", NONE)
    cluster.tree.set("/kafka-acl/Topic/bad", b"no JSON")
    cluster.tree.create("/kafka-acl-changes/acl_changes_", b"Topic:bad", sequence=True)
    cluster.tree.create("/kafka-acl-changes/acl_changes_", b"no change", sequence=True)
    wait_described(cluster, "bad", TOPIC_AUTHORIZATION_FAILED)
    assert described(first, "good") == described(second, "good") == NONE
    cluster.ours(second, f"--remove --force {READS} good")
    wait_described(cluster, "good", TOPIC_AUTHORIZATION_FAILED)


@pytest.mark.timeout(300)
def test_concurrent_changes_at_all_brokers_are_all_kept(cluster: Cluster) -> None:
    """All brokers add entries to the same node without a pause."""
    create = message_class("CreateAclsRequest")

    def creation(number: int) -> Any:
        return create.AclCreation(
            resource_type=2, resource_name="busy", resource_pattern_type=3, principal=f"User:u{number}", host="*",
            operation=3, permission_type=3,
        )  # fmt: skip

    wires = [Wire(bootstrap, 60) for bootstrap in cluster.bootstraps]
    asked = []
    for round_ in range(10):
        for place, wire in enumerate(wires):
            request = create[3](creations=[creation(10 * round_ + place)])
            wire.put(request)
            asked.append((wire, request))
    assert not any(one.error_code for wire, request in asked for one in wire.take(request).results)
    entries = acl_nodes.decode_acls(cluster.tree.get("/kafka-acl/Topic/busy")[0])
    assert len(entries) == 30
    for wire in wires:
        wire.close()


@pytest.mark.timeout(300)
def test_broker_loads_acls_that_were_created_while_it_was_down(cluster: Cluster) -> None:
    _, first, second = cluster.bootstraps
    with Wire(first, 60) as wire:
        create_named(wire, "later")
    cluster.brokers[1].stop()
    cluster.ours(first, f"--add {READS} later")
    cluster.brokers[1].start()
    assert described(second, "later") == NONE
