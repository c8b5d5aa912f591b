"""Follows nodes of the tree that processes need: those with ACLs, users and delegation tokens.

Whoever changes such a node then creates a sequence node that names it. This broker watches the parents of these, reads
the named nodes again, and deletes sequence nodes that are older than a quarter of an hour, as brokers of Apache Kafka
do. When the connection to the store was lost it reads everything again. A malformed node is logged and counts as none.

Owner     : the controller process.
Crash rule: the tree has it all; a new controller process reads it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from odradek.broker.controller.security.node_kinds import NodeKind
from odradek.cluster.tree.tree import Delete, Tree, check_path

log = logging.getLogger(__name__)

EXPIRES_MS = 15 * 60 * 1000  # the age at which Kafka deletes a sequence node
_PAUSE_MS = 60_000  # between two looks for expired ones
_AT_ONCE = 1000  # are deleted
_DIGITS = 10  # of a sequence node's number


class Node(NamedTuple):
    """A node's data, and the version that a conditional write compares."""

    data: bytes
    version: int


class FollowedNodes:
    """The nodes of some kinds, by path. Methods that read the tree raise TreeUnavailable."""

    def __init__(self, tree: Tree, kinds: Sequence[NodeKind], changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called when there are other nodes."""
        self.tree = tree
        self.nodes: dict[str, Node] = {}
        self._kinds = {parent: kind for kind in kinds for parent in kind.changes}
        self._changed = changed
        self._stale = bool(kinds)
        self._announced: set[str] = set()  # parents of sequence nodes with new children
        self._last: dict[str, int] = {}  # the number of the last sequence node that was read, by parent
        self._delete_from: dict[str, int] = {}  # when to look for expired ones next, by parent

    # -- reading

    @property
    def waiting(self) -> bool:
        """Whether `read` has something to do."""
        return self._stale or bool(self._announced)

    def stale(self) -> None:
        """Any node may have changed."""
        self._stale = bool(self._kinds)

    def event(self, path: str) -> bool:
        """A watch fired; returns whether it was one of these."""
        if path in self._kinds:
            self._announced.add(path)
        return path in self._kinds

    def prepare(self) -> None:
        """Create the fixed nodes, and read everything."""
        for kind in self._all():
            for path in kind.ensured:
                self.tree.ensure(path)
        self.read()

    def read(self) -> None:
        """Read what may have changed."""
        if self._stale:
            for parent in self._kinds:  # first: a change while the nodes are read is announced later
                names = self.tree.children(parent, watch=True)
                self._last[parent] = max(map(_number, names), default=-1)
                self._delete_old(parent, names)
            self._replace([path for kind in self._all() for path in kind.paths(self.tree)])
            self._stale = False
            self._announced.clear()
        for parent in list(self._announced):
            self._read_announced(parent)
            self._announced.discard(parent)

    def _all(self) -> Iterable[NodeKind]:
        return {id(kind): kind for kind in self._kinds.values()}.values()

    def _replace(self, paths: Sequence[str]) -> None:
        """These are all nodes there are."""
        found = {path: node for path, node in self._found(paths) if node is not None}
        if found != self.nodes:
            self.nodes = found
            self._set_changed()

    def _found(self, paths: Sequence[str]) -> Iterator[tuple[str, Node | None]]:
        """Each path with its node; None if there is none, or a malformed one."""
        for path, found in zip(paths, self.tree.get_many(paths), strict=True):
            sound = found is not None and self._is_sound(path, found[0])
            yield path, Node(found[0], found[1].version) if found is not None and sound else None

    def _read_announced(self, parent: str) -> None:
        kind, last = self._kinds[parent], self._last.get(parent, -1)
        names = self.tree.children(parent, watch=True)
        new = [name for name in names if _number(name) > last]
        found = [node for node in self.tree.get_many([f"{parent}/{name}" for name in new]) if node is not None]
        changed = dict.fromkeys(_path_of(kind, parent, data) for data, _ in found)
        self.refresh([path for path in changed if path is not None])
        self._last[parent] = max([last, *map(_number, new)])
        self._delete_old(parent, names)

    def refresh(self, paths: Sequence[str]) -> None:
        """Read these nodes again."""
        for path, node in self._found(paths):
            self.set(path, node)

    def set(self, path: str, node: Node | None) -> None:
        """The tree has this node, or (None) no such node any more."""
        if self.nodes.get(path) == node:
            return
        if node is None:
            del self.nodes[path]
        else:
            self.nodes[path] = node
        self._set_changed()

    def _is_sound(self, path: str, data: bytes) -> bool:
        try:
            for kind in self._all():
                if any(path.startswith(f"{root}/") for root in kind.roots):
                    kind.check(path, data)
        except (ValueError, RecursionError) as error:
            log.error("ignoring %s: %s", path, error)
            return False
        return True

    def _delete_old(self, parent: str, names: Sequence[str]) -> None:
        """Delete the sequence nodes that have expired; once in a while, as it reads all of them."""
        now = time.time_ns() // 1_000_000
        if not names or now < self._delete_from.get(parent, 0):
            return
        self._delete_from[parent] = now + _PAUSE_MS
        paths = [f"{parent}/{name}" for name in names]
        found = zip(paths, self.tree.get_many(paths), strict=True)
        old = [path for path, node in found if node is not None and now - node[1].ctime > EXPIRES_MS]
        self.tree.each([[Delete(path)] for path in old[:_AT_ONCE]])  # other brokers delete them, too

    def _set_changed(self) -> None:
        self._changed()

    @property
    def texts(self) -> dict[str, str]:
        """The nodes as texts, by path."""
        return {path: node.data.decode(errors="replace") for path, node in self.nodes.items()}


def _number(name: str) -> int:
    """The number of a sequence node; -1 for a node of another name."""
    digits = name[-_DIGITS:]
    return int(digits) if digits.isdecimal() else -1


def _path_of(kind: NodeKind, parent: str, data: bytes) -> str | None:
    try:
        path = kind.changed(parent, data)
        if path is not None:
            check_path(path)
        return path
    except (ValueError, RecursionError) as error:
        log.error("ignoring a change announced below %s: %s", parent, error)
        return None
