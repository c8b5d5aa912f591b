"""Connections of removed listeners close once they have their answers, or after a while."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from odradek.workers.net.connection import Connection
from odradek.workers.net.removed_listeners import PATIENCE_S, RemovedListeners

BEFORE = {"A": "PLAINTEXT", "B": "PLAINTEXT"}


class Dropped(list[Connection]):
    def __call__(self, connection: Connection, why: str) -> None:
        assert why == "closed: its listener was removed"
        self.append(connection)


@pytest.fixture
def connections() -> Iterator[dict[str, Connection]]:
    pairs = {name: socket.socketpair() for name in BEFORE}
    yield {name: Connection(pair[0], name, "h", 1) for name, pair in pairs.items()}
    for pair in pairs.values():
        for sock in pair:
            sock.close()


def test_unchanged_listeners_keep_their_connections(connections: dict[str, Connection]) -> None:
    removed, dropped = RemovedListeners(BEFORE), Dropped()
    assert not removed.follow(dict(BEFORE), connections.values(), 0)
    removed.tick(1e9, dropped)
    assert dropped == []


@pytest.mark.parametrize("after", [{"A": "PLAINTEXT"}, {"A": "PLAINTEXT", "B": "SSL"}])
def test_connections_of_a_removed_listener_are_closed(
    connections: dict[str, Connection], after: dict[str, str]
) -> None:
    """A listener of the same name with another protocol counts as removed."""
    removed, dropped = RemovedListeners(BEFORE), Dropped()
    assert removed.follow(after, connections.values(), 0)
    assert removed.protocols == after
    removed.tick(0, dropped)
    removed.tick(0, dropped)
    assert dropped == [connections["B"]]


def test_connection_closes_after_its_answer(connections: dict[str, Connection]) -> None:
    removed, dropped = RemovedListeners(BEFORE), Dropped()
    connections["A"].in_flight.append("a request")
    removed.follow({}, connections.values(), 10)
    removed.tick(10, dropped)
    assert dropped == [connections["B"]]
    removed.tick(10 + PATIENCE_S / 2, dropped)
    assert dropped == [connections["B"]]
    connections["A"].in_flight.clear()
    removed.tick(10 + PATIENCE_S / 2, dropped)
    assert dropped == [connections["B"], connections["A"]]


def test_incomplete_request_keeps_a_connection_for_a_limited_time(connections: dict[str, Connection]) -> None:
    removed, dropped = RemovedListeners(BEFORE), Dropped()
    connections["A"].partial = b"the start of a request"
    removed.follow({"B": "PLAINTEXT"}, connections.values(), 10)
    removed.tick(10 + PATIENCE_S, dropped)
    assert dropped == [connections["A"]]
