"""Known addresses of brokers: a waiting request is refused neither too early nor never."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.controller.member import broker_addresses
from odradek.broker.controller.member.broker_addresses import BrokerAddresses
from odradek.cluster.metadata.view import View
from odradek.cluster.tree import znodes
from odradek.cluster.tree.embedded import EmbeddedTree

from ....harness.process import readable, wait_until

CONFIG: dict[str, Any] = {"inter.broker.listener.name": "INTERNAL", "odradek.inter.broker.allowed.hosts": None}


class Sources:
    """The controller's loop; a test triggers ready callbacks."""

    def __init__(self) -> None:
        self.watched: dict[int, Callable[[int], None]] = {}

    def watch(self, fd: int, events: int, ready: Callable[[int], None]) -> None:
        self.watched[fd] = ready

    def unwatch(self, fd: int) -> None:
        del self.watched[fd]

    def turn(self) -> None:
        for fd, ready in list(self.watched.items()):
            if readable(fd, 0.05):
                ready(1)


class Scene:
    def __init__(self, folder: Path) -> None:
        self.tree = EmbeddedTree(folder / "tree")
        self.tree.ensure(znodes.BROKER_IDS)
        self.view = View(0, "c")
        self.sources = Sources()
        self.admission = BrokerAddresses(CONFIG, self.view, self.tree, self.sources, lambda: None)
        self.answers: list[bool] = []
        self._now = 1e9

    def ask(self, host: str, listener: str = "INTERNAL", size: int = 100) -> None:
        self.admission.admit(listener, host, size, self.answers.append)

    def look(self, after: float = broker_addresses._PAUSE_S, connected: bool = True) -> None:
        """Advance the clock: a waiting request makes the controller read the tree."""
        self._now += after
        self.admission.tick(self._now, connected)

    def takes(self, host: str) -> bool:
        """Whether workers treat the host as a broker's address, after all lookups have ended."""
        assert wait_until(lambda: self.sources.turn() or not self.admission._pending, 60)
        return self.view.admitted.allows("INTERNAL", host)

    def register(self, number: int, host: str, between_brokers: str | None = None) -> None:
        node = znodes.encode_broker({"INTERNAL": (host, 1)}, {"INTERNAL": "PLAINTEXT"}, None, 0, between_brokers)
        self.tree.create(f"{znodes.BROKER_IDS}/{number}", node)

    def told(self, number: int, host: str) -> None:
        """Receive an UpdateMetadata request from the controller."""
        self.view.set_brokers([{"id": number, "rack": None, "endpoints": {"INTERNAL": [host, 1]}}])
        self.admission.brokers_changed()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.admission.close()
    made.tree.close()


def test_broker_from_update_metadata_is_known_at_once(scene: Scene) -> None:
    scene.told(1, "10.0.0.1")
    scene.ask("10.0.0.1")
    scene.ask("10.0.0.1", "PLAINTEXT")
    assert scene.answers == [True]
    scene.look()
    assert scene.answers == [True, False], "a listener that no broker has registered must be refused"


@pytest.mark.parametrize("first", ["told", "asked"])
def test_a_broker_with_another_listener_is_admitted_there(scene: Scene, first: str) -> None:
    """A cluster changes its inter-broker listener, broker by broker."""
    scene.register(1, "10.0.0.1", "OLD")
    scene.register(2, "10.0.0.2", "INTERNAL")
    if first == "told":
        scene.told(1, "10.0.0.1")
        scene.look()
    for host, listener in (("10.0.0.1", "OLD"), ("10.0.0.1", "INTERNAL"), ("10.0.0.2", "OLD"), ("10.0.0.3", "OLD")):
        scene.ask(host, listener)
    scene.look()
    assert sorted(scene.answers) == [False, False, True, True]
    assert scene.view.admitted.allows("OLD", "10.0.0.1") and not scene.view.admitted.allows("OLD", "10.0.0.2")
    scene.tree.delete(f"{znodes.BROKER_IDS}/1")
    scene.register(1, "10.0.0.1", "INTERNAL")
    scene.ask("10.0.0.9")
    scene.look()
    assert not scene.view.admitted.allows("OLD", "10.0.0.1"), "the broker no longer uses the listener"


def test_unknown_broker_waits_until_the_tree_is_read(scene: Scene) -> None:
    """The lookup of a name that the controller sent in between must not end the wait."""
    scene.register(2, "10.0.0.2")
    scene.ask("10.0.0.2")
    scene.ask("10.0.0.3")
    scene.told(1, "localhost")
    wait_until(lambda: scene.sources.turn() or scene.view.admitted.allows("INTERNAL", "127.0.0.1"), 60)
    assert scene.answers == []
    scene.look()
    assert wait_until(lambda: scene.sources.turn() or len(scene.answers) == 2, 60)
    assert scene.answers == [True, False]


def test_names_that_cannot_be_looked_up_are_tried_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a temporary failure of the name server, a refused controller request would not be repeated."""
    scene.register(2, "no-such-host.invalid")
    scene.ask("10.0.0.2")
    for _ in range(2):
        scene.look()
        wait_until(lambda: scene.sources.turn() or not scene.admission._refreshing, 60)
        assert scene.answers == []
    scene.register(3, "10.0.0.2")
    scene.look()
    assert wait_until(lambda: scene.sources.turn() or scene.answers, 60) == [True]


def test_wait_for_a_host_name_is_bounded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_addresses, "_TIMEOUT_S", 0.0)
    scene.register(2, "no-such-host.invalid")
    scene.ask("10.0.0.2")
    scene.look()
    assert wait_until(lambda: scene.sources.turn() or scene.answers, 60) == [False]


class NameServer:
    """The machine's resolver for these names; it fails with EAI_AGAIN for others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: dict[str, str] = {}
        self.asked = 0
        self.answers = threading.Event()
        self.answers.set()
        self._real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._look_up)

    def _look_up(self, host: str, port: int, *args: Any, **options: Any) -> Any:
        if host[0].isdigit() or options.get("flags"):
            return self._real(host, port, *args, **options)
        self.asked += 1
        self.answers.wait(60)
        if host not in self.names:
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return self._real(self.names[host], port, *args, **options)


@pytest.fixture
def names(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> NameServer:
    return NameServer(monkeypatch)


def test_a_name_that_failed_once_is_asked_for_again_in_a_quiet_cluster(scene: Scene, names: NameServer) -> None:
    scene.told(1, "host")
    assert not scene.takes("10.0.0.1")
    names.names["host"] = "10.0.0.1"
    assert scene.admission.due() < math.inf
    scene.look(broker_addresses._RETRY_S)
    assert scene.takes("10.0.0.1")


def test_a_name_server_that_hangs_has_the_loop_wait(scene: Scene, names: NameServer) -> None:
    """Otherwise a pending lookup with a past deadline would make the loop spin."""
    scene.told(1, "host")
    assert not scene.takes("10.0.0.1")
    names.answers.clear()
    scene.look(broker_addresses._RETRY_S)
    assert scene.admission.due() > scene._now
    scene.ask("10.0.0.1")
    scene.look(connected=False)
    assert scene.admission.due() > scene._now
    names.answers.set()


def test_a_host_that_comes_back_with_another_address(scene: Scene, names: NameServer) -> None:
    """Looked up periodically, and soon after a worker has refused the new address."""
    names.names |= {"own": "10.0.0.1", "host": "10.0.0.2"}
    scene.told(1, "own")
    scene.register(1, "own")
    scene.register(2, "host")
    scene.ask("10.0.0.2")
    scene.look()
    assert scene.takes("10.0.0.2")
    for address, asks in (("10.0.0.3", True), ("10.0.0.4", False)):
        names.names["host"] = address
        if asks:
            scene.admission.refresh()
        scene.look(broker_addresses._PAUSE_S if asks else broker_addresses._REFRESH_S)
        assert scene.takes(address), asks


def test_workers_have_the_tree_read_once_a_second_at_most(scene: Scene, names: NameServer) -> None:
    names.names["host"] = "10.0.0.1"
    scene.told(1, "host")
    scene.admission.refresh()
    scene.look()
    assert scene.takes("10.0.0.1")
    asked = names.asked
    scene.admission.refresh()
    scene.look(broker_addresses._PAUSE_S / 2)
    assert (scene.takes("10.0.0.1"), names.asked) == (True, asked)


@pytest.mark.parametrize("failing", [True, False])
def test_known_broker_stays_known_while_zookeeper_is_unreachable(
    scene: Scene, names: NameServer, failing: bool
) -> None:
    """Even if the name server fails, or the controller no longer sends the broker."""
    names.names |= {"own": "10.0.0.1", "host": "10.0.0.2"}
    scene.register(1, "own")
    scene.register(2, "host")
    scene.ask("10.0.0.2")
    scene.look()
    assert scene.takes("10.0.0.2")
    if failing:
        names.names.clear()
    for _ in range(3):
        scene.told(1, "own")
        scene.look(broker_addresses._REFRESH_S, connected=False)
        assert scene.takes("10.0.0.2")


def test_removed_broker_is_forgotten(scene: Scene, names: NameServer) -> None:
    names.names |= {"own": "10.0.0.1", "host": "10.0.0.2"}
    scene.register(1, "own")
    scene.register(2, "host")
    scene.ask("10.0.0.2")
    scene.look()
    assert scene.takes("10.0.0.2")
    scene.tree.delete(f"{znodes.BROKER_IDS}/2")
    scene.told(1, "own")
    assert scene.admission.due() < math.inf
    scene.look(broker_addresses._REFRESH_S)
    assert not scene.takes("10.0.0.2")
    assert scene.takes("10.0.0.1")


def test_what_waits_while_zookeeper_is_away_is_bounded(scene: Scene) -> None:
    """In number and in bytes, so that one address leaves room for others."""
    share = broker_addresses._MOST_WAITING // broker_addresses._SHARE
    for _ in range(share + 5):
        scene.ask("10.0.0.8")
    scene.ask("10.0.0.9", size=broker_addresses._MOST_WAITING_BYTES // broker_addresses._SHARE + 1)
    assert scene.answers == [False] * 6
    for number in range(2 * broker_addresses._MOST_WAITING):
        scene.ask(f"10.1.{number // 250}.{number % 250}")
    assert len(scene.admission._waiting) == broker_addresses._MOST_WAITING


def test_the_bytes_that_wait_are_bounded(scene: Scene) -> None:
    for number in range(50):
        scene.ask(f"10.0.0.{number}", size=broker_addresses._MOST_WAITING_BYTES // 10)
    assert len(scene.admission._waiting) == 10
    assert scene.answers == [False] * 40
