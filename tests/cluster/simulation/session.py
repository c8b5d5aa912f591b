"""A session with ZooKeeper (cluster.tree.tree.Tree): its connection, its watches, its end.

A call may take time, in which other processes run; it may find no connection, or lose it after it was done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from odradek.cluster.tree import tree as t
from odradek.cluster.tree.tree import Event, Operation, Stat, Tree, TreeError, TreeUnavailable

from .world import Killed

if TYPE_CHECKING:
    from .tree import Seen, ZooKeeper

SESSION_S = 2.0

Watch = tuple[str, bool]  # a path; whether its children are meant


class Session(Tree):
    """One broker's session and connection."""

    def __init__(self, servers: ZooKeeper, number: int, broker: int, ring: Callable[[], None]) -> None:
        self.broker = broker
        self.watches: set[Watch] = set()
        self.cut = False  # the broker does not reach ZooKeeper
        self._servers = servers
        self._world = servers.world
        self._number = number
        self._ring = ring
        self._connected = True
        self._closed = False
        self._lost_at = 0.0
        self._seen = servers.zxid  # the last transaction that its server has
        self._told = len(servers.fired)  # of `fired`, what its watches have seen
        self._events: deque[Event] = deque([Event(t.CONNECTED, "/")])
        self._world.after(0.1, None, self._beat)

    # -- the connection

    @property
    def session(self) -> int:
        return self._number

    credentials = None

    @property
    def connected(self) -> bool:
        """Whether calls can be made."""
        return self._connected

    @property
    def lasts(self) -> bool:
        """Whether the servers still have the session."""
        return self._number in self._servers.sessions

    @property
    def goes_on(self) -> bool:
        """Whether another process can take it over, or one in its place."""
        return not self._closed

    def resumed(self, ring: Callable[[], None]) -> None:
        """Another process takes over this session, with watches of its own."""
        self._ring, self._events = ring, deque([Event(t.CONNECTED, "/")] if self._connected else [])
        self.watches = set()

    def disconnect(self) -> None:
        """The connection is lost, and the watches with it."""
        if self._connected and not self._closed:
            self._connected, self._lost_at = False, self._world.now
            self.watches = set()
            self.tell(Event(t.DISCONNECTED, "/"))

    def _beat(self) -> None:
        """Now and then: the session expires, or the client reconnects."""
        if self._closed:
            return
        servers, world = self._servers, self._world
        reachable = servers.up and not self.cut
        if self._connected and not reachable:
            self.disconnect()
        elif not self._connected:
            if servers.up and self.lasts and world.now - self._lost_at > SESSION_S:
                servers.expire(self)
            if reachable and world.chance(0.6):
                self._reconnect()
        elif not self.lasts:
            self.disconnect()
        world.after(world.between(0.05, 0.3), None, self._beat)

    def _reconnect(self) -> None:
        if not self.lasts:
            self._servers._last += 1
            self._number = self._servers._last
            self._servers.sessions[self._number] = self
            self.see(self._servers.zxid)
        self._connected = True
        self._world.say(f"broker {self.broker}: connected to zookeeper, session {self._number}")
        self.tell(Event(t.CONNECTED, "/"))

    def see(self, zxid: int) -> None:
        """Its server has all transactions up to that one: watches fire."""
        self._seen = max(self._seen, zxid)
        fired = self._servers.fired
        while self._told < len(fired) and fired[self._told][0] <= self._seen:
            self._told += 1
            for kind, path in fired[self._told - 1][1]:
                self._fire(kind, path)

    def _fire(self, kind: str, path: str) -> None:
        hit = {(path, kind == t.CHILDREN)} | ({(path, True)} if kind == t.DELETED else set())
        if hit & self.watches:
            self.watches -= hit
            self.tell(Event(kind, path))

    def tell(self, event: Event) -> None:
        """Send an event to the client."""
        self._events.append(event)
        self._ring()

    def vanish(self) -> None:
        """Its process is gone: the session expires."""
        self._closed = True

        def end() -> None:
            if self._servers.up:
                self._servers.expire(self)
            else:
                self._world.after(0.5, None, end)

        self._ring = lambda: None
        self._world.after(SESSION_S + self._world.between(0, 0.5), None, end)

    # -- calls

    def _call(self, path: str, action: Callable[[], Any]) -> Any:
        world = self._world
        if not self._connected:
            raise TreeUnavailable(f"{path}: no connection")
        world.elapse(self._pause())
        self._check(path)
        if not self.lasts:
            self.disconnect()
            self._check(path)
        result, error = None, None
        try:
            result = action()
        except TreeError as refusal:
            error = refusal
        world.elapse(self._pause())
        if not self._connected or self._closed:
            raise TreeUnavailable(f"{path}: the connection was lost meanwhile")
        if error is not None:
            raise error
        return result

    def _pause(self) -> float:
        world = self._world
        return world.between(0, self._servers.slow) if world.chance(0.25) else 0.0002

    def _check(self, path: str) -> None:
        if self._closed:
            raise Killed
        if not self._connected:
            raise TreeUnavailable(f"{path}: the connection was lost before")

    def multi(self, operations: Sequence[Operation]) -> list[str | Stat | None]:
        for operation in operations:
            t.check_path(operation.path)

        def write() -> list[str | Stat | None]:
            self._world.effect()
            self._servers.under_way(self, operations)
            results = self._servers.apply(self, operations)
            self._world.effect()
            return results

        return self._call(operations[0].path if operations else "/", write)

    def each(self, transactions: Sequence[Sequence[Operation]]) -> list[list[str | Stat | None] | TreeError]:
        if not self._connected:
            return [TreeUnavailable("/") for _ in transactions]
        return super().each(transactions)

    def get(self, path: str, watch: bool = False) -> tuple[bytes, Stat]:
        return self._call(path, lambda: self._get(path, watch))

    def latest(self, path: str) -> tuple[bytes, Stat]:
        def synced() -> tuple[bytes, Stat]:
            self.see(self._servers.zxid)
            return self._get(path, False)

        return self._call(path, synced)

    def _get(self, path: str, watch: bool) -> tuple[bytes, Stat]:
        node = self._look(path)
        if watch:
            self.watches.add((path, False))
        return node.data, node.stat

    def _look(self, path: str) -> Seen:
        node = self._servers.look(path, self._seen)
        if node is None:
            raise t.NoNode(path)
        return node

    def get_many(self, paths: Sequence[str], watch: bool = False) -> list[tuple[bytes, Stat] | None]:
        return self._call("/", lambda: [self._find(path, watch) for path in paths])

    def _find(self, path: str, watch: bool) -> tuple[bytes, Stat] | None:
        try:
            return self._get(path, watch)
        except t.NoNode:
            return None

    def exists(self, path: str, watch: bool = False) -> Stat | None:
        def look() -> Stat | None:
            if watch:
                self.watches.add((path, False))
            node = self._servers.look(path, self._seen)
            return None if node is None else node.stat

        return self._call(path, look)

    def children(self, path: str, watch: bool = False) -> list[str]:
        def look() -> list[str]:
            node = self._look(path)
            if watch:
                self.watches.add((path, True))
            return list(node.children)

        return self._call(path, look)

    def poll(self) -> list[Event]:
        events, self._events = list(self._events), deque()
        return events

    def fileno(self) -> int:
        return -self.broker - 2

    def close(self) -> None:
        if self._servers.up and not self.cut:
            self._closed = True
            self._ring = lambda: None
            self._servers.expire(self)
        elif not self._closed:
            self.vanish()
