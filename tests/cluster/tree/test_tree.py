"""The embedded tree compared with a dict: equal results, refusals, versions and watches, also after reopening."""

from __future__ import annotations

import copy
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from odradek.cluster.tree import tree as t
from odradek.cluster.tree.embedded import EmbeddedTree, StoreError

NAMES = st.sampled_from(["a", "b", "ab"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))
VERSIONS = st.sampled_from([-1, -1, 0, 1, 2])
OPERATIONS = st.one_of(
    st.builds(t.Create, PATHS, st.binary(max_size=4), st.sampled_from([False, False, True]), st.booleans()),
    st.builds(t.Set, PATHS, st.binary(max_size=4), VERSIONS),
    st.builds(t.Delete, PATHS, VERSIONS),
    st.builds(t.Check, PATHS, VERSIONS),
)


class Model:
    """ZooKeeper's rules, over a dict of path -> [data, version, cversion, ephemeral, children ever created]."""

    def __init__(self) -> None:
        self.nodes: dict[str, list[Any]] = {"/": [b"", 0, 0, False, 0]}
        self.watched: set[tuple[str, bool]] = set()
        self.events: list[tuple[str, str]] = []

    def children(self, path: str) -> list[str]:
        return sorted(p.rpartition("/")[2] for p in self.nodes if p != "/" and t.parent(p) == path)

    def multi(self, operations: list[t.Operation]) -> list[str | int | None]:
        before = copy.deepcopy(self.nodes)
        fired: list[tuple[str, str]] = []
        try:
            results = [self._do(operation, fired) for operation in operations]
        except t.TreeError:
            self.nodes = before
            raise
        for kind, path in fired:
            hit = {(path, kind == t.CHILDREN)} | ({(path, True)} if kind == t.DELETED else set())
            if hit & self.watched:
                self.events.append((kind, path))
            self.watched -= hit
        return results

    def _do(self, operation: t.Operation, fired: list[tuple[str, str]]) -> str | int | None:
        if isinstance(operation, t.Create):
            return self._create(operation, fired)
        node = self.nodes.get(operation.path)
        if node is None:
            raise t.NoNode(operation.path)
        if operation.version not in (-1, node[1]):
            raise t.BadVersion(operation.path)
        if isinstance(operation, t.Set):
            node[0], node[1] = operation.data, node[1] + 1
            fired.append((t.CHANGED, operation.path))
            return node[1]
        if isinstance(operation, t.Delete):
            if self.children(operation.path):
                raise t.NotEmpty(operation.path)
            del self.nodes[operation.path]
            self.nodes[t.parent(operation.path)][2] += 1
            fired += [(t.DELETED, operation.path), (t.CHILDREN, t.parent(operation.path))]
        return None

    def _create(self, operation: t.Create, fired: list[tuple[str, str]]) -> str:
        above = self.nodes.get(t.parent(operation.path))
        if above is None:
            raise t.NoNode(operation.path)
        if above[3]:
            raise t.NoChildrenForEphemerals(operation.path)
        path = operation.path + (f"{above[4]:010d}" if operation.sequence else "")
        if path in self.nodes:
            raise t.NodeExists(path)
        self.nodes[path] = [operation.data, 0, 0, operation.ephemeral, 0]
        above[2] += 1
        above[4] += 1
        fired += [(t.CREATED, path), (t.CHILDREN, t.parent(path))]
        return path

    def end_session(self) -> None:
        for path in sorted((p for p, node in self.nodes.items() if node[3]), reverse=True):
            del self.nodes[path]
            self.nodes[t.parent(path)][2] += 1


def outcome(call: Callable[[], list[Any]]) -> list[Any] | type[t.TreeError]:
    """The result of a call, or the type of the refusal."""
    try:
        return call()
    except t.TreeError as error:
        return type(error)


class TreeMachine(RuleBasedStateMachine):
    directory: Path

    @initialize()
    def open(self) -> None:
        self.path = self.directory / f"tree-{id(self)}.db"
        for old in self.directory.glob(self.path.name + "*"):
            old.unlink()
        self.tree = EmbeddedTree(self.path)
        self.model = Model()

    @rule(operations=st.lists(OPERATIONS, min_size=1, max_size=4))
    def multi(self, operations: list[t.Operation]) -> None:
        got = outcome(lambda: self.tree.multi(operations))
        if isinstance(got, list):
            got = [item.version if isinstance(item, t.Stat) else item for item in got]
        assert got == outcome(lambda: self.model.multi(operations))

    @rule(path=PATHS)
    def watch_data(self, path: str) -> None:
        self.tree.exists(path, watch=True)
        self.model.watched.add((path, False))

    @rule(path=PATHS)
    def watch_children(self, path: str) -> None:
        if path in self.model.nodes:
            self.tree.children(path, watch=True)
            self.model.watched.add((path, True))

    @rule()
    def poll(self) -> None:
        assert [tuple(event) for event in self.tree.poll()] == self.model.events
        self.model.events = []

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        if clean:
            self.tree.close()
        else:
            self.tree._db.close()  # as after a kill
        self.model.end_session()
        self.model.watched, self.model.events = set(), []
        self.tree = EmbeddedTree(self.path)

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "model"):
            return
        for path, (data, version, cversion, *_) in self.model.nodes.items():
            got, stat = self.tree.get(path)
            assert (got, stat.version, stat.cversion) == (data, version, cversion)
            assert self.tree.children(path) == self.model.children(path)
            assert stat.children == len(self.model.children(path))
            assert stat.data_length == len(data)

    def teardown(self) -> None:
        if hasattr(self, "tree"):
            self.tree.close()


@pytest.mark.slow
def test_embedded_tree_follows_the_model(tmp_path: Path) -> None:
    machine: Any = type("Machine", (TreeMachine,), {"directory": tmp_path})
    case = machine.TestCase
    case.settings = settings(max_examples=40, stateful_step_count=25)
    case().runTest()


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[EmbeddedTree]:
    opened = EmbeddedTree(tmp_path / "m.db")
    yield opened
    opened.close()


@pytest.mark.parametrize("path", ["a", "/a/", "//a", "/a/../b", "/./a", "/a\0", ""])
def test_invalid_paths_are_refused(tree: EmbeddedTree, path: str) -> None:
    with pytest.raises(ValueError, match="not a path"):
        tree.create(path)


def test_ensure_and_removal_are_inverse(tree: EmbeddedTree) -> None:
    tree.ensure("/a/b/c")
    tree.ensure("/a/b")
    assert tree.children("/a") == ["b"]
    tree.multi(tree.removal("/a"))
    assert tree.children("/") == []
    assert tree.removal("/a") == []


def test_second_writer_is_refused(tree: EmbeddedTree, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="another broker"):
        EmbeddedTree(tmp_path / "m.db")


def test_tree_file_is_private(tree: EmbeddedTree, tmp_path: Path) -> None:
    tree.create("/a", b"secret")
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_foreign_files_and_later_versions_are_refused(tmp_path: Path) -> None:
    EmbeddedTree(tmp_path / "m.db").close()
    with closing(sqlite3.connect(tmp_path / "m.db")) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="newer Odradek"):
        EmbeddedTree(tmp_path / "m.db")
    with closing(sqlite3.connect(tmp_path / "other.db")) as db:
        db.execute("PRAGMA application_id = 7")
    with pytest.raises(StoreError, match="not a metadata file"):
        EmbeddedTree(tmp_path / "other.db")
    (tmp_path / "text.db").write_bytes(b"this is not a database, only some text" * 40)
    with pytest.raises(StoreError, match="backup"):
        EmbeddedTree(tmp_path / "text.db")


def test_cost_of_a_write_does_not_grow_with_siblings(tree: EmbeddedTree) -> None:
    """The cost is counted in steps of SQLite's machine: a write uses lookups, not scans."""
    tree.ensure("/a")

    def cost(*operations: t.Operation) -> int:
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0

        tree._db.set_progress_handler(count, 1)
        tree.multi(operations)
        tree._db.set_progress_handler(None, 0)
        return steps

    before = cost(t.Create("/a/first"))
    tree.multi([t.Create(f"/a/{number}") for number in range(1000)])
    assert cost(t.Create("/a/last")) < 2 * before
