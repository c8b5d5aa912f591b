"""Client quotas in the metadata tree: they are Kafka's nodes, and other keys in the nodes stay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.cluster import admin_writes
from odradek.cluster.configs import quota_windows
from odradek.cluster.metadata.snapshot import Snapshot, raw_snapshot
from odradek.cluster.state import ClusterState
from odradek.cluster.tree import quota_nodes, znodes
from odradek.cluster.tree.embedded import EmbeddedTree
from odradek.cluster.tree.tree import Tree
from odradek.security.quotas.entities import Entity, change_of
from odradek.security.quotas.rates import Window

ALICE: Entity = (("user", "alice"),)
APP: Entity = (("user", "alice"), ("client-id", "app"))
ANY_APP: Entity = (("user", None), ("client-id", None))
CLIENT: Entity = (("client-id", "c 1"),)
ADDRESS: Entity = (("ip", "10.0.0.1"),)
RATE, MORE = {"producer_byte_rate": 1024.0}, {"request_percentage": 12.5}
SCRAM = {"SCRAM-SHA-256": "salt=c2FsdA==,stored_key=…,server_key=…,iterations=4096"}


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    opened = EmbeddedTree(tmp_path / "tree.db")
    for path in znodes.PERSISTENT:
        opened.ensure(path)
    yield opened
    opened.close()


def _config(tree: Tree, path: str) -> dict[str, str] | None:
    data = tree.find(path)
    return None if data is None else dict(json.loads(data)["config"]) if data else {}


def _below(tree: Tree) -> list[str]:
    return [f"{root}/{name}" for root in ("users", "clients", "ips") for name in tree.children(f"/config/{root}")]


def test_nodes_equal_kafkas(tree: Tree) -> None:
    admin_writes.set_quotas(tree, APP, RATE)
    admin_writes.set_quotas(tree, CLIENT, RATE | MORE)
    admin_writes.set_quotas(tree, ADDRESS, {"connection_creation_rate": 7.0})
    assert _config(tree, "/config/users/alice/clients/app") == {"producer_byte_rate": "1024"}
    assert _config(tree, "/config/clients/c%201") == {"producer_byte_rate": "1024", "request_percentage": "12.5"}
    assert _config(tree, "/config/ips/10.0.0.1") == {"connection_creation_rate": "7"}
    changes = [json.loads(tree.get(f"/config/changes/{name}")[0]) for name in tree.children("/config/changes")]
    paths = ["users/alice/clients/app", "clients/c%201", "ips/10.0.0.1"]
    assert changes == [{"version": 2, "entity_path": path} for path in paths]


def test_empty_node_is_deleted_with_empty_parents(tree: Tree) -> None:
    admin_writes.set_quotas(tree, APP, RATE)
    admin_writes.set_quotas(tree, APP, {})
    assert _below(tree) == []
    admin_writes.set_quotas(tree, APP, RATE)
    admin_writes.set_quotas(tree, ALICE, MORE)
    admin_writes.set_quotas(tree, APP, {})
    assert _config(tree, "/config/users/alice") == {"request_percentage": "12.5"}
    assert tree.children("/config/users/alice") == []
    admin_writes.set_quotas(tree, APP, RATE)
    admin_writes.set_quotas(tree, ALICE, {})
    assert _config(tree, "/config/users/alice") == {}
    assert quota_nodes.read_all(tree) == {"users/alice/clients/app": RATE}


def test_credentials_of_a_user_stay(tree: Tree) -> None:
    tree.create("/config/users/alice", znodes.encode_config(SCRAM))
    admin_writes.set_quotas(tree, ALICE, RATE)
    assert _config(tree, "/config/users/alice") == SCRAM | {"producer_byte_rate": "1024"}
    admin_writes.set_quotas(tree, APP, RATE)
    admin_writes.set_quotas(tree, ALICE, {})
    admin_writes.set_quotas(tree, APP, {})
    assert _config(tree, "/config/users/alice") == SCRAM
    assert quota_nodes.read_all(tree) == {}


def test_malformed_nodes_are_ignored(tree: Tree) -> None:
    tree.create("/config/users/bob", b"{")
    tree.create("/config/users/100%", znodes.encode_config({"producer_byte_rate": "5"}))
    tree.create("/config/clients/c", znodes.encode_config({"producer_byte_rate": "x", "consumer_byte_rate": "5"}))
    assert quota_nodes.read_all(tree) == {"clients/c": {"consumer_byte_rate": 5.0}}


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.sampled_from([ALICE, APP, ANY_APP, CLIENT, (("user", None),), (("user", "bob"), ("client-id", None))]),
            st.sampled_from([{}, RATE, MORE, RATE | MORE]),
        )
    )
)
def test_loaded_quotas_equal_tree(tmp_path: Path, steps: list[tuple[Entity, dict[str, float]]]) -> None:
    path = tmp_path / "tree.db"
    path.unlink(missing_ok=True)
    tree = EmbeddedTree(path)
    state = ClusterState(tree, 0)
    state.prepare(None)
    model: dict[str, dict[str, float]] = {}
    for entity, quotas in steps:
        state.set_quotas(entity, quotas)
        model[change_of(entity)] = quotas
        assert state.quotas == {name: values for name, values in model.items() if values}
        assert quota_nodes.read_all(tree) == state.quotas
    if not state.quotas:
        assert _below(tree) == []
    tree.close()


def test_snapshots_have_quotas() -> None:
    quotas = {"users/alice/clients/<default>": RATE, "clients/c%201": MORE}
    parsed = Snapshot.parse(Snapshot(raw_snapshot(1, "c", 0, [], {}, {}, quotas=quotas)).encode())
    assert parsed.quotas == {(("user", "alice"), ("client-id", None)): RATE, CLIENT: MORE}
    assert parsed.quota_paths == quotas
    assert Snapshot.empty().quotas == {}


def test_many_samples_are_merged() -> None:
    config = {"quota.window.num": 11, "quota.window.size.seconds": 1}
    assert quota_windows.client_window(config) == Window(11, 1000)
    assert quota_windows.client_window(config | {"quota.window.num": 3600}) == Window(60, 60_000)
