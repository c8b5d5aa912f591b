"""Slow clients: frames byte by byte, frames that never arrive, answers that are not read.

`connections.max.idle.ms` closes them, their memory is bounded, and other clients are not delayed.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from ..clients.admin import create_topic
from ..clients.raw.batches import batch
from ..clients.raw.calls import fetch_request, produce, produce_request
from ..harness.broker import Broker
from ..harness.process import wait_until
from ..harness.wire import Wire, header
from .background_client import CONNECTIONS, BackgroundClient, broker_with_client
from .watch import Watch

pytestmark = pytest.mark.live

IDLE_MS = 10_000  # a client that the disk or the machine delays for some seconds must not count as idle
CLOSED_S = 60  # the broker checks for idle connections every five seconds
METADATA = struct.pack(">i", 23) + header(3, 1, 1) + struct.pack(">i", -1)
MOST_MIB = 160


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, BackgroundClient]]:
    """A broker with a short idle limit, and a background client."""
    with broker_with_client(tmp_path_factory.mktemp("slow"), connections_max_idle_ms=IDLE_MS) as both:
        yield both


def feed(wires: list[Wire], data: bytes, step: int, pause: float) -> float:
    """Send `data` over all `wires`, `step` bytes at a time; the seconds until the broker closed all."""
    began = time.monotonic()
    left = list(wires)
    for at in range(0, len(data), step):
        left = [wire for wire in left if _sent(wire, data[at : at + step])]
        if not left:
            return time.monotonic() - began
        assert time.monotonic() < began + CLOSED_S, f"{len(left)} connections are still open"
        time.sleep(pause)
    raise AssertionError("the data was not enough")


def _sent(wire: Wire, data: bytes) -> bool:
    try:
        wire.send_raw(data)
        wire.socket.settimeout(0.001)
        return wire.socket.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


def test_connections_that_send_single_bytes_are_closed(world: tuple[Broker, BackgroundClient]) -> None:
    """From the start of a frame, and after 100 kB that arrive at once."""
    broker, background = world
    wires = [broker.wire() for _ in range(50)]
    for at, wire in enumerate(wires):
        frame = struct.pack(">i", 1_000_000) + header(0, 7, 1)
        wire.send_raw(frame + bytes(100_000) if at % 2 else frame[:1])
    feed(wires, bytes(200), 1, 0.3)
    for wire in wires:
        wire.close()
    background.await_more()
    assert "closed: idle for more than connections.max.idle.ms" in broker.log


def test_slow_frame_and_rare_requests_keep_a_connection_open(world: tuple[Broker, BackgroundClient]) -> None:
    """The frame takes longer than the idle limit but grows; the other client sends a request every second."""
    broker, _ = world
    topic = create_topic(broker, "slow")
    request = produce_request(topic, batch([b"v" * 20_000]))
    request.with_header(correlation_id=1, client_id="slow")
    data = bytes(request.encode(header=True, framed=True))
    with broker.wire() as slow, broker.wire() as rare:
        for at in range(0, len(data), 1000):
            slow.send_raw(data[at : at + 1000])
            time.sleep(1)
            assert rare.api_versions()
        assert slow.take(request).responses[0].partition_responses[0].error_code == 0


def test_announced_frame_sizes_take_no_memory(world: tuple[Broker, BackgroundClient]) -> None:
    broker, background = world
    watch = Watch(broker)
    before = watch.memory()
    wires = [broker.wire() for _ in range(300)]
    for wire in wires:
        wire.send_raw(struct.pack(">i", 100_000_000) + header(0, 7, 1))
    background.await_more()
    after = watch.memory()
    assert all(after[name] < before[name] + (20 << 20) for name in before), (before, after)
    for wire in wires:
        wire.close()


def _stuff(wire: Wire, data: bytes, most: int) -> int:
    """Send `data` repeatedly until the broker stops reading; the number of bytes sent."""
    wire.socket.settimeout(0.2)
    sent = 0
    try:
        while sent < most:
            sent += wire.socket.send(data)
    except (TimeoutError, ConnectionError):
        pass
    return sent


def test_clients_that_never_read_are_closed(world: tuple[Broker, BackgroundClient]) -> None:
    """Their answers would be gigabytes; the broker stops reading from them, and later closes them."""
    broker, background = world
    watch = Watch(broker)
    wires = []
    for data in _requests(broker):
        for _ in range(8):
            wires.append(_small(broker))
            _stuff(wires[-1], data, 20_000_000)
    background.await_more()
    memory = watch.memory()
    assert all(used < MOST_MIB << 20 for used in memory.values()), memory
    wait_until(lambda: _open(broker) <= CONNECTIONS, CLOSED_S, "the connections are closed")
    for wire in wires:
        wire.close()
    background.await_more()


def _requests(broker: Broker) -> list[bytes]:
    """Many requests each: Metadata, Fetch from files, and Fetch of an old client, whose records are converted."""
    topic = create_topic(broker, "unread", max_message_bytes=2_000_000)
    with broker.wire() as wire:
        for _ in range(8):
            assert produce(wire, topic, batch([b"v" * 900_000])).error_code == 0
    found = [METADATA * 2000]
    for version in (11, 3):
        request = fetch_request(topic, 0, version=version, partition_bytes=8_000_000)
        request.with_header(correlation_id=1, client_id="unread")
        found.append(bytes(request.encode(header=True, framed=True)) * 1000)
    return found


def _small(broker: Broker) -> Wire:
    """A connection with a small receive buffer."""
    wire = broker.wire()
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    return wire


def _open(broker: Broker) -> int:
    """The number of connections of all workers."""
    return sum(
        sum(one.laddr.port == broker.port and one.status == psutil.CONN_ESTABLISHED for one in sockets)
        for sockets in (psutil.Process(pid).net_connections("tcp") for pid in broker.pids("worker"))
    )


def test_half_a_frame_does_not_delay_a_draining_worker(fresh_broker: Callable[..., Broker]) -> None:
    """The worker waits up to 30 s for requests in progress; half a request is not one."""
    broker = fresh_broker()
    wires = [broker.wire() for _ in range(6)]
    for wire in wires:
        wire.send_raw(METADATA + struct.pack(">i", 1000) + header(0, 7, 1))
        wire.read_frame()  # the half frame after this request has arrived, too
    worker = broker.pids("worker")[0]
    os.kill(worker, signal.SIGTERM)
    wait_until(lambda: worker not in broker.pids("worker"), 25, "the worker ends")
    for wire in wires:
        wire.close()
