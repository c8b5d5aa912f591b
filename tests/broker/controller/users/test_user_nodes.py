"""The nodes of users and tokens: read after notices, and changed by requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.controller.security import followed_nodes
from odradek.broker.controller.users.user_nodes import UserNodes
from odradek.cluster import user_store
from odradek.cluster.rules.errors import ApiError
from odradek.cluster.tree import notices, znodes
from odradek.cluster.tree.embedded import EmbeddedTree
from odradek.cluster.tree.tree import Create, Set, Tree, TreeUnavailable
from odradek.protocol.errors import UNKNOWN_SERVER_ERROR, Error
from odradek.security.principal import Principal
from odradek.security.sasl.delegation_tokens import CHANGES_PATH, TOKENS_PATH, Answer
from odradek.security.sasl.password import Password
from odradek.security.sasl.scram_keys import ScramMechanism, derive, format_credential

SHA_256, SHA_512 = ScramMechanism
ALICE = Principal("User", "alice")
MADE = derive(SHA_256, Password("secret"))
NOW = 1_000_000


class World:
    """A tree, and the nodes of a controller process that counts publications."""

    def __init__(self, tree: Tree, **config: Any) -> None:
        self.tree = tree
        self.config = {
            "delegation.token.secret.key": "key",
            "delegation.token.master.key": None,
            "delegation.token.max.lifetime.ms": 7000,
            "delegation.token.expiry.time.ms": 1000,
            "delegation.token.expiry.check.interval.ms": 3600000,
            "odradek.delegation.tokens.max.bytes": 16777216,
        } | {name.replace("_", "."): value for name, value in config.items()}
        self.changes = 0
        self.nodes = UserNodes(tree, self.config, self._changed, self._stored)
        for path in znodes.PERSISTENT:
            tree.ensure(path)
        self.nodes.prepare()

    def _changed(self) -> None:
        self.changes += 1

    def _stored(self, write: Callable[[], Any]) -> Any:
        try:
            return write()
        except TreeUnavailable as error:
            raise ApiError(UNKNOWN_SERVER_ERROR, str(error)) from error

    def events(self) -> None:
        """Handle the events of the watches, as a member does."""
        for event in self.tree.poll():
            self.nodes.event(event.path)
        if self.nodes.waiting:
            self.nodes.read()

    def user(self, name: str) -> str | None:
        return self.nodes.nodes.get(f"{znodes.USER_CONFIGS}/{name}")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    tree = EmbeddedTree(tmp_path / "tree.db")
    yield World(tree)
    tree.close()


def write(tree: Tree, user: str, text: str) -> None:
    """Write as another broker or tool does."""
    path, change = f"{znodes.USER_CONFIGS}/{user}", notices.encode_config_change("users", user)
    data = znodes.encode_config({"SCRAM-SHA-256": text})
    operation = Set(path, data) if tree.exists(path) else Create(path, data)
    tree.multi([operation, Create(znodes.CONFIG_CHANGE, change, sequence=True)])


def test_a_change_of_another_broker_is_read_once(world: World) -> None:
    write(world.tree, "alice", format_credential(MADE))
    assert world.user("alice") is None
    world.events()
    assert format_credential(MADE) in (world.user("alice") or "") and world.changes == 1
    world.events()
    assert world.changes == 1 and not world.nodes.waiting


@pytest.mark.parametrize(
    "notice",
    [
        notices.encode_config_change("topics", "alice"), notices.encode_config_change("users", "alice/clients/c"),
        b"", b"{", b'{"version":2,"entity_path":"users/.."}', b'{"version":2,"entity_path":"users/a\\u0000"}',
        b'{"version":2,"entity_path":7}', b'{"version":1,"entity_type":"users"}',
    ],
)  # fmt: skip
def test_other_notices_and_malformed_ones(world: World, notice: bytes) -> None:
    world.tree.create(znodes.CONFIG_CHANGE, notice, sequence=True)
    world.tree.create(f"{CHANGES_PATH}/token_change_", notice, sequence=True)
    world.events()
    assert world.changes == 0 and not world.nodes.waiting


def test_token_with_very_many_renewers_is_refused(world: World) -> None:
    """ZooKeeper refuses such a node; the tree of a standalone broker would take it, and all processes with it."""
    renewers = [Principal("User", "x" * 30_000)] * 40
    with pytest.raises(ApiError, match="renewers"):
        world.nodes.write(world.nodes.tokens.create(ALICE, ALICE, renewers, -1, NOW))
    assert world.tree.children(TOKENS_PATH) == [] and world.changes == 0


def test_the_first_version_of_a_notice(world: World) -> None:
    world.tree.create(f"{znodes.USER_CONFIGS}/alice", znodes.encode_config({"SCRAM-SHA-256": "x"}))
    world.tree.create(znodes.CONFIG_CHANGE, b'{"version":1,"entity_type":"users","entity_name":"alice"}', sequence=True)
    world.events()
    assert world.user("alice")


def test_old_notices_are_deleted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notices of all configs and tokens; each broker deletes old ones, as Kafka's brokers do, and keeps recent ones."""
    made = world.nodes.tokens.create(ALICE, ALICE, [], -1, NOW)
    world.nodes.write(made)
    world.nodes.alter("alice", {SHA_256: MADE})
    world.events()
    assert [len(world.tree.children(path)) for path in (znodes.CONFIG_CHANGES, CHANGES_PATH)] == [1, 1]
    monkeypatch.setattr(followed_nodes, "EXPIRES_MS", -1)
    monkeypatch.setattr(followed_nodes, "_PAUSE_MS", 0)
    other = World(world.tree)
    for path in (znodes.CONFIG_CHANGES, CHANGES_PATH):
        assert world.tree.children(path) == [], "a start must delete old notices"
    world.tree.create(znodes.CONFIG_CHANGE, notices.encode_config_change("topics", "t"), sequence=True)
    other.nodes.write(world.nodes.tokens.renew(ALICE, world.nodes.tokens.hmac(_id(made)), 2000, NOW))
    world.nodes._copies._delete_from.clear()
    world.events()
    for path in (znodes.CONFIG_CHANGES, CHANGES_PATH):
        assert world.tree.children(path) == [], "a notice must trigger the deletion of old ones"


def _id(made: Answer) -> str:
    assert made.written is not None
    return made.written.token_id


def test_after_a_lost_connection_all_is_read(world: World) -> None:
    world.tree.create(f"{znodes.USER_CONFIGS}/alice", b"{}")
    world.nodes.stale()
    assert world.nodes.waiting
    world.nodes.read()
    assert world.user("alice") == "{}"


def test_an_alteration_is_in_the_tree_with_its_notice_and_published(world: World) -> None:
    world.nodes.alter("a b", {SHA_256: MADE})
    data, _ = world.tree.get(f"{znodes.USER_CONFIGS}/a%20b")
    assert znodes.decode_config(data) == {"SCRAM-SHA-256": format_credential(MADE)}
    (notice,) = world.tree.children(znodes.CONFIG_CHANGES)
    assert world.tree.get(f"{znodes.CONFIG_CHANGES}/{notice}")[0] == notices.encode_config_change("users", "a%20b")
    assert world.user("a%20b") and world.changes == 1
    assert world.nodes.credentials(["a b", "nobody", ""]) == {"a b": {SHA_256: MADE}}


def test_other_configs_of_a_user_stay_and_an_empty_node_goes(world: World) -> None:
    path = f"{znodes.USER_CONFIGS}/alice"
    world.tree.create(path, znodes.encode_config({"producer_byte_rate": "1", "SCRAM-SHA-512": "x"}))
    world.nodes.alter("alice", {SHA_256: MADE, SHA_512: None})
    assert znodes.decode_config(world.tree.get(path)[0]).keys() == {"producer_byte_rate", "SCRAM-SHA-256"}
    world.nodes.alter("alice", {SHA_256: None})
    assert znodes.decode_config(world.tree.get(path)[0]) == {"producer_byte_rate": "1"}
    world.nodes.alter("bob", {SHA_256: MADE})
    world.nodes.alter("bob", {SHA_256: None})
    assert world.tree.exists(f"{znodes.USER_CONFIGS}/bob") is None and world.user("bob") is None


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_that_no_node_can_have(world: World, name: str) -> None:
    with pytest.raises(ApiError):
        world.nodes.alter(name, {SHA_256: MADE})
    assert world.nodes.credentials([name]) == {}


def test_a_credential_that_cannot_be_read(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.tree.create(f"{znodes.USER_CONFIGS}/a", znodes.encode_config({"SCRAM-SHA-256": "salt=topsecret"}))
    world.tree.create(f"{znodes.USER_CONFIGS}/b", b"topsecret")
    world.tree.create(f"{znodes.USER_CONFIGS}/c%2", b"{}")  # Kafka never writes such a name
    assert world.nodes.credentials(None) == {"a": {SHA_256: None}, "b": {}}
    assert "topsecret" not in caplog.text


def test_a_token_from_its_creation_to_its_end(world: World) -> None:
    tokens = world.nodes.tokens
    made = tokens.create(ALICE, ALICE, [], -1, NOW)
    assert made.written and tokens.expired(NOW + 9999) == []
    world.nodes.write(made)
    token_id, path = made.written.token_id, f"{TOKENS_PATH}/{made.written.token_id}"
    assert path in world.nodes.nodes and tokens.credential(SHA_256, token_id, NOW)
    world.nodes.write(tokens.renew(ALICE, tokens.hmac(token_id), 2000, NOW))
    assert tokens.credential(SHA_256, token_id, NOW + 1500)
    world.nodes.write(tokens.expire(ALICE, tokens.hmac(token_id), -1, NOW))
    assert world.tree.exists(path) is None and tokens.credential(SHA_256, token_id, NOW) is None
    assert len(world.tree.children(CHANGES_PATH)) == 3 and path not in world.nodes.nodes


def test_a_write_that_fails_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = world.nodes.tokens
    made = tokens.create(ALICE, ALICE, [], -1, NOW)

    def fails(*_: object) -> None:
        raise TreeUnavailable("/")

    monkeypatch.setattr(user_store, "write_token", fails)
    with pytest.raises(ApiError):
        world.nodes.write(made)
    assert made.written and tokens.credential(SHA_256, made.written.token_id, NOW) is None and world.changes == 0


def test_expired_tokens_are_swept_once_in_an_interval(tmp_path: Path) -> None:
    tree = EmbeddedTree(tmp_path / "other.db")
    world = World(tree)
    made = world.nodes.tokens.create(ALICE, ALICE, [], -1, NOW)
    world.nodes.write(made)
    world.nodes.sweep(NOW)
    assert made.written and world.nodes.due() > 0
    world.nodes.sweep(NOW + 5000)  # the interval has not ended
    assert tree.children(TOKENS_PATH) == [made.written.token_id]
    other = World(tree)
    other.nodes.sweep(NOW + 5000)
    assert tree.children(TOKENS_PATH) == []
    world.events()
    assert world.nodes.tokens.credential(SHA_256, made.written.token_id, NOW) is None
    tree.close()


def test_without_a_key_no_token_is_read(tmp_path: Path) -> None:
    tree = EmbeddedTree(tmp_path / "other.db")
    world = World(tree, delegation_token_secret_key=None)
    assert tree.exists(TOKENS_PATH) is None and world.nodes.due() == float("inf")
    assert world.nodes.tokens.create(ALICE, ALICE, [], -1, NOW).error is Error.DELEGATION_TOKEN_AUTH_DISABLED
    world.nodes.sweep(NOW)
    world.events()
    tree.close()


def test_the_decoy_key_is_made_once(world: World) -> None:
    key = world.nodes.nodes[znodes.DECOY_KEY]
    assert len(key) == 44 and World(world.tree).nodes.nodes[znodes.DECOY_KEY] == key
