"""The nodes of ACLs: reads, notices, changes; in an embedded tree, with concurrent writes of another broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.controller.security import acl_writes, followed_nodes, node_kinds
from odradek.broker.controller.security.security_nodes import SecurityNodes
from odradek.cluster.tree.embedded import EmbeddedTree
from odradek.cluster.tree.tree import BadVersion, Operation, TreeError
from odradek.security.acls import acl_nodes
from odradek.security.acls.acl_requests import Changes
from odradek.security.acls.acl_types import (
    AccessControlEntry,
    Acls,
    Entries,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from odradek.security.acls.acl_types import Operation as AclOperation

TOPIC = ResourcePattern(ResourceType.TOPIC, "t")
OTHER = ResourcePattern(ResourceType.TOPIC, "o")
PREFIX = ResourcePattern(ResourceType.GROUP, "g-", PatternType.PREFIXED)
CONFIG = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}


def entries(*names: str) -> Entries:
    return frozenset(AccessControlEntry(f"User:{n}", "*", AclOperation.READ, Permission.ALLOW) for n in names)


class Region:
    """Keeps the last publication."""

    def __init__(self) -> None:
        self.version = 0
        self.blob = b""

    def publish(self, version: int, blob: bytes) -> None:
        assert version > self.version
        self.version, self.blob = version, blob


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[EmbeddedTree]:
    found = EmbeddedTree(tmp_path / "tree.db")
    yield found
    found.close()


@pytest.fixture
def nodes(tree: EmbeddedTree) -> SecurityNodes:
    return prepared(tree)


def prepared(tree: EmbeddedTree) -> SecurityNodes:
    found = SecurityNodes(tree, node_kinds.kinds(CONFIG))
    found.prepare()
    return found


def write(tree: EmbeddedTree, pattern: ResourcePattern, data: bytes) -> None:
    """Write as another broker does."""
    path = acl_nodes.path(pattern)
    if tree.exists(path) is None:
        tree.create(path, data)
    else:
        tree.set(path, data)
    announce(tree, pattern)


def announce(tree: EmbeddedTree, pattern: ResourcePattern) -> None:
    prefix, announcement = acl_nodes.encode_change(pattern)
    tree.create(prefix, announcement, sequence=True)


def follow(nodes: SecurityNodes) -> None:
    for event in nodes.tree.poll():
        nodes.event(event.path)
    nodes.read()


def change(nodes: SecurityNodes, pattern: ResourcePattern, wanted: Entries) -> Any:
    return finish(acl_writes.change(nodes, lambda acls: ("done", {pattern: wanted})))


def finish(work: Any) -> Any:
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


def test_without_an_authorizer_nothing_is_read_or_published(tree: EmbeddedTree) -> None:
    nodes = SecurityNodes(tree, node_kinds.kinds({"authorizer.class.name": ""}))
    nodes.prepare()
    assert (nodes.publish(Region()), nodes.version, tree.children("/")) == (False, 0, [])  # type: ignore[arg-type]  # a test double


def test_the_first_publication_is_of_what_is_there(tree: EmbeddedTree) -> None:
    prepared(tree)
    write(tree, TOPIC, acl_nodes.encode_acls(entries("a")))
    nodes, region = prepared(tree), Region()
    assert nodes.publish(region) and nodes.version == 1  # type: ignore[arg-type]  # a test double
    assert nodes.metadata.parse(1, region.blob).acls == {TOPIC: entries("a")}
    assert not nodes.publish(region)  # type: ignore[arg-type]  # a test double


def test_others_changes_are_read_when_they_are_announced(nodes: SecurityNodes, tree: EmbeddedTree) -> None:
    for pattern in (TOPIC, PREFIX):
        write(tree, pattern, acl_nodes.encode_acls(entries("a")))
    follow(nodes)
    assert nodes.metadata.acls == {TOPIC: entries("a"), PREFIX: entries("a")}
    tree.delete(acl_nodes.path(TOPIC))
    announce(tree, TOPIC)
    follow(nodes)
    assert nodes.metadata.acls == {PREFIX: entries("a")}


def test_a_malformed_node_or_announcement_costs_itself_only(nodes: SecurityNodes, tree: EmbeddedTree) -> None:
    write(tree, TOPIC, acl_nodes.encode_acls(entries("a")))
    write(tree, OTHER, b"no JSON")
    for data in (b"", b"no colon", b"Topic:..", b"Topic:a//b", b"\xff:\xff", b"Topic:" + b"x" * 300):
        tree.create(f"{acl_nodes.CHANGES[PatternType.LITERAL]}/acl_changes_", data, sequence=True)
    tree.create(f"{acl_nodes.CHANGES[PatternType.PREFIXED]}/acl_changes_", b"[" * 100_000, sequence=True)
    tree.create(f"{acl_nodes.CHANGES[PatternType.LITERAL]}/whatever", b"")
    follow(nodes)
    assert nodes.metadata.acls == {TOPIC: entries("a")}
    write(tree, OTHER, acl_nodes.encode_acls(entries("b")))
    follow(nodes)
    assert nodes.metadata.acls == {TOPIC: entries("a"), OTHER: entries("b")}


def test_old_announcements_are_deleted(
    nodes: SecurityNodes, tree: EmbeddedTree, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(followed_nodes, "EXPIRES_MS", -1)
    write(tree, TOPIC, acl_nodes.encode_acls(entries("a")))
    follow(nodes)
    assert tree.children(acl_nodes.CHANGES[PatternType.LITERAL]) == []
    write(tree, TOPIC, acl_nodes.encode_acls(entries("b")))
    follow(nodes)
    assert nodes.metadata.acls == {TOPIC: entries("b")}


def test_after_a_lost_connection_everything_is_read(nodes: SecurityNodes, tree: EmbeddedTree) -> None:
    tree.create(acl_nodes.path(TOPIC), acl_nodes.encode_acls(entries("a")))  # its notice is already deleted
    nodes.stale()
    assert nodes.waiting
    nodes.read()
    assert nodes.metadata.acls == {TOPIC: entries("a")} and not nodes.waiting


def test_a_change_is_in_the_tree_with_its_announcement(nodes: SecurityNodes, tree: EmbeddedTree) -> None:
    assert change(nodes, PREFIX, entries("a", "b")) == "done"
    assert tree.get(acl_nodes.path(PREFIX))[0] == acl_nodes.encode_acls(entries("a", "b"))
    (name,) = tree.children(acl_nodes.CHANGES[PatternType.PREFIXED])
    announcement = tree.get(f"{acl_nodes.CHANGES[PatternType.PREFIXED]}/{name}")[0]
    assert acl_nodes.decode_change(PatternType.PREFIXED, announcement) == PREFIX
    change(nodes, PREFIX, entries("a"))
    change(nodes, PREFIX, entries())
    assert tree.exists(acl_nodes.path(PREFIX)) is None and nodes.metadata.acls == {}


@pytest.mark.parametrize("before", [None, entries("x"), entries("x", "y")], ids=["none", "one", "two"])
@pytest.mark.parametrize("meanwhile", [None, entries("z"), entries("y")], ids=["deleted", "other", "less"])
def test_concurrent_change_of_another_broker_is_kept(
    nodes: SecurityNodes, tree: EmbeddedTree, before: Entries | None, meanwhile: Entries | None
) -> None:  # fmt: skip
    """Only the concurrently changed part of the request is decided again; the rest is written once."""
    if before is not None:
        change(nodes, TOPIC, before)
    decided: list[Acls] = []

    def decide(acls: Acls) -> tuple[int, Changes]:
        decided.append(dict(acls))
        added = {pattern: acls.get(pattern, frozenset()) | entries("new") for pattern in (TOPIC, OTHER)}
        return len(decided), added

    path = acl_nodes.path(TOPIC)
    if meanwhile is None:
        if before is not None:
            tree.delete(path)
    elif before is None:
        tree.create(path, acl_nodes.encode_acls(meanwhile))
    else:
        tree.set(path, acl_nodes.encode_acls(meanwhile))
    conflict = not (meanwhile is None and before is None)
    assert finish(acl_writes.change(nodes, decide)) == (2 if conflict else 1)
    assert acl_nodes.decode_acls(tree.get(path)[0]) == (meanwhile or frozenset()) | entries("new")
    assert tree.get(acl_nodes.path(OTHER))[1].version == 0
    assert nodes.metadata.acls == {TOPIC: (meanwhile or frozenset()) | entries("new"), OTHER: entries("new")}


def test_a_change_that_always_loses_the_race_gives_up(nodes: SecurityNodes, tree: EmbeddedTree) -> None:
    change(nodes, TOPIC, entries("a"))

    def decide(acls: Acls) -> tuple[None, Changes]:
        tree.set(acl_nodes.path(TOPIC), acl_nodes.encode_acls(entries("a")))
        return None, {TOPIC: entries("b")}

    with pytest.raises(BadVersion):
        finish(acl_writes.change(nodes, decide))


def test_a_failed_write_leaves_what_was_written_before(
    nodes: SecurityNodes, tree: EmbeddedTree, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    multi = tree.multi

    def failing(operations: list[Operation]) -> Any:
        if operations[0].path == acl_nodes.path(OTHER):
            raise TreeError("full")
        return multi(operations)

    monkeypatch.setattr(tree, "multi", failing)
    with pytest.raises(TreeError, match="full"):
        finish(acl_writes.change(nodes, lambda acls: (None, {TOPIC: entries("a"), OTHER: entries("a")})))
    assert nodes.metadata.acls == {TOPIC: entries("a")}
