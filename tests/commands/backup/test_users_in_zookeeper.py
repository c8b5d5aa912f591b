"""Credentials of a backup with --zookeeper: taken from the tree as they are, and written to another one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.commands.backup import restore_plans
from odradek.broker.commands.backup.carry_out import carry_out
from odradek.broker.commands.backup.current_cluster import users_in
from odradek.broker.commands.backup.restore_plans import Item, Outcome
from odradek.broker.commands.backup.saved_cluster import SavedCluster, from_json, to_json
from odradek.cluster import user_store
from odradek.cluster.tree import znodes
from odradek.cluster.tree.embedded import EmbeddedTree
from odradek.cluster.tree.tree import Tree
from odradek.security.sasl.password import Password
from odradek.security.sasl.scram_keys import ScramCredential, ScramMechanism, credential, new_salt, salted

KIND = ScramMechanism("SCRAM-SHA-256")
USERS = ("alice", "b/\x1bö~b")
NO_CLUSTER: Any = None  # no request is sent


def made(password: str) -> ScramCredential:
    salt = new_salt()
    return credential(KIND, salt, salted(KIND, Password(password), salt, 4096), 4096)


@pytest.fixture
def trees(tmp_path: Path) -> Iterator[tuple[Tree, Tree]]:
    """The first with two users, the second empty."""
    full, empty = EmbeddedTree(tmp_path / "full"), EmbeddedTree(tmp_path / "empty")
    for path in (znodes.USER_CONFIGS, znodes.CONFIG_CHANGES):
        full.ensure(path)
    for user in USERS:
        user_store.write_credentials(full, user, {KIND: made(user)})
    yield full, empty
    full.close()
    empty.close()


def restored(saved: SavedCluster, tree: Tree, *, overwrite: bool = False) -> list[Item]:
    plan = restore_plans.users(saved.users or {}, users_in(tree, []), from_tree=True, overwrite=overwrite)
    return carry_out(NO_CLUSTER, tree, list(plan))


def test_credentials_of_a_tree_are_restored_as_they_are(trees: tuple[Tree, Tree]) -> None:
    full, empty = trees
    saved = from_json(to_json(SavedCluster(0, users=users_in(full, []))))
    assert [one.outcome for one in restored(saved, empty)] == [Outcome.RESTORED] * 2
    assert user_store.read_credentials(empty) == user_store.read_credentials(full)
    assert [one.outcome for one in restored(saved, empty)] == [Outcome.EQUAL] * 2


def test_other_password_stays_without_overwrite(trees: tuple[Tree, Tree]) -> None:
    full, _ = trees
    saved = SavedCluster(0, users=users_in(full, []))
    other = made("other")
    user_store.write_credentials(full, "alice", {KIND: other})
    assert [one.outcome for one in restored(saved, full)] == [Outcome.DIFFERENT, Outcome.EQUAL]
    assert user_store.read_credentials(full, ["alice"])["alice"] == {KIND: other}
    restored(saved, full, overwrite=True)
    assert users_in(full, []) == saved.users


def test_malformed_credential_is_named(trees: tuple[Tree, Tree]) -> None:
    full, _ = trees
    path = f"{znodes.USER_CONFIGS}/alice"
    _, stat = full.get(path)
    full.set(path, znodes.encode_config({KIND.value: "salt=secret"}), stat.version)
    missing: list[str] = []
    assert list(users_in(full, missing)) == [USERS[1]]
    assert missing == ["SCRAM-SHA-256 of user alice: its node in ZooKeeper is malformed"]
