"""Thousands of connections at once, and the settings that limit them, as Kafka's ConnectionQuotas does.

A connection above `max.connections.per.ip` is closed at once; above `max.connections` or
`max.connection.creation.rate` clients wait in the backlog, and none is refused.
"""

from __future__ import annotations

import resource
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ..clients.admin import create_topic
from ..clients.raw.batches import batch
from ..clients.raw.calls import produce_request
from ..harness.broker import Broker
from ..harness.process import wait_until
from ..harness.wire import header
from .background_client import BackgroundClient
from .watch import Watch

pytestmark = pytest.mark.live

API_VERSIONS = struct.pack(">i", 17) + header(18, 0, 1)
MOST_KIB = 24  # of memory of a worker for a connection without a request in progress


@contextmanager
def descriptors(number: int) -> Iterator[None]:
    """Let this process and its children open `number` files; skip if the hard limit is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < number:
        pytest.skip(f"ulimit -Hn is {hard}, this test wants {number}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, number), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(broker: Broker, number: int) -> list[socket.socket]:
    """`number` connections, opened without waiting for one another."""
    made = []
    for _ in range(number):
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex((broker.host, broker.port))
        made.append(sock)
    return made


def ask_all(socks: list[socket.socket], frame: bytes, seconds: float) -> list[bytes]:
    """Send `frame` on each socket once it is connected; the answers."""
    answers: dict[socket.socket, bytes] = {}
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for one in socks:
            selector.register(one, selectors.EVENT_WRITE)
        while len(answers) < len(socks):
            assert time.monotonic() < deadline, f"{len(answers)} of {len(socks)} were answered in {seconds} s"
            for key, events in selector.select(1):
                sock: Any = key.fileobj
                if events & selectors.EVENT_WRITE:
                    sock.send(frame)
                    selector.modify(sock, selectors.EVENT_READ)
                else:
                    answers[sock] = sock.recv(1 << 16)
                    assert answers[sock], "a connection was closed"
                    selector.unregister(sock)
    return list(answers.values())


def _crowd(broker: Broker, number: int) -> None:
    watch, background = Watch(broker), BackgroundClient(broker)
    topic = create_topic(broker, "crowd")
    request = produce_request(topic, batch([b"x"]))
    request.with_header(correlation_id=1, client_id="crowd")
    before = watch.memory()
    socks = connect(broker, number)
    try:
        assert len({len(answer) for answer in ask_all(socks, API_VERSIONS, 120)}) == 1
        after = watch.memory()
        grown = {name: (after[name] - before[name]) // number for name in after}
        assert all(size < MOST_KIB << 10 for size in grown.values()), grown
        answers = ask_all(socks, bytes(request.encode(header=True, framed=True)), 120)
        offsets = sorted(struct.unpack_from(">q", answer, len(answer) - 28)[0] for answer in answers)
        assert offsets == list(range(number)), "each batch is appended once"
        background.await_more()
    finally:
        for sock in socks:
            sock.close()
    background.finish()
    assert not watch.fault()


def test_five_thousand_connections_are_served_at_once(fresh_broker: Callable[..., Broker]) -> None:
    with descriptors(12_000):
        _crowd(fresh_broker(), 5000)


def test_connection_above_max_connections_waits_for_a_free_place(fresh_broker: Callable[..., Broker]) -> None:
    broker = fresh_broker(max_connections=10)
    wait_until(lambda: not broker_connections(broker), 60)
    first = connect(broker, 10)
    ask_all(first, API_VERSIONS, 60)
    (late,) = connect(broker, 1)
    with pytest.raises(AssertionError, match="0 of 1"):
        ask_all([late], API_VERSIONS, 1)
    first.pop().close()
    late.setblocking(True)
    late.settimeout(60)
    assert late.recv(1 << 16)
    for sock in [*first, late]:
        sock.close()


def broker_connections(broker: Broker) -> int:
    """The number of connections that the acceptor counts."""
    import json

    status = json.loads(broker.command("status", str(broker.properties_file), "--json").stdout)
    return sum(row["connections"] for row in status["processes"] if row["name"] == "acceptor")


def test_connection_above_max_connections_per_ip_is_closed(fresh_broker: Callable[..., Broker]) -> None:
    """Each address has its own count; one has an override."""
    broker = fresh_broker(max_connections_per_ip=5, max_connections_per_ip_overrides="127.0.0.3:2")
    wait_until(lambda: not broker_connections(broker), 60)
    for address, number in (("127.0.0.1", 5), ("127.0.0.2", 5), ("127.0.0.3", 2)):
        socks = [from_address(broker, address) for _ in range(number)]
        ask_all(socks, API_VERSIONS, 60)
        refused = from_address(broker, address)
        assert refused.recv(1) == b"", "refused"
        socks.pop().close()
        wait_until(lambda address=address: not refuses(broker, address), 60, "the address may connect again")  # type: ignore[misc]  # a default in a lambda
        for sock in socks:
            sock.close()


def from_address(broker: Broker, address: str) -> socket.socket:
    """A connection from this local address."""
    return socket.create_connection((broker.host, broker.port), 60, (address, 0))


def refuses(broker: Broker, address: str) -> bool:
    """Whether a connection from `address` is closed before it is answered."""
    with from_address(broker, address) as sock:
        try:
            sock.sendall(API_VERSIONS)
            return not sock.recv(1)
        except ConnectionError:
            return True


def test_max_connection_creation_rate_delays_connections(fresh_broker: Callable[..., Broker]) -> None:
    """At twenty a second, sixty connections after the first second's twenty take three seconds, and none is refused.

    Only time can measure a rate; a busy machine only takes longer.
    """
    broker = fresh_broker(max_connection_creation_rate=20)
    began = time.monotonic()
    socks = connect(broker, 80)
    ask_all(socks, API_VERSIONS, 60)
    assert time.monotonic() - began > 2.5
    for sock in socks:
        sock.close()


def test_max_connections_per_ip_changes_at_run_time(fresh_broker: Callable[..., Broker]) -> None:
    broker = fresh_broker()
    words = ["--bootstrap-server", broker.bootstrap, "--entity-type", "brokers", "--entity-default", "--alter"]
    done = broker.command("configs", *words, "--add-config", "max.connections.per.ip=3")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: not broker_connections(broker), 60)
    socks = [from_address(broker, "127.0.0.1") for _ in range(3)]
    ask_all(socks, API_VERSIONS, 60)
    wait_until(lambda: refuses(broker, "127.0.0.1"), 60, "the acceptor knows the new limit")
    for sock in socks:
        sock.close()
