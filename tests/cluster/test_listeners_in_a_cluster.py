"""Listeners change in a cluster with Apache Kafka 3.9.1: answers are equal, and each broker learns the other's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.clients.admin import alter_named
from tests.harness.apache import ApacheMember
from tests.harness.broker import Broker
from tests.harness.process import free_port, wait_until
from tests.harness.wire import Wire, informed
from tests.harness.zookeeper import ZooKeeper

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.needs("java-3.9.1")]

SECONDS = 180
MAP = "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,OTHER:PLAINTEXT"
Brokers = tuple[ApacheMember, Broker]


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    """Apache Kafka, the controller, with id 0, and this broker with id 1."""
    with ExitStack() as stack:
        zookeeper = ZooKeeper(tmp_path / "zookeeper").start()
        stack.callback(zookeeper.kill)
        apache = ApacheMember(tmp_path / "kafka", 0, zookeeper.connect)
        with apache.properties.open("a") as file:
            file.write(f"\nlistener.security.protocol.map={MAP}\npassword.encoder.secret=theirs\n")
        stack.callback(apache.kill)
        start(apache)
        ours = Broker(
            tmp_path / "ours", broker_id=1, zookeeper_connect=zookeeper.connect, zookeeper_session_timeout_ms=6000,
            listener_security_protocol_map=MAP, password_encoder_secret="ours",
        )  # fmt: skip
        stack.callback(ours.close)
        ours.start()
        wait_until(lambda: informed([apache.bootstrap, ours.bootstrap]), SECONDS, "both know both")
        yield apache, ours


def start(apache: ApacheMember) -> None:
    apache.spawn()
    apache.await_ready(SECONDS)


def change(broker: ApacheMember | Broker, number: int, **configs: str | None) -> int:
    with Wire(broker.bootstrap, SECONDS) as wire:
        return alter_named(wire, str(number), {name.replace("_", "."): value for name, value in configs.items()})[0]


def known(port: int) -> set[tuple[int, int]]:
    """(id, port) of the brokers in Metadata from the listener at this port."""
    with Wire(f"127.0.0.1:{port}", SECONDS) as wire:
        return {(broker.node_id, broker.port) for broker in wire.metadata().brokers}


JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b";'
CHANGES: list[dict[str, str | None]] = [
    {"listeners": "{plain},INTERNAL://127.0.0.1:{port}"},
    {"listeners": "{plain},INTERNAL://127.0.0.1:{port},NONE://127.0.0.1:{other}"},
    {"advertised.listeners": "{plain},OTHER://127.0.0.1:{other}"},
    {"advertised.listeners": "INTERNAL://127.0.0.1:{port}"},
    {"advertised.listeners": "{plain}"},
    {"advertised.listeners": None},
    {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT"},
    {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
    {"listeners": "INTERNAL://127.0.0.1:{port}"},
    {"listeners": ""},
    {"listeners": "{plain},INTERNAL"},
    {"listener.name.new.plain.sasl.jaas.config": JAAS},
    {"listener.name.new.plain.sasl.jaas.config": None},
    {"listener.name.internal.max.connections": "100"},
    {"inter.broker.listener.name": "INTERNAL"},
    {"listeners": "{plain}"},
    {"listeners": None},
]


def filled(configs: dict[str, str | None], words: dict[str, Any]) -> dict[str, str | None]:
    return {name: text if text in (None, JAAS) else str(text).format(**words) for name, text in configs.items()}


def test_answers_equal_kafkas(brokers: Brokers) -> None:
    answers: dict[int, list[int]] = {}
    both: list[ApacheMember | Broker] = list(brokers)
    for number, broker in enumerate(both):
        words: dict[str, Any] = {"plain": f"PLAINTEXT://{broker.bootstrap}", "port": free_port(), "other": free_port()}
        answers[number] = [change(broker, number, **filled(one, words)) for one in CHANGES]
        with Wire(broker.bootstrap, SECONDS) as wire:
            answers[number].append(alter_named(wire, "", {"listeners": words["plain"]})[0])
            answers[number].append(alter_named(wire, "", {"listener.name.x.sasl.jaas.config": JAAS})[0])
            answers[number].append(alter_named(wire, str(1 - number), {"listeners": words["plain"]})[0])
    assert answers[1] == answers[0], list(zip(CHANGES, answers[0], answers[1], strict=False))


def test_each_broker_learns_the_others_listeners(brokers: Brokers) -> None:
    ports = (free_port(), free_port())
    both: list[ApacheMember | Broker] = list(brokers)
    for number, broker in enumerate(both):
        listeners = f"PLAINTEXT://{broker.bootstrap},INTERNAL://127.0.0.1:{ports[number]}"
        assert change(broker, number, listeners=listeners) == 0
    for port in ports:
        wait_until(lambda port=port: known(port) == set(enumerate(ports)), SECONDS, "the endpoints of both")  # type: ignore[misc]  # a default in a lambda
    apache, ours = brokers
    apache.kill()  # this broker becomes the controller
    wait_until(lambda: known(ports[1]) == {(1, ports[1])}, SECONDS, "Kafka's broker to be gone")
    start(apache)
    wait_until(
        lambda: known(ports[1]) == set(enumerate(ports)), SECONDS, "Kafka's broker to be back, with its listener"
    )
    plain = f"PLAINTEXT://{apache.bootstrap}"
    wait_until(lambda: change(apache, 0, listeners=plain) == 0, SECONDS, "Kafka's broker to accept a change")
    wait_until(lambda: known(ports[1]) == {(1, ports[1])}, SECONDS, "the removal of its listener")
    assert change(ours, 1, advertised_listeners=f"PLAINTEXT://{ours.bootstrap},INTERNAL://127.0.0.1:1234") == 0
    wait_until(lambda: known(ports[1]) == {(1, 1234)}, SECONDS)
    ours.restart()
    wait_until(lambda: known(ports[1]) == {(1, 1234)}, SECONDS, "the changed endpoint")
