"""Client quotas in a cluster with a broker of Apache Kafka 3.9.1: each enforces what the other stores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.cluster.tree.zookeeper import ZooKeeperTree

from ..clients.quotas import alter, described
from ..harness.process import wait_until
from ..harness.wire import Wire
from .test_mixed import Mixed, mixed  # noqa: F401  # a fixture

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

ENTITIES: list[dict[str, str | None]] = [
    {"user": "al ice/é"}, {"user": None}, {"client-id": "c~*"}, {"user": "bob", "client-id": None}, {"ip": "10.0.0.1"},
]  # fmt: skip


class _Address:
    """A broker by its address."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def wire(self) -> Wire:
        return Wire(self._bootstrap)


@pytest.fixture
def brokers(mixed: Mixed) -> Iterator[tuple[Any, Any]]:  # noqa: F811
    yield _Address(mixed.kafka.bootstrap), _Address(mixed.ours.bootstrap)


def test_each_broker_enforces_quotas_of_the_other(mixed: Mixed, brokers: tuple[Any, Any]) -> None:  # noqa: F811
    for setter, other in (brokers, brokers[::-1]):
        for entity in ENTITIES:
            key = "connection_creation_rate" if "ip" in entity else "producer_byte_rate"
            assert alter(setter, entity, **{key: 2048.0}) == 0
            wait_until(lambda: described(other, entity) == {key: 2048.0}, 10, f"{entity} at the other broker")  # noqa: B023
        for entity in ENTITIES:
            key = "connection_creation_rate" if "ip" in entity else "producer_byte_rate"
            assert alter(other, entity, **{key: None}) == 0
            wait_until(lambda: described(setter, entity) == {}, 10, f"nothing of {entity} at the other broker")  # noqa: B023
    tree = ZooKeeperTree(mixed.zookeeper.connect)
    try:
        assert [tree.children(f"/config/{folder}") for folder in ("users", "clients", "ips")] == [[], [], []]
    finally:
        tree.close()


def test_scram_credentials_survive_quota_changes_of_both(mixed: Mixed, brokers: tuple[Any, Any]) -> None:  # noqa: F811
    kafka, ours = brokers
    tree = ZooKeeperTree(mixed.zookeeper.connect)
    try:
        tree.create("/config/users/alice", b'{"version":1,"config":{"SCRAM-SHA-256":"salt=x"}}')
        assert alter(ours, {"user": "alice"}, producer_byte_rate=2048.0) == 0
        wait_until(lambda: described(kafka, {"user": "alice"}) == {"producer_byte_rate": 2048.0}, 10, "Kafka's view")
        assert alter(kafka, {"user": "alice"}, producer_byte_rate=None) == 0
        assert json.loads(tree.get("/config/users/alice")[0])["config"] == {"SCRAM-SHA-256": "salt=x"}
    finally:
        tree.close()
