"""ZooKeeper's servers: one tree for all sessions; watches see its changes, ephemeral nodes go with their session.

A session may read older data than others have written (`lag`), as its server may; never older than it has written or
read itself. A new session's server is up to date, since the creation of a session is a transaction like any other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from odradek.cluster.tree import tree as t
from odradek.cluster.tree.tree import Operation, Stat, TreeError, TreeUnavailable

from .session import Session
from .world import World


class Node:
    """One node of the tree."""

    __slots__ = ("children", "cversion", "czxid", "data", "made", "mzxid", "owner", "pzxid", "version")

    def __init__(self, data: bytes, zxid: int, owner: int) -> None:
        self.data = data
        self.version = self.cversion = self.made = 0
        self.czxid = self.mzxid = self.pzxid = zxid
        self.owner = owner
        self.children: dict[str, None] = {}


class Seen(NamedTuple):
    """A node as it was at some time."""

    data: bytes
    stat: Stat
    children: list[str]


class ZooKeeper:
    """The servers. `written(session, operation, before)` is called after each write, `under_way(session, operations)`
    before writes: time may pass there.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.up = True
        self.slow = 0.004  # seconds that a call may take
        self.lag = 0.0  # seconds that a server may be behind
        self.zxid = 0
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0)}
        self.sessions: dict[int, Session] = {}
        self.written: Callable[[Session | None, Operation, bytes | None], None] = lambda *_: None
        self.under_way: Callable[[Session, Sequence[Operation]], None] = lambda *_: None
        self.fired: list[tuple[int, list[tuple[str, str]]]] = []  # what watches see, by zxid
        self._past: dict[str, list[tuple[int, Seen | None]]] = defaultdict(list)  # by path; by zxid, what was from then
        self._last = 100

    # -- sessions

    def connect(self, broker: int, ring: Callable[[], None]) -> Session:
        """A new session. TreeUnavailable."""
        if not self.up:
            raise TreeUnavailable("/")
        self._last += 1
        session = self.sessions[self._last] = Session(self, self._last, broker, ring)
        return session

    def expire(self, session: Session) -> None:
        """The session ends: its ephemeral nodes go."""
        if self.sessions.pop(session.session, None) is None:
            return
        self.world.say(f"zookeeper: session {session.session} of broker {session.broker} ends")
        number, session.watches = session.session, set()
        for path in [path for path, node in self.nodes.items() if node.owner == number]:
            self.apply(None, [t.Delete(path)])

    # -- the tree

    def apply(self, session: Session | None, operations: Sequence[Operation]) -> list[str | Stat | None]:
        """Do all operations or raise the first refusal."""
        undo: list[Callable[[], object]] = []
        fired: list[tuple[str, str]] = []
        self.zxid += 1
        befores = []
        try:
            results = []
            for operation in operations:
                node = self.nodes.get(operation.path)
                befores.append(None if node is None else node.data)
                results.append(self._do(session, operation, undo, fired))
        except TreeError:
            for step in reversed(undo):
                step()
            if session is not None:
                session.see(self.zxid)
            raise
        for operation, before in zip(operations, befores, strict=True):
            self.written(session, operation, before)
        self._show(session, fired)
        return results

    def _show(self, writer: Session | None, fired: list[tuple[str, str]]) -> None:
        """Send events to the writer at once, and to other sessions when their servers have the transaction."""
        zxid = self.zxid
        self.fired.append((zxid, fired))
        if self.lag:
            for path in {path for _, path in fired}:
                self._past[path].append((zxid, self._now(path)))
        for session in list(self.sessions.values()):
            if session is writer or not self.lag:
                session.see(zxid)
            else:
                self.world.after(self.world.between(0, self.lag), None, lambda session=session: session.see(zxid))  # type: ignore[misc]  # a default in a lambda

    def look(self, path: str, zxid: int) -> Seen | None:
        """A node as it was after the transaction of that number."""
        past = self._past.get(path, [])
        at = bisect_right(past, zxid, key=lambda one: one[0])
        if at == len(past):
            return self._now(path)
        return past[at - 1][1] if at else None

    def _now(self, path: str) -> Seen | None:
        node = self.nodes.get(path)
        return None if node is None else Seen(node.data, self.stat(node), sorted(node.children))

    def _do(self, session: Session | None, operation: Operation, undo: list[Any], fired: list[Any]) -> Any:
        path = operation.path
        if isinstance(operation, t.Create):
            return self._create(session, operation, undo, fired)
        node = self.nodes.get(path)
        if node is None:
            raise t.NoNode(path)
        if operation.version not in (t.ANY_VERSION, node.version):
            raise t.BadVersion(path)
        if isinstance(operation, t.Set):
            self._save(node, undo)
            node.data, node.version, node.mzxid = operation.data, node.version + 1, self.zxid
            fired.append((t.CHANGED, path))
            return self.stat(node)
        if isinstance(operation, t.Delete):
            if node.children:
                raise t.NotEmpty(path)
            above, name = self.nodes[t.parent(path)], path.rpartition("/")[2]
            self._save(above, undo)
            undo.append(lambda: (self.nodes.__setitem__(path, node), above.children.__setitem__(name, None)))
            del self.nodes[path], above.children[name]
            above.cversion, above.pzxid = above.cversion + 1, self.zxid
            fired += [(t.DELETED, path), (t.CHILDREN, t.parent(path))]
        return None

    def _create(self, session: Session | None, operation: t.Create, undo: list[Any], fired: list[Any]) -> str:
        above = self.nodes.get(t.parent(operation.path))
        if above is None:
            raise t.NoNode(operation.path)
        if above.owner:
            raise t.NoChildrenForEphemerals(operation.path)
        path = operation.path + (f"{above.made:010d}" if operation.sequence else "")
        if path in self.nodes:
            raise t.NodeExists(path)
        self._save(above, undo)
        name = path.rpartition("/")[2]
        undo.append(lambda: (self.nodes.pop(path), above.children.pop(name)))
        owner = session.session if operation.ephemeral and session is not None else 0
        self.nodes[path] = Node(operation.data, self.zxid, owner)
        above.children[name] = None
        above.cversion, above.made, above.pzxid = above.cversion + 1, above.made + 1, self.zxid
        fired += [(t.CREATED, path), (t.CHILDREN, t.parent(path))]
        return path

    def _save(self, node: Node, undo: list[Any]) -> None:
        former = node.data, node.version, node.cversion, node.made, node.mzxid, node.pzxid

        def restore() -> None:
            node.data, node.version, node.cversion, node.made, node.mzxid, node.pzxid = former

        undo.append(restore)

    def stat(self, node: Node) -> Stat:
        return Stat(
            node.czxid, node.mzxid, 0, 0, node.version, node.cversion, node.owner, len(node.data),
            len(node.children), node.pzxid,
        )  # fmt: skip
