"""ZooKeeper's servers: one tree for all sessions; watches see its changes, ephemeral nodes go with their session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from odradek.cluster import tree as t
from odradek.cluster.tree import Event, Operation, Stat, TreeError, TreeUnavailable

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


class ZooKeeper:
    """The servers. `written(session, operation, before)` is called for each write that is done."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.up = True
        self.slow = 0.004  # seconds that a call may take
        self.zxid = 0
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0)}
        self.sessions: dict[int, Session] = {}
        self.written: Callable[[Session | None, Operation, bytes | None], None] = lambda *_: None
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
        """Do all or raise the first refusal."""
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
            raise
        for operation, before in zip(operations, befores, strict=True):
            self.written(session, operation, before)
        for kind, path in fired:
            self._fire(kind, path)
        return results

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

    def _fire(self, kind: str, path: str) -> None:
        hit = {(path, kind == t.CHILDREN)} | ({(path, True)} if kind == t.DELETED else set())
        for session in list(self.sessions.values()):
            if hit & session.watches:
                session.watches -= hit
                session.tell(Event(kind, path))
