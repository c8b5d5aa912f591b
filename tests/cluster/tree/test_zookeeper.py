"""The tree in a real ZooKeeper: it behaves as the embedded one, and handles outages and sessions."""

from __future__ import annotations

import itertools
import math
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from odradek.cluster.tree import tree as t
from odradek.cluster.tree.zookeeper import ConnectError, NoAnswer, ZooKeeperTree

from ...harness.process import free_port, readable, wait_until
from ...harness.zookeeper import ZooKeeper
from .test_tree import PATHS, Model, TreeMachine

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

SESSION_MS = (
    10_000  # the maximum of a server with ticks of 500 ms; a busy machine misses heartbeats of shorter sessions
)
SHORT_MS = 2000
Open = Callable[..., ZooKeeperTree]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    running = ZooKeeper(tmp_path_factory.mktemp("zookeeper")).start()
    yield running
    running.kill()


@pytest.fixture
def chroot() -> str:
    """This test's path."""
    return f"/test-{time.monotonic_ns()}"


@pytest.fixture
def connect(server: ZooKeeper, chroot: str) -> Iterator[Open]:
    """Opens sessions below `chroot`."""
    opened: list[ZooKeeperTree] = []

    def connect(path: str = chroot, **options: Any) -> ZooKeeperTree:
        opened.append(ZooKeeperTree(server.connect + path, **({"session_ms": SESSION_MS} | options)))
        return opened[-1]

    yield connect
    for one in opened:
        one.close()


@pytest.fixture
def tree(connect: Open) -> ZooKeeperTree:
    opened = connect()
    assert readable(opened.fileno(), 20)
    assert opened.poll() == [t.Event(t.CONNECTED, "/")]
    return opened


class ZooKeeperMachine(TreeMachine):
    """The machine of the embedded tree, with ZooKeeper; another session sees the same state."""

    connect: str
    _chroots = itertools.count()

    @initialize()
    def open(self) -> None:
        self.hosts = f"{self.connect}/machine-{time.monotonic_ns()}-{next(self._chroots)}"
        self.model = Model()
        self._open()

    def _open(self) -> None:
        self.tree = ZooKeeperTree(self.hosts, SESSION_MS)  # type: ignore[assignment]  # the base class has an EmbeddedTree
        wait_until(self.tree.poll, 20, "to be connected")

    @rule()
    def poll(self) -> None:
        """Events come in order, shortly after the answers to the writes that caused them."""
        got: list[tuple[str, str]] = []
        wait_until(lambda: got.extend(self.tree.poll()) or len(got) >= len(self.model.events), 20, fail=False)
        assert [tuple(event) for event in got] == self.model.events
        self.model.events = []

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        self.tree.close()  # the nodes of a session that is not closed stay for a while: see below
        self.model.end_session()
        self.model.watched, self.model.events = set(), []
        self._open()

    @rule(paths=PATHS.flatmap(lambda one: PATHS.map(lambda two: [one, two])))
    def many(self, paths: list[str]) -> None:
        expected = [self.model.nodes.get(path) for path in paths]
        found = self.tree.get_many(paths)
        assert [one and one[0] for one in found] == [node and node[0] for node in expected]


def test_zookeeper_tree_follows_the_model(server: ZooKeeper) -> None:
    machine: Any = type("Machine", (ZooKeeperMachine,), {"connect": server.connect})
    run_state_machine_as_test(machine, settings=settings(max_examples=15, stateful_step_count=20))


def test_disconnected_session_loses_its_watches_and_keeps_its_nodes(tree: ZooKeeperTree, connect: Open) -> None:
    other = connect()
    tree.create("/mine", b"1", ephemeral=True)
    tree.get("/mine", watch=True)
    session = tree.session
    tree._client._connection._socket.shutdown(socket.SHUT_RDWR)
    assert _events(tree, 2) == [t.Event(t.DISCONNECTED, "/"), t.Event(t.CONNECTED, "/")]
    assert tree.session == session == tree.get("/mine")[1].owner
    other.set("/mine", b"2")
    assert tree.get("/mine")[0] == b"2"
    assert tree.poll() == []
    tree.get("/mine", watch=True)
    other.set("/mine", b"3")
    assert _events(tree, 1) == [t.Event(t.CHANGED, "/mine")]


def test_silent_server_is_unavailable_and_a_new_session_follows(connect: Open, server: ZooKeeper) -> None:
    tree = connect(session_ms=SHORT_MS)
    wait_until(lambda: _made(tree), 30, "a node")
    server.suspend()
    try:
        with pytest.raises(t.TreeUnavailable):
            tree.get("/mine")
        wait_until(lambda: tree.session == 0, 20, "the client to notice the lost connection")
        with pytest.raises(t.TreeUnavailable, match="not connected"):
            tree.set("/mine", b"1")
    finally:
        server.kill()
        time.sleep(SHORT_MS / 1000)  # longer than the session lasts
        server.start()  # a started server restarts the timeout of each session
    settled = lambda: tree.session and _owner(tree) in (0, tree.session)  # noqa: E731
    wait_until(settled, 30, "a session, and no node of another one")


def _made(tree: ZooKeeperTree) -> bool:
    """Whether the session has its /mine; not if so short a session has expired on a busy machine."""
    try:
        tree.create("/mine", ephemeral=True)
    except t.TreeUnavailable:
        return False
    except t.NodeExists:  # the former session's node still exists, or the answer to its creation was lost
        return tree.session != 0 and _owner(tree) == tree.session
    return True


def _owner(tree: ZooKeeperTree) -> int:
    """The session that owns /mine; 0 without such a node, -1 if that is unknown."""
    try:
        stat = tree.exists("/mine")
    except t.TreeUnavailable:
        return -1
    return stat.owner if stat else 0


def test_expired_session_is_replaced(tree: ZooKeeperTree, server: ZooKeeper) -> None:
    """A client with the same credentials ends the session, as a server does on its timeout."""
    from kazoo.client import KazooClient

    tree.create("/mine", ephemeral=True)
    former = tree._client.client_id
    thief = KazooClient(server.connect, client_id=former)
    thief.start()
    thief.stop()
    thief.close()
    wait_until(lambda: tree.session not in (0, former[0]), 20, "another session")
    assert _events(tree, 2) == [t.Event(t.DISCONNECTED, "/"), t.Event(t.CONNECTED, "/")]
    assert tree.exists("/mine") is None


@pytest.mark.parametrize(("asked", "given"), [(100, 1000), (SHORT_MS, SHORT_MS), (60_000, SESSION_MS)])
def test_server_bounds_the_session_timeout(connect: Open, asked: int, given: int) -> None:
    """A session lasts between two and twenty ticks of 500 ms."""
    assert connect(session_ms=asked).session_ms == given


def test_many_nodes_are_read_at_once(tree: ZooKeeperTree) -> None:
    tree.ensure("/many")
    for first in range(0, 2000, 500):
        tree.multi([t.Create(f"/many/{n}", b"%d" % n) for n in range(first, first + 500)])
    found = tree.get_many([f"/many/{n}" for n in range(2001)])
    assert [one and one[0] for one in found] == [*(b"%d" % n for n in range(2000)), None]


def test_acls_let_others_read_all_but_secrets_and_write_consumers(tree: ZooKeeperTree, connect: Open) -> None:
    """With `zookeeper.set.acl`, unauthenticated clients may read all but secrets, and write below /consumers."""
    private = connect(auth="digest:odradek:secret", set_acl=True)
    for path in ("/consumers/ours", "/brokers", "/config/users", "/config/brokers"):
        private.ensure(path)
    tree.create("/consumers/group")
    assert tree.get("/brokers")[0] == b""
    for refused in (lambda: tree.create("/brokers/ids"), lambda: tree.set("/brokers", b"x"),
                    lambda: tree.get("/config/users"), lambda: tree.get("/config/brokers"),
                    lambda: tree.set("/consumers/ours", b"x")):  # fmt: skip
        with pytest.raises(t.TreeUnavailable, match="NoAuth"):
            refused()
    again = connect(auth="digest:odradek:secret", set_acl=True)
    again.create("/config/users/me")


def test_error_names_the_missing_server_and_the_setting() -> None:
    port = free_port()
    with pytest.raises(ConnectError, match=rf"ZooKeeper at 127.0.0.1:{port} \(zookeeper.connect\) does not respond"):
        ZooKeeperTree(f"127.0.0.1:{port}", SESSION_MS, connect_ms=500)


_PROCESS = """
import os, sys
from odradek.cluster.tree.zookeeper import ConnectError, ZooKeeperTree
hosts, session_ms, connect_ms = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
number, password = sys.argv[4:] or (None, "")
former = (int(number), bytes.fromhex(password)) if number else None
try:
    tree = ZooKeeperTree(hosts, session_ms, connect_ms, former=former)
except ConnectError as error:
    sys.exit(str(error))
if former is None:
    tree.create("/mine", ephemeral=True)
print(tree.credentials[0], tree.credentials[1].hex(), flush=True)
os._exit(0)
"""


def _die(
    hosts: str, former: tuple[int, bytes] | None = None, connect_ms: int = 60_000
) -> tuple[int, bytes] | str:  # fmt: skip
    """The session that a dead process leaves, or the error if it got none."""
    words = [str(former[0]), former[1].hex()] if former else []
    command = [sys.executable, "-c", _PROCESS, hosts, str(SESSION_MS), str(connect_ms), *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if ended.returncode:
        return ended.stderr
    number, password = ended.stdout.split()
    return int(number), bytes.fromhex(password)


def test_connection_lost_at_once_is_retried(server: ZooKeeper, chroot: str) -> None:
    with closing(Flapping(server.port, cuts=2)) as flapping:
        left = _die(flapping.connect + chroot)
        assert isinstance(left, tuple) and flapping.cut == 2, left
        assert _die(flapping.connect + chroot, left) == left


def test_session_survives_an_unanswered_reconnection(server: ZooKeeper, chroot: str) -> None:
    """A starting server may take the first request of a connection without an answer."""
    with (
        closing(Forgetful(server.port)) as proxy,
        closing(ZooKeeperTree(proxy.connect + chroot, SESSION_MS)) as tree,
    ):
        session = tree.session
        _events(tree, 1)
        proxy.forgets = 1
        tree._client._connection._socket.shutdown(socket.SHUT_RDWR)
        assert [event.kind for event in _events(tree, 2)] == [t.DISCONNECTED, t.CONNECTED]
        assert proxy.forgets == 0 and tree.session == session


def test_session_of_a_former_process_survives_a_failed_resumption(server: ZooKeeper, chroot: str) -> None:
    """A broker stays registered if a controller process fails to resume the session: the next one resumes it."""
    left = _die(server.connect + chroot)
    assert isinstance(left, tuple)
    with closing(Flapping(server.port, cuts=math.inf)) as flapping:
        assert "does not respond" in _die(flapping.connect + chroot, left, connect_ms=2000)
        assert flapping.cut, "the connection was cut in the former session"
    with closing(ZooKeeperTree(server.connect + chroot, SESSION_MS, former=left)) as next_one:
        found = next_one.exists("/mine")
        assert found is not None and found.owner == next_one.session == left[0]


def test_failed_resumption_leaves_no_client_behind(server: ZooKeeper, chroot: str) -> None:
    """A process that waits for ZooKeeper retries often; each leftover client would take the session from the next."""
    left = _die(server.connect + chroot)
    assert isinstance(left, tuple)
    others = {*threading.enumerate()}
    with closing(Flapping(server.port, cuts=math.inf)) as flapping:
        with pytest.raises(NoAnswer):
            ZooKeeperTree(flapping.connect + chroot, SESSION_MS, 2000, former=left, ends=True)
        assert flapping.cut
        new = {thread.name for thread in {*threading.enumerate()} - others}
        assert not [name for name in new if "_accept" not in name and "_pass_on" not in name]


def test_session_of_a_former_process_survives_a_refusal(server: ZooKeeper, chroot: str) -> None:
    """The refusal is for a chroot that is gone and may not be created."""
    from kazoo.security import make_digest_acl

    left = _die(server.connect + chroot)
    assert isinstance(left, tuple)
    with closing(ZooKeeperTree(server.connect, SESSION_MS)) as other:
        other.create("/refusing")
        other._client.set_acls("/refusing", [make_digest_acl("other", "secret", all=True)])
        assert "refused the connection: NoAuthError" in _die(server.connect + "/refusing/chroot", left)
        found = other.exists(chroot + "/mine")
        assert found is not None and found.owner == left[0]


class Flapping:
    """A proxy for `port`: each of the first `cuts` connections is cut when the client sends its first request.

    The session has begun or been resumed by then.
    """

    def __init__(self, port: int, cuts: float) -> None:
        self._to, self._cuts = ("127.0.0.1", port), cuts
        self.cut = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.connect = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client = self._listening.accept()[0]
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        answered = False
        with closing(client), suppress(OSError), socket.create_connection(self._to) as server:
            poll = select.poll()
            poll.register(client, select.POLLIN)
            poll.register(server, select.POLLIN)
            while True:
                source = client if poll.poll()[0][0] == client.fileno() else server
                data = source.recv(1 << 16)
                if not data:
                    return
                if source is client and answered and self.cut < self._cuts:
                    self.cut += 1
                    return
                answered = answered or source is server
                (server if source is client else client).sendall(data)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


class Forgetful(Flapping):
    """A proxy that answers nothing on the next `forgets` connections."""

    forgets = 0

    def __init__(self, port: int) -> None:
        super().__init__(port, cuts=0)

    def _pass_on(self, client: socket.socket) -> None:
        if not self.forgets:
            return super()._pass_on(client)
        self.forgets -= 1
        with closing(client):
            while client.recv(1 << 16):
                pass


def _events(tree: ZooKeeperTree, count: int) -> list[t.Event]:
    """The next `count` events; waits only on the descriptor."""
    found: list[t.Event] = []
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        if readable(tree.fileno(), 1):
            found += tree.poll()
    return found
