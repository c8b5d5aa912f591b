"""Connections between brokers: ordered while they last; delayed, cut, lost; refused, rightly or not.

Messages in flight when a connection is lost are lost, or delivered late, after those of the next one: the receiver had
them in a buffer already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from .world import Process, World

UP, DOWN, VANISHED = "up", "down", "vanished"


class End:
    """One end of a connection: its callbacks."""

    def __init__(self, process: Process, take: Callable[[Any], None], lost: Callable[[], None]) -> None:
        self.process = process
        self.take = take
        self.lost = lost


class Connection:
    """A connection between a client's broker and a server's."""

    def __init__(self, network: Network, client: int, server: int, kind: str, end: End) -> None:
        self.network = network
        self.kind = kind
        self.brokers = (client, server)
        self.ends: list[End | None] = [end, None]
        self.open = True
        self.waits = 0  # answers that the client waits for
        self._under_way: list[dict[int, Any]] = [{}, {}]  # to the client, to the server
        self._last = [0.0, 0.0]
        self._number = 0

    @property
    def under_way(self) -> int:
        """How many messages are on their way to the server."""
        return len(self._under_way[True])

    def send(self, to_server: bool, message: Any) -> None:
        """Send a message, behind the earlier ones."""
        self.network.world.effect()
        if not self.open:
            return
        if to_server and self.kind == "peer":
            self.network.orders.append((self.brokers[1], message))
        self._number += 1
        number = self._number
        self._under_way[to_server][number] = message
        world = self.network.world
        at = max(self._last[to_server], world.now + self.network.latency())
        self._last[to_server] = at
        world.after(at - world.now, None, lambda: self._arrive(to_server, number))

    def _arrive(self, to_server: bool, number: int) -> None:
        if number not in self._under_way[to_server]:
            return
        network = self.network
        if network.is_cut(*self._way(to_server)):
            network.world.after(0.1, None, lambda: self._arrive(to_server, number))
            return
        if min(self._under_way[to_server]) < number:  # an earlier message is delayed
            network.world.after(0.01, None, lambda: self._arrive(to_server, number))
            return
        message = self._under_way[to_server].pop(number)
        self._deliver(to_server, message, 0.0)

    def _way(self, to_server: bool) -> tuple[int, int]:
        client, server = self.brokers
        return (client, server) if to_server else (server, client)

    def _deliver(self, to_server: bool, message: Any, delay: float) -> None:
        end = self.ends[int(to_server)]
        if end is not None:
            self.network.world.after(delay, end.process, lambda: end.take(message))

    def close(self, by_server: bool = False) -> None:
        """Close it in order: sent messages still arrive, then EOF."""
        if not self.open:
            return
        self.open = False
        self.network.forget(self)
        under_way = list(self._under_way[not by_server].values())
        other = self.ends[int(not by_server)]
        self._under_way = [{}, {}]
        world, network = self.network.world, self.network

        def end() -> None:
            if network.is_cut(*self._way(not by_server)):
                world.after(0.1, None, end)
            elif other is not None:
                for message in under_way:
                    self._deliver(not by_server, message, 0.0)
                world.after(0.0, other.process, other.lost)

        world.after(network.latency(), None, end)

    def reset(self, silent: bool = False) -> None:
        """Both ends lose it; messages to the server may arrive late. `silent`: neither end notices."""
        if not self.open:
            return
        self.open = False
        network, world = self.network, self.network.world
        network.forget(self)
        for message in self._under_way[True].values():
            if not silent and world.chance(0.5):
                self._deliver(True, message, world.between(0, network.stray_s))
        self._under_way = [{}, {}]
        for end in self.ends:
            if end is not None and not silent:
                world.after(network.latency(), end.process, end.lost)


class Network:
    """Hosts, links and connections."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.usual = 0.001  # seconds that a message takes, at most
        self.slow = 0.0  # extra seconds for some, at most
        self.stray_s = 0.5
        self.hosts: dict[int, str] = {}
        self.refusing: dict[int, float] = {}  # brokers that run, but refuse connections until then
        self.cuts: set[tuple[int, int]] = set()  # sender, receiver
        self.accept: dict[int, Callable[[Connection, str], End | None]] = {}
        self.orders: deque[tuple[int, Any]] = deque(maxlen=300)  # what controllers have sent, and to whom
        self._connections: dict[Connection, None] = {}
        self._dangling: list[Connection] = []

    def latency(self) -> float:
        world = self.world
        if self.slow and world.chance(0.2):
            return world.between(0, self.slow)
        return world.between(0.0001, self.usual)

    def is_cut(self, sender: int, receiver: int) -> bool:
        return (sender, receiver) in self.cuts

    def _is_apart(self, one: int, other: int) -> bool:
        return self.is_cut(one, other) or self.is_cut(other, one)

    def connect(self, client: int, server: int, kind: str, end: End, outcome: Callable[[bool], None]) -> Connection:
        """Try to connect; `outcome(False)` when no process listens there, no outcome when messages are lost."""
        connection = Connection(self, client, server, kind, end)
        self._connections[connection] = None

        def arrive() -> None:
            if not connection.open:
                return
            if self._is_apart(client, server) or self.hosts.get(server, DOWN) == VANISHED:
                self.world.after(self.world.between(0.2, 1.0), None, arrive)
                return
            there = self.accept.get(server) if self.refusing.get(server, 0) <= self.world.now else None
            accepted = there(connection, kind) if there is not None and self.hosts[server] == UP else None
            connection.ends[1] = accepted
            if accepted is None:
                connection.open = False
                self.forget(connection)
            self.world.after(self.latency(), end.process, lambda: outcome(accepted is not None))

        self.world.after(self.latency(), None, arrive)
        return connection

    def forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)

    def of(self, broker: int) -> list[Connection]:
        """The connections of a broker."""
        return [one for one in self._connections if broker in one.brokers]

    def busy(self) -> list[Connection]:
        """Connections of controllers with requests in flight."""
        return [one for one in self._connections if one.kind == "peer" and one.under_way]

    def died(self, process: Process) -> None:
        """The kernel closes the connections of a process."""
        for one in list(self._connections):
            for side, end in enumerate(one.ends):
                if end is not None and end.process is process:
                    one.close(by_server=bool(side))

    def vanished(self, broker: int) -> None:
        """The host is gone; its peers notice only when it is back."""
        self.hosts[broker] = VANISHED
        for one in self.of(broker):
            self.forget(one)
            self._dangling.append(one)

    def back(self, broker: int) -> None:
        """The host is back, and knows of no connection."""
        self.hosts[broker] = DOWN
        dangling, self._dangling = self._dangling, []
        for one in dangling:
            if broker in one.brokers:
                one.reset()
            else:
                self._dangling.append(one)
