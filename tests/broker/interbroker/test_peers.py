"""Connections to other brokers over real sockets: requests, their order, and the detection of dead brokers."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from odradek.broker.interbroker import connection
from odradek.broker.interbroker.link_security import LinkSecurity
from odradek.broker.interbroker.peers import REACHED, REFUSED, Peer, PeerPool

from ...cluster.chaos.network import Network
from ...harness.process import refusing_socket

OTHER = 7
TURN_MS = 2


class PlayedBroker:
    """Echoes each request, unless it is `silent`; `heard` has the requests of each connection."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.silent = self.curt = False  # curt: closes accepted connections
        self.heard: list[list[bytes]] = []
        self._listener = socket.create_server((host, 0))
        self._listener.setblocking(False)
        self.address = self._listener.getsockname()[:2]
        self._open: list[tuple[int, socket.socket, bytearray]] = []

    def serve(self) -> None:
        """Handle all pending input."""
        with contextlib.suppress(OSError):
            self._accept()
        for number, sock, buffer in self._open:
            with contextlib.suppress(OSError):
                buffer += sock.recv(1 << 16)
            self._hear(number, sock, buffer)

    def _accept(self) -> None:
        sock = self._listener.accept()[0]
        sock.setblocking(False)
        self._open.append((len(self.heard), sock, bytearray()))
        self.heard.append([])
        if self.curt:
            self.hang_up()

    def _hear(self, number: int, sock: socket.socket, buffer: bytearray) -> None:
        while len(buffer) >= 4 and len(buffer) >= (end := 4 + struct.unpack_from(">i", buffer)[0]):
            frame = bytes(buffer[:end])
            del buffer[:end]
            self.heard[number].append(frame[8:])
            if not self.silent:
                sock.sendall(frame)

    def hang_up(self) -> None:
        """Close all connections."""
        for _, sock, _ in self._open:
            sock.close()
        self._open.clear()

    def die(self) -> None:
        """Close all sockets, as the kernel does after a death."""
        self._listener.close()
        self.hang_up()


class PlayedClock:
    """Advances by TURN_MS with each turn of the loop, however long the machine takes for one."""

    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        """Replaces connection._now_ms; never zero, which means at once."""
        return 1_000_000 + self.ms


class Desk:
    """The controller's loop, and the events of one peer."""

    def __init__(
        self, timeout_ms: int = 30_000, clock: PlayedClock | None = None, security: LinkSecurity | None = None
    ) -> None:
        """Without a `clock`, real time is used."""
        self.clock = clock
        self.told: list[str] = []
        self.answers: list[bytes] = []
        self.played: list[PlayedBroker] = []
        self._epoll = select.epoll()
        self._watched: dict[int, Callable[[int], None]] = {}
        self.switchboard = PeerPool(self, timeout_ms, security)
        self.peer: Peer

    def watch(self, fd: int, events: int, ready: Callable[[int], None]) -> None:
        """See peers.Sources."""
        (self._epoll.modify if fd in self._watched else self._epoll.register)(fd, events)
        self._watched[fd] = ready

    def unwatch(self, fd: int) -> None:
        """See peers.Sources."""
        self._epoll.unregister(fd)
        del self._watched[fd]

    def play(self, **given: Any) -> PlayedBroker:
        """Start a played broker."""
        self.played.append(PlayedBroker(**given))
        return self.played[-1]

    def connect(self, host: str, port: int) -> Peer:
        """Create the peer of this test."""
        self.peer = self.switchboard.connect(OTHER, (host, port), lambda broker, standing: self.told.append(standing))
        return self.peer

    def send(self, name: bytes) -> None:
        """Send a request to the peer."""
        size = 4 + len(name)
        self.peer.send(
            lambda number: struct.pack(">ii", size, number) + name, lambda frame: self.answers.append(frame[4:])
        )

    def turn_until(self, check: Callable[[], Any], what: str, seconds: float = 10) -> None:
        """Turn the loop until the check succeeds."""
        deadline = time.monotonic() + seconds
        while not check():
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
            self._turn()

    def turn_for(self, ms: int) -> None:
        """Turn the loop for some milliseconds of the played clock."""
        for _ in range(ms // TURN_MS):
            self._turn()

    def _turn(self) -> None:
        for fd, events in self._epoll.poll(TURN_MS / 1000):
            if fd in self._watched:
                self._watched[fd](events)
        if self.clock:
            self.clock.ms += TURN_MS
        now = connection._now_ms() / 1000
        if now >= self.peer.due:
            self.peer.tick(now)
        for played in self.played:
            played.serve()

    def close(self) -> None:
        self.peer.close()
        self.switchboard.close()
        for played in self.played:
            played.die()
        assert not self._watched, "a file descriptor is still watched"
        self._epoll.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> PlayedClock:
    made = PlayedClock()
    monkeypatch.setattr(connection, "_now_ms", made.now_ms)
    return made


@pytest.fixture
def desk(clock: PlayedClock) -> Iterator[Desk]:
    made = Desk(clock=clock)
    yield made
    made.close()


@pytest.fixture
def impatient(clock: PlayedClock) -> Iterator[Desk]:
    """A desk with a request timeout of 300 ms."""
    made = Desk(timeout_ms=300, clock=clock)
    yield made
    made.close()


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """See harness.process.refusing_socket."""
    with refusing_socket() as made:
        yield made


def port_of(sock: socket.socket) -> int:
    return sock.getsockname()[1]


# -- requests


def test_requests_are_sent_one_after_the_other(desk: Desk) -> None:
    other = desk.play()
    other.silent = True
    desk.connect(*other.address)
    for name in (b"a", b"b", b"c"):
        desk.send(name)
    desk.turn_until(lambda: desk.told == [REACHED] and other.heard == [[b"a"]], "the first request")
    desk.turn_for(100)
    assert other.heard == [[b"a"]] and not desk.peer.idle, "the next request must wait for the response"
    other.silent = False
    other.hang_up()
    desk.turn_until(lambda: desk.peer.idle, "all answers")
    assert other.heard == [[b"a"], [b"a", b"b", b"c"]]
    assert desk.answers == [b"a", b"b", b"c"]


def test_a_request_is_repeated_after_the_timeout(impatient: Desk, clock: PlayedClock) -> None:
    other = impatient.play()
    other.silent = True
    impatient.connect(*other.address)
    impatient.send(b"a")
    impatient.turn_until(lambda: len(other.heard) == 3, "two more requests", 30)  # the timeout is 30 s by default
    assert clock.ms >= 600
    other.silent = False
    impatient.send(b"b")
    impatient.turn_until(lambda: impatient.peer.idle, "all answers")
    assert other.heard[:2] == [[b"a"], [b"a"]] and other.heard[-1] == [b"a", b"b"]
    assert impatient.answers == [b"a", b"b"]
    assert impatient.told == [REACHED], "a silent broker counts as dead"


def test_peer_that_accepts_nothing_is_retried(impatient: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """Such as behind a network that drops all packets."""
    with socket.socket() as full, contextlib.ExitStack() as waiting:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting.enter_context(socket.create_connection(full.getsockname()))  # the backlog is full
        impatient.connect(*full.getsockname())
        impatient.send(b"a")
        impatient.turn_until(lambda: "no connection within 300 ms" in caplog.text, "the timeout")
        impatient.turn_for(700)
        assert impatient.told == []
        full.accept()[0].close()
        impatient.turn_until(lambda: impatient.told == [REACHED], "the connection")


def test_response_to_a_forgotten_request_is_dropped(desk: Desk) -> None:
    other = desk.play()
    desk.connect(*other.address)
    desk.turn_until(lambda: desk.told == [REACHED], "the connection")
    desk.send(b"a")
    desk.peer.forget()
    desk.send(b"b")
    desk.turn_until(lambda: desk.peer.idle, "the answer")
    assert (desk.answers, other.heard) == ([b"b"], [[b"a", b"b"]])


# -- reachability


def test_a_dead_broker_is_known_at_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "SETTLED_MS", 100)
    monkeypatch.setattr(connection, "AGAIN_MS", 3_600_000)
    other = desk.play()
    desk.connect(*other.address)
    desk.turn_until(lambda: desk.told == [REACHED], "the connection")
    desk.turn_for(200)
    other.die()
    desk.turn_until(lambda: desk.told == [REACHED, REFUSED], "the refusal")


def test_restarted_broker_is_reached_again(desk: Desk, silent: socket.socket) -> None:
    desk.connect("127.0.0.1", port_of(silent))
    desk.turn_until(lambda: desk.told == [REFUSED], "the refusal")
    silent.listen()
    desk.turn_until(lambda: desk.told == [REFUSED, REACHED], "the connection")


def test_late_broker_is_reached_soon(desk: Desk, silent: socket.socket) -> None:
    """A registered broker has no clients before it has received metadata from the controller."""
    desk.connect("127.0.0.1", port_of(silent))
    desk.turn_for(1400)  # 20 + 40 + … + 640 ms is the sum of doubled pauses: the next pause would exceed a second
    assert desk.peer.link._backoff_ms < 400
    silent.listen()
    desk.turn_until(lambda: desk.told == [REFUSED, REACHED], "the connection")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_unreachable_broker_is_retried_with_backoff(
    desk: Desk, clock: PlayedClock, silent: socket.socket, host: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", connection.__name__)
    desk.connect(host, port_of(silent))
    desk.turn_until(lambda: caplog.text.count("Connection refused") >= 8, "8 attempts", 30)
    assert clock.ms >= 20 + 40 + 80 + 4 * 100
    assert desk.told == [REFUSED]


def test_closing_broker_is_retried_with_backoff(desk: Desk, clock: PlayedClock) -> None:
    other = desk.play()
    other.curt = True
    desk.connect(*other.address)
    desk.turn_until(lambda: len(other.heard) >= 8, "8 attempts", 30)
    assert clock.ms >= 20 + 40 + 80 + 4 * 100


class TwoAddresses:
    """Resolves a host to two addresses of which only the second has a listener."""

    def __init__(self, *ports: int) -> None:
        self._ports = ports

    def resolve(self, host: str, port: int) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port)) for port in self._ports]


def test_a_host_is_dead_when_all_its_addresses_refuse(desk: Desk, silent: socket.socket) -> None:
    other, limits = desk.play(), connection.LinkLimits(1 << 16, 1 << 20, 1000, -1)
    resolver: Any = TwoAddresses(port_of(silent), other.address[1])
    desk.peer = Peer(OTHER, ("two", 1), desk, resolver, limits, lambda _, standing: desk.told.append(standing))
    desk.turn_until(lambda: desk.told, "some standing")
    assert desk.told == [REACHED]
    other.die()
    desk.turn_until(lambda: desk.told == [REACHED, REFUSED], "both refuse")


# -- a network


@pytest.mark.live
def test_a_network_that_comes_back_is_noticed() -> None:
    """TCP retransmission alone would wait as long again as the network was away."""
    network = Network(2)
    try:
        with network.at(1):
            other = PlayedBroker(network.address(1))
        with network.at(0):
            _goes_and_comes(network, other)
    finally:
        network.close()


def _goes_and_comes(network: Network, other: PlayedBroker) -> None:
    desk = Desk()
    desk.played.append(other)
    desk.connect(*other.address)
    desk.turn_until(lambda: desk.told == [REACHED], "the connection")
    with network.cut(0, network.address(1)):
        desk.send(b"a")
        desk.turn_until(lambda: not desk.peer.link.up, "the silence", 60)
        desk.turn_until(lambda: desk.peer.link._attempts >= 3, "new attempts, which are given up as well", 60)
    desk.turn_until(lambda: desk.answers == [b"a"], "the answer", 60)
    assert desk.told == [REACHED]
    desk.close()
