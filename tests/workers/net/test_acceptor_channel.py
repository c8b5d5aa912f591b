"""Connections that an acceptor hands to a worker."""

from __future__ import annotations

import logging
import os
import socket

import pytest

from odradek.ipc import handoff
from odradek.ipc.channel import Channel, Listener

from ..inprocess import Bench


def test_connection_lost_in_the_handoff_is_reported_as_closed(bench: Bench) -> None:
    """Until then, the acceptor counts it for its host and the worker's load. The message comes without a descriptor."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    acceptance, acceptor = bench.worker.acceptance, Channel(theirs)
    acceptance._channel = Channel(ours)
    acceptance._take(handoff.Client("PLAINTEXT", "h", 1), [])
    (message,) = acceptor.receive()
    assert handoff.listener_and_host(message) == ("PLAINTEXT", "h")
    assert message == handoff.closed("PLAINTEXT", "h")
    for link in (acceptance._channel, acceptor):
        link.close()


def test_many_dead_connections_are_logged_in_one_line(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The peer resets each connection before the worker accepts it."""
    caplog.set_level(logging.INFO)

    def accept(*_: object) -> None:
        raise OSError(107, "Transport endpoint is not connected")

    monkeypatch.setattr(bench.worker, "accept", accept)
    for number in range(100):
        sock = socket.socket()
        bench.worker.acceptance._take(handoff.Client("SSL", "h", number), [os.dup(sock.fileno())])
        sock.close()
    assert [line.partition(" on ")[0] for line in caplog.messages] == ["cannot serve h:0"]


def test_worker_registers_again_when_it_accepts_connections_after_all(bench: Bench) -> None:
    """Not before the acceptor has sent the last one: it closes those on their way to a channel that ends."""
    door = Listener(bench.worker.process.run_dir / "acceptor.sock")
    bench.connect()
    acceptance = bench.worker.acceptance
    acceptance.tick()
    former = door.accept()
    assert former is not None
    acceptance.drain()
    acceptance.resume()
    acceptance.tick()
    assert former.receive()[-1] == handoff.DRAIN and door.accept() is None
    former.send(handoff.END)
    bench.turn(3)
    acceptance.tick()
    again = door.accept()
    assert again is not None
    assert again.receive() == [handoff.register(0), handoff.opened("PLAINTEXT", "h")]
    assert not acceptance.ended
    for link in (former, again, door):
        link.close()


def test_worker_that_accepts_no_connections_does_not_register_with_another_acceptor(bench: Bench) -> None:
    acceptance = bench.worker.acceptance
    acceptance.drain()
    assert acceptance.ended
    door = Listener(bench.worker.process.run_dir / "acceptor.sock")
    acceptance.tick()
    assert door.accept() is None
    door.close()
