"""Listeners that are added and removed while a broker runs (broker.controller.dynamic_listeners)."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from odradek.broker.commands.tls import authority
from odradek.cluster.tree import embedded
from odradek.protocol.errors import INVALID_REQUEST

from ..clients.admin import alter_named, create_topic
from ..cluster.users.scram_requests import SECRET, alter, upsertion
from ..harness.broker import Broker
from ..harness.process import free_port, wait_until
from ..harness.wire import Wire, answers

pytestmark = [pytest.mark.live, pytest.mark.slow]

USER = "carol"
SECONDS = 30
Configs = dict[str, str | None]


class ListeningBroker(Broker):
    """PLAINTEXT at its start; the files for a listener SASL_SSL exist, but are not set."""

    def __init__(self, folder: Path, **overrides: Any) -> None:
        super().__init__(folder, **overrides)
        self.tls = folder / "tls"
        authority.init(self.tls, ["localhost", "127.0.0.1"], [], 90)
        self.secured = free_port()

    def plain(self) -> str:
        return f"PLAINTEXT://127.0.0.1:{self.port}"

    def both(self) -> str:
        return f"{self.plain()},SASL_SSL://127.0.0.1:{self.secured}"

    def security(self) -> Configs:
        prefix = "listener.name.sasl_ssl."
        return {
            prefix + "ssl.keystore.type": "PEM",
            prefix + "ssl.keystore.location": str(self.tls / "server.pem"),
            prefix + "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        }

    def alter(self, **configs: str | None) -> tuple[int, str]:
        return self.change({name.replace("_", "."): value for name, value in configs.items()})

    def change(self, configs: Configs) -> tuple[int, str]:
        with self.wire() as wire:
            code, message = alter_named(wire, "0", configs)
        return code, message or ""

    def add_secured(self) -> None:
        assert self.change(self.security() | {"listeners": self.both()}) == (0, "")

    def add_user(self) -> None:
        with self.wire() as wire:
            assert alter(wire, [upsertion(USER)]) == [(USER, 0, "")]

    def client(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"127.0.0.1:{self.secured}",
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self.tls / "ca.pem"),
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": USER,
            "sasl.password": SECRET,
        }

    def serves_carol(self) -> None:
        """A client produces and consumes over SASL_SSL."""
        topic = create_topic(self, "carol")
        producer = Producer({**self.client(), "message.timeout.ms": SECONDS * 1000, "log_level": 0})
        errors: list[KafkaError | None] = []
        producer.produce(topic, b"x", callback=lambda error, _: errors.append(error))
        assert producer.flush(SECONDS) == 0 and errors == [None]
        consumer = Consumer({**self.client(), "group.id": topic, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        try:
            message = consumer.poll(SECONDS)
            assert message is not None and message.value() == b"x"
        finally:
            consumer.close()

    def advertised(self) -> list[tuple[str, int]]:
        """The addresses in Metadata responses on PLAINTEXT."""
        with self.wire() as wire:
            return [(broker.host, broker.port) for broker in wire.metadata().brokers]

    def takes(self, port: int) -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
        except ConnectionRefusedError:
            return False
        return True


class Load:
    """A client on PLAINTEXT that produces all the time; it must see no error."""

    def __init__(self, broker: Broker) -> None:
        self.acked = 0
        self.errors: list[Any] = []
        self._topic = create_topic(broker, "load")
        self._producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "error_cb": self.errors.append, "retries": 0}
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._producer.produce(self._topic, b"y" * 100, callback=self._done)
            self._producer.poll(0.001)
        self._producer.flush(SECONDS)

    def _done(self, error: Any, _message: Any) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acked += 1

    def check(self) -> None:
        before = self.acked
        wait_until(lambda: self.errors or self.acked > before + 10, SECONDS, "more records are acknowledged")
        assert not self.errors

    def close(self) -> None:
        self._stop.set()
        self._thread.join(SECONDS)


@contextlib.contextmanager
def load_on(broker: Broker) -> Iterator[Load]:
    load = Load(broker)
    try:
        yield load
        load.check()
    finally:
        load.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ListeningBroker]:
    made = ListeningBroker(tmp_path)
    try:
        yield made.start()  # type: ignore[misc]  # start() returns a Broker
    finally:
        made.close()


def test_a_listener_comes_and_goes_under_load(broker: ListeningBroker) -> None:
    broker.add_user()
    with load_on(broker) as load:
        for _ in range(2):
            broker.add_secured()
            broker.serves_carol()
            load.check()
            held = socket.create_connection(("127.0.0.1", broker.secured), SECONDS)
            assert broker.alter(listeners=broker.plain()) == (0, "")
            assert held.recv(1) == b"", "the connection of the removed listener is open"
            wait_until(lambda: not broker.takes(broker.secured), SECONDS, "the port is closed")
            load.check()
        assert broker.change({"listeners": None}) == (0, "")
    assert broker.advertised() == [("127.0.0.1", broker.port)]


def test_a_restart_keeps_it(broker: ListeningBroker) -> None:
    broker.add_user()
    broker.add_secured()
    broker.serves_carol()
    for kill in (False, True):
        broker.restart(kill=kill)
        assert f"SASL_SSL://127.0.0.1:{broker.secured}" in broker.log.rpartition("\nREADY ")[2]
        broker.serves_carol()
    status = broker.command("status", str(broker.properties_file))
    assert f"SASL_SSL://127.0.0.1:{broker.secured}" in status.stdout
    broker.restart(odradek_workers=1)
    assert broker.alter(listeners=None) == (0, "")
    wait_until(lambda: not broker.takes(broker.secured), SECONDS)
    broker.restart()
    assert not broker.takes(broker.secured)


@pytest.mark.parametrize(
    "role",
    ["acceptor", "worker", *(pytest.param(role, marks=pytest.mark.long) for role in ("controller", "coordinator"))],
)
def test_a_child_dies_in_between(broker: ListeningBroker, role: str) -> None:
    """Killed before, during and after the change: the listener serves in the end, and PLAINTEXT all the time."""
    broker.add_user()
    broker.kill_role(role)
    changed: list[tuple[int, str]] = []

    def change() -> None:
        with contextlib.suppress(OSError, EOFError):  # the killed worker may be the one that has the connection
            changed.append(broker.change(broker.security() | {"listeners": broker.both()}))

    thread = threading.Thread(target=change)
    thread.start()
    wait_until(lambda: broker.pids(role), SECONDS)
    broker.await_respawn(role, broker.kill_role(role))
    thread.join(SECONDS)
    if not changed or changed[0][0]:
        wait_until(lambda: _changes(broker), SECONDS, "the change is applied")
    broker.await_respawn(role, broker.kill_role(role))
    broker.serves_carol()
    broker.restart(kill=True)
    broker.serves_carol()


def _changes(broker: ListeningBroker) -> bool:
    with contextlib.suppress(OSError, EOFError):
        return broker.change(broker.security() | {"listeners": broker.both()})[0] == 0
    return False


def test_a_port_that_another_program_has(broker: ListeningBroker) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", broker.secured))
        other.listen()
        code, message = broker.change(broker.security() | {"listeners": broker.both()})
        assert code == INVALID_REQUEST and f"port {broker.secured} is in use by another program" in message
        assert broker.advertised() == [("127.0.0.1", broker.port)]
    broker.restart()
    assert not broker.takes(broker.secured), "the refused listener accepts connections"


def test_a_port_that_is_taken_at_the_restart(broker: ListeningBroker) -> None:
    """The broker serves without the listener, and binds it as soon as possible."""
    broker.add_user()
    broker.add_secured()
    broker.stop()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", broker.secured))
        other.listen()
        broker.start()
        wait_until(lambda: "cannot change the listeners, retrying" in broker.log, SECONDS)
        assert "not listening on SASL_SSL, a dynamic config of this broker" in broker.log
    wait_until(lambda: ("127.0.0.1", broker.secured) == secured_address(broker), SECONDS, "the listener is back")
    broker.serves_carol()


def secured_address(broker: ListeningBroker) -> tuple[str, int] | None:
    """The address of the listener SASL_SSL in `odradek status`."""
    document = json.loads(broker.command("status", str(broker.properties_file), "--json").stdout)
    found = [text for text in document["listeners"] if text.startswith("SASL_SSL://")]
    return ("127.0.0.1", int(found[0].rpartition(":")[2])) if found else None


REFUSED = {
    "no protocol": ({"listeners": "{plain},INTERNAL://127.0.0.1:{port}"}, "no entry for INTERNAL"),
    "no inter-broker listener": ({"listeners": "SSL://127.0.0.1:{port}"}, "PLAINTEXT is not one of the advertised"),
    "not advertised between brokers": (
        {"listeners": "{plain},X://127.0.0.1:{port}",
         "listener.security.protocol.map": "X:PLAINTEXT,PLAINTEXT:PLAINTEXT",
         "advertised.listeners": "X://127.0.0.1:{port}"},
        "PLAINTEXT is not one of the advertised",
    ),
    "advertised without a listener": ({"advertised.listeners": "{plain},SSL://h:1"}, "no listener SSL"),
    "another address": ({"listeners": "PLAINTEXT://127.0.0.1:{port}"}, "the address of PLAINTEXT cannot change"),
    "another protocol": (
        {"listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT"}, "the protocol of the listener PLAINTEXT"
    ),
    "not secured": ({"listeners": "{plain},SSL://127.0.0.1:{port}"}, "listener SSL: ssl.keystore.location"),
    "malformed": ({"listeners": "{plain},nothing"}, "'nothing' is not of the form"),
    "none": ({"listeners": ""}, "at least one is needed"),
    "two of a name": ({"listeners": "{plain},{plain}"}, "each name may appear once"),
    "no address of this machine": (
        {"listeners": "{plain},SASL_SSL://192.0.2.1:{port}"}, "this machine has no address '192.0.2.1'"
    ),
    "a wildcard over the others": ({"listeners": "{plain},SASL_SSL://:{theirs}"}, "used 2 times"),
    "too many": (
        {"listeners": "{plain}," + ",".join(f"L{n}://127.0.0.1:0" for n in range(80)),
         "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT," + ",".join(f"L{n}:PLAINTEXT" for n in range(80))},
        "at most 64",
    ),
}  # fmt: skip


def test_refused(broker: ListeningBroker) -> None:
    """The error is one line, and nothing changes."""
    words = {"plain": broker.plain(), "port": free_port(), "theirs": broker.port}
    for what, (configs, why) in REFUSED.items():
        changed = {name: text.format(**words) for name, text in configs.items()}
        if "SASL_SSL" in changed.get("listeners", ""):
            changed |= broker.security()  # type: ignore[arg-type]  # no value is None
        code, message = broker.change(changed)  # type: ignore[arg-type]  # no value is None
        assert (code, why in message, "\n" in message) == (INVALID_REQUEST, True, False), (what, code, message)
    assert broker.advertised() == [("127.0.0.1", broker.port)]
    with broker.wire() as wire:
        code, message = alter_named(wire, "", {"listeners": broker.both()})  # type: ignore[assignment]  # one message, since the request fails
    assert code == INVALID_REQUEST and "default cluster level" in message
    assert answers(broker.bootstrap)
    broker.stop()
    assert not embedded.peek(broker.data_dir / embedded.FILE_NAME, "/config/brokers/0")


def test_only_validated(broker: ListeningBroker) -> None:
    with broker.wire() as wire:
        for _ in range(2):
            code, message = alter_named(wire, "0", broker.security() | {"listeners": broker.both()}, validate_only=True)
            assert (code, message) == (0, None)
            assert not broker.takes(broker.secured)
    assert broker.advertised() == [("127.0.0.1", broker.port)]


def test_advertised_addresses(broker: ListeningBroker) -> None:
    assert broker.alter(advertised_listeners="PLAINTEXT://localhost:1234") == (0, "")
    assert broker.advertised() == [("localhost", 1234)]
    broker.await_respawn("controller", broker.kill_role("controller"))
    wait_until(lambda: broker.advertised() == [("localhost", 1234)], SECONDS)
    broker.restart()
    assert broker.advertised() == [("localhost", 1234)]
    assert broker.alter(advertised_listeners=None) == (0, "")
    assert broker.advertised() == [("127.0.0.1", broker.port)]


def test_any_port(tmp_path: Path) -> None:
    """Port 0 for an added listener, and for an existing one."""
    broker = ListeningBroker(tmp_path, listener_security_protocol_map="A:PLAINTEXT,B:PLAINTEXT,PLAINTEXT:PLAINTEXT")
    broker.properties["listeners"] = f"{broker.plain()},A://127.0.0.1:0"
    try:
        broker.start()
        first = _ports(broker)
        assert broker.alter(listeners=f"{broker.plain()},A://127.0.0.1:0,B://127.0.0.1:0") == (0, "")
        ports = _ports(broker)
        assert ports["A"] == first["A"] and ports["B"]
        assert _described(ports["B"]) == [("127.0.0.1", ports["B"])]
        broker.await_respawn("controller", broker.kill_role("controller"))
        broker.await_respawn("acceptor", broker.kill_role("acceptor"))
        assert _ports(broker) == ports and _described(ports["B"]) == [("127.0.0.1", ports["B"])]
        assert broker.alter(listeners=f"{broker.plain()},B://127.0.0.1:0") == (0, "")
        assert _ports(broker) == {name: port for name, port in ports.items() if name != "A"}
    finally:
        broker.close()


def _ports(broker: Broker) -> dict[str, int]:
    listening = [line for line in broker.log.splitlines() if "listening on PLAINTEXT" in line or "READY" in line][-1]
    words = [word.rstrip(",") for word in listening.split() if "://" in word]
    return {word.partition(":")[0]: int(word.rpartition(":")[2]) for word in words}


def _described(port: int) -> list[tuple[str, int]]:
    with Wire(f"127.0.0.1:{port}") as wire:
        return [(broker.host, broker.port) for broker in wire.metadata().brokers]


def test_a_new_name_at_the_address_of_a_removed_one(broker: ListeningBroker) -> None:
    broker.add_user()
    open_one = f"{broker.plain()},OPEN://127.0.0.1:{broker.secured}"
    names = "OPEN:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL"
    assert broker.change({"listeners": open_one, "listener.security.protocol.map": names}) == (0, "")
    with Wire(f"127.0.0.1:{broker.secured}") as plain:
        assert plain.api_versions()
        broker.add_secured()
        assert plain.closed_by_peer()
    broker.serves_carol()
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        assert not answers(f"127.0.0.1:{broker.secured}", 1), "the removed name answers in plain text"
