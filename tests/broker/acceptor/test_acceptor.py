"""A real acceptor process; the test plays the workers over `acceptor.sock`."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from odradek.broker import config as configuration
from odradek.ipc import channel, handoff
from odradek.ipc.channel import Channel

from ...harness.process import readable, wait_until
from ..supervisor.test_supervisor import Standin

pytestmark = pytest.mark.live

SECONDS = 15


class FakeWorker:
    """The worker's end of a registration."""

    def __init__(self, run_dir: Path, worker_id: int) -> None:
        self.link: Channel = channel.connect(run_dir / "acceptor.sock")
        self.link.send(handoff.register(worker_id))
        self.sockets: list[tuple[handoff.Client, socket.socket]] = []
        self.ended = False

    def collect(self, count: int) -> list[tuple[handoff.Client, socket.socket]]:
        """Wait until the worker has received `count` connections in all."""
        wait_until(lambda: self._receive() >= count, SECONDS, f"the worker has {count} connections")
        return self.sockets

    def wait_end(self) -> None:
        wait_until(lambda: self._receive() >= 0 and self.ended, SECONDS, "the acceptor answers DRAIN")

    def settle(self) -> int:
        """The number of connections, after all messages sent so far have arrived."""
        self.link.send(handoff.DRAIN)
        self.wait_end()
        return len(self.sockets)

    def _receive(self) -> int:
        """Receive pending messages; returns the number of connections."""
        if not readable(self.link, 0.05):
            return len(self.sockets)
        messages = self.link.receive()
        fds = self.link.take_fds()
        for message in messages:
            if message[:1] == handoff.HANDOFF:
                self.sockets.append((handoff.client(message), socket.socket(fileno=fds.pop(0))))
            self.ended = self.ended or message[:1] == handoff.END
        return len(self.sockets)

    def close(self) -> None:
        self.link.close()
        for _, sock in self.sockets:
            sock.close()


class Acceptor:
    """A stand-in broker with a real acceptor, and the clients and workers of a test."""

    def __init__(self, standin: Standin) -> None:
        self.standin = standin
        self.open: list[FakeWorker | socket.socket] = []

    def start(self, *overrides: str) -> Acceptor:
        self.standin.start(*overrides)
        self.endpoints = configuration.saved(self.standin.run_dir).listeners
        return self

    def worker(self, worker_id: int) -> FakeWorker:
        self.open.append(made := FakeWorker(self.standin.run_dir, worker_id))
        return made

    def client(self, listener: int = 0, source: str = "") -> socket.socket:
        endpoint = self.endpoints[listener]
        made = socket.create_connection((endpoint.host, endpoint.port), SECONDS, (source, 0) if source else None)
        self.open.append(made)
        return made


@pytest.fixture
def acceptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Acceptor]:
    monkeypatch.setenv("STANDIN_REAL", "acceptor")
    standin = Standin(tmp_path)
    made = Acceptor(standin)
    yield made
    for one in made.open:
        one.close()
    standin.close()


def test_least_loaded_and_named(acceptor: Acceptor) -> None:
    acceptor.start(
        "listeners=PLAINTEXT://127.0.0.1:0,B://[::1]:0",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
    )
    one, two = acceptor.worker(0), acceptor.worker(1)
    clients = [acceptor.client() for _ in range(4)]
    one.collect(2), two.collect(2)
    for client in clients:
        client.sendall(client.getsockname()[1].to_bytes(2, "big"))
    for info, sock in [*one.sockets, *two.sockets]:
        assert (info.listener, info.host) == ("PLAINTEXT", "127.0.0.1")
        assert not os.get_blocking(sock.fileno())
        sock.setblocking(True)
        assert sock.recv(2) == info.port.to_bytes(2, "big")
    one.link.send(handoff.closed("PLAINTEXT", "127.0.0.1"))
    one.link.send(handoff.closed("PLAINTEXT", "127.0.0.1"))
    acceptor.client(1), acceptor.client(1)
    assert [info.host for info, _ in one.collect(4)[2:]] == ["::1", "::1"]
    assert one.sockets[2][0].listener == "B"
    wait_until(lambda: acceptor.standin.processes()["acceptor"]["connections"] == 4, SECONDS)
    assert acceptor.standin.processes()["acceptor"]["handoffs"] == 6


def test_clients_wait_for_a_worker(acceptor: Acceptor) -> None:
    acceptor.start()
    clients = [acceptor.client() for _ in range(3)]
    clients[0].sendall(b"early")
    worker = acceptor.worker(0)
    found = {info.port: sock for info, sock in worker.collect(3)}
    sock = found[clients[0].getsockname()[1]]
    sock.setblocking(True)
    assert sock.recv(5) == b"early"


def test_a_draining_worker_gets_no_more_and_gives_back(acceptor: Acceptor) -> None:
    acceptor.start()
    leaves = acceptor.worker(1)
    clients = [acceptor.client(), acceptor.client()]
    leaves.collect(2)
    stays = acceptor.worker(0)
    leaves.link.send(handoff.DRAIN)
    leaves.wait_end()
    for info, sock in leaves.sockets:
        leaves.link.send(handoff.back(info), [sock.fileno()])
    for _, sock in stays.collect(2):
        sock.setblocking(True)
        sock.sendall(b"hello")
    assert [client.recv(5) for client in clients] == [b"hello", b"hello"]
    acceptor.client()
    stays.collect(3)
    assert len(leaves.sockets) == 2


def test_a_dead_workers_connections_are_forgotten(acceptor: Acceptor) -> None:
    acceptor.start("max.connections.per.ip=2")
    dies = acceptor.worker(0)
    acceptor.client(), acceptor.client()
    dies.collect(2)
    dies.close()
    lives = acceptor.worker(1)
    wait_until(lambda: acceptor.standin.processes()["acceptor"]["connections"] == 0, SECONDS)
    acceptor.client()
    lives.collect(1)


def test_limit_by_address(acceptor: Acceptor) -> None:
    acceptor.start("max.connections.per.ip=1", "max.connections.per.ip.overrides=127.0.0.2:2")
    worker = acceptor.worker(0)
    acceptor.client()
    worker.collect(1)
    for _ in range(20):
        assert acceptor.client().recv(1) == b""
    assert 1 <= acceptor.standin.text.count("max.connections.per.ip reached") <= 2, "one line each minute"
    acceptor.client(source="127.0.0.2"), acceptor.client(source="127.0.0.2")
    worker.collect(3)
    worker.link.send(handoff.closed("PLAINTEXT", "127.0.0.1"))
    acceptor.client()
    worker.collect(4)


def test_connection_lost_on_its_way_back_is_not_counted(acceptor: Acceptor) -> None:
    """The process has no free descriptor for the connection, so it is closed."""
    acceptor.start("max.connections.per.ip=1")
    worker = acceptor.worker(0)
    acceptor.client()
    [(info, _)] = worker.collect(1)
    worker.link.send(handoff.back(info))
    worker.settle()
    other = acceptor.worker(1)
    acceptor.client()
    other.collect(1)


def test_limit_of_all(acceptor: Acceptor) -> None:
    acceptor.start("max.connections=2")
    worker = acceptor.worker(0)
    for _ in range(3):
        acceptor.client()
    worker.collect(2)
    wait_until(lambda: acceptor.standin.processes()["acceptor"]["connections"] == 2, SECONDS)
    assert len(worker.sockets) == 2  # the third connection waits in the backlog
    worker.link.send(handoff.closed("PLAINTEXT", "127.0.0.1"))
    worker.collect(3)


def test_limit_of_one_listener(acceptor: Acceptor) -> None:
    """Its clients wait, clients of the other listener do not."""
    acceptor.start(
        "listeners=PLAINTEXT://127.0.0.1:0,B://127.0.0.1:0",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
        "listener.name.b.max.connections=1",
    )
    worker = acceptor.worker(0)
    for listener in (1, 1, 0):
        acceptor.client(listener)
    worker.collect(2)
    assert sorted(client.listener for client, _ in worker.sockets) == ["B", "PLAINTEXT"]
    worker.link.send(handoff.closed("B", "127.0.0.1"))
    worker.collect(3)


def test_connections_survive_the_acceptor(acceptor: Acceptor) -> None:
    acceptor.start("max.connections.per.ip=2")
    worker = acceptor.worker(0)
    client = acceptor.client()
    _, sock = worker.collect(1)[0]
    killed = _kill(acceptor.standin)
    during = acceptor.client()  # no process accepts now; the supervisor keeps the socket open
    wait_until(lambda: _acceptor_pid(acceptor.standin) not in (0, killed), SECONDS)
    wait_until(lambda: acceptor.standin.processes()["acceptor"]["state"] == "running", SECONDS)
    again = acceptor.worker(0)
    again.link.send(handoff.opened("PLAINTEXT", "127.0.0.1"))
    again.collect(1)
    sock.setblocking(True)
    sock.sendall(b"a")
    assert client.recv(1) == b"a"
    again.sockets[0][1].setblocking(True)
    again.sockets[0][1].sendall(b"b")
    assert during.recv(1) == b"b"
    assert acceptor.client().recv(1) == b""  # the old connection counts towards the limit


def test_out_of_descriptors(acceptor: Acceptor) -> None:
    """The acceptor waits and continues; no connection is lost and no loop spins."""
    import resource

    acceptor.start()
    worker = acceptor.worker(0)
    acceptor.client()
    worker.collect(1)
    pid = _acceptor_pid(acceptor.standin)
    hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
    highest = max(map(int, os.listdir(f"/proc/{pid}/fd")))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest, hard))
    client = acceptor.client()
    client.sendall(b"x")
    wait_until(lambda: "cannot accept connections" in acceptor.standin.text, SECONDS)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))
    _, sock = worker.collect(2)[1]
    sock.setblocking(True)
    assert sock.recv(1) == b"x"
    assert acceptor.standin.text.count("cannot accept connections") == 1


def _acceptor_pid(standin: Standin) -> int:
    row = standin.processes()["acceptor"]
    return int(row["pid"]) if row["alive"] else 0


def _kill(standin: Standin) -> int:
    pid = _acceptor_pid(standin)
    os.kill(pid, 9)
    return pid


def test_workers_before_clients(acceptor: Acceptor) -> None:
    """The restarted acceptor must know a worker that registered in between before it passes clients on."""
    acceptor.start()
    one = acceptor.worker(0)
    clients = [acceptor.client()]
    one.collect(1)
    pid: int = acceptor.standin.processes()["acceptor"]["pid"]
    held = psutil.Process(pid)
    wait_until(lambda: held.status() == psutil.STATUS_SLEEPING, SECONDS, "the acceptor waits for connections")
    held.suspend()
    wait_until(lambda: held.status() == psutil.STATUS_STOPPED, SECONDS, "the acceptor is stopped")
    two = acceptor.worker(1)
    clients += [acceptor.client() for _ in range(3)]
    held.resume()
    one.collect(2), two.collect(2)
    assert len(clients) == len(one.sockets) + len(two.sockets)
