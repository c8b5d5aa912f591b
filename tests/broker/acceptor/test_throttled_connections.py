"""Connections that stay open for their throttle time."""

from __future__ import annotations

import math
import socket

from odradek.broker.acceptor import throttled_connections
from odradek.broker.acceptor.throttled_connections import ThrottledConnections
from odradek.ipc.handoff import Client


def _add(kept: ThrottledConnections, port: int, until: float) -> socket.socket:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    kept.add(ours, Client("PLAINTEXT", "h", port), until)
    return theirs


def test_they_are_closed_in_their_order() -> None:
    kept = ThrottledConnections()
    assert kept.due() == math.inf
    others = [_add(kept, port, until) for port, until in ((1, 9.0), (2, 5.0), (3, 7.0))]
    assert kept.due() == 5.0
    assert list(kept.close_due(4.9)) == []
    assert [client.port for client in kept.close_due(7.0)] == [2, 3]
    assert others[1].recv(1) == others[2].recv(1) == b""
    assert [client.port for client in kept.close_due(99.0)] == [1]
    for other in others:
        other.close()


def test_there_is_a_limit() -> None:
    kept = ThrottledConnections()
    most, throttled_connections.MOST = throttled_connections.MOST, 2
    try:
        others = [_add(kept, port, 100.0 + port) for port in range(4)]
        assert [client.port for client in kept.close_due(0.0)] == [0, 1]
    finally:
        throttled_connections.MOST = most
    assert len(list(kept.close_due(200.0))) == 2
    for other in others:
        other.close()


def test_closed_all_are_closed_before_their_time() -> None:
    kept = ThrottledConnections()
    others = [_add(kept, port, 9.0) for port in (1, 2)]
    kept.close()
    assert [other.recv(1) for other in others] == [b"", b""]
    assert kept.due() == math.inf
    for other in others:
        other.close()
