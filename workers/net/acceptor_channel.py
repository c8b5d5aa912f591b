"""A worker's side of ipc.handoff: registers with the acceptor, takes connections, hands them back when draining."""

from __future__ import annotations

import logging
import select
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from odradek.ipc import channel, handoff
from odradek.ipc.channel import Channel
from odradek.ipc.handoff import Client
from odradek.ipc.roles import FIRST_WORKER
from odradek.ipc.shm import Shared
from odradek.workers.net.bounded_log import BoundedLog
from odradek.workers.net.connection import Connection
from odradek.workers.net.last_answers import LastAnswers
from odradek.workers.net.loop import Loop

log = logging.getLogger(__name__)

LINES_S = 60  # for each listener, a line about connections that cannot be served
UNFINISHED_S = 2  # a draining worker drops a connection whose unfinished frame got no byte for so long


class Server(Protocol):
    """What serves the accepted connections: a worker."""

    role: int
    shared: Shared
    loop: Loop
    draining: bool

    def accept(self, sock: socket.socket, listener: str, host: str, port: int) -> None:
        """Serve a connection."""

    def served(self) -> Iterable[Connection]:
        """All connections, authenticated or not."""

    def drop(self, connection: Connection, why: str) -> None:
        """End a connection."""


class AcceptorChannel:
    """The channel to the acceptor; `ended`: no more connections will come over it."""

    def __init__(self, server: Server, run_dir: Path) -> None:
        self._server = server
        self._path = run_dir / "acceptor.sock"
        self._channel: Channel | None = None
        self._handed_back: list[Connection] = []
        self._drain_said = False
        self._resumes = False  # it registers again once the acceptor has sent the last connection
        self._last_answers = LastAnswers(server.drop)
        self._refusals = BoundedLog(log, logging.WARNING, "connections that cannot be served", 1, LINES_S)
        self.ended = False

    @property
    def channel(self) -> Channel | None:
        """The channel, None while there is no acceptor."""
        return self._channel

    def tick(self) -> None:
        """Connect when there is no channel; a draining worker does not wait for an acceptor."""
        self._refusals.tick(time.monotonic())
        if self._resumes and self.ended and not self._server.draining:
            self._begin_again()
        if self._channel is None and not self._server.draining and not self._drain_said:
            self._register()

    def _register(self) -> None:
        try:
            link = channel.connect(self._path)
        except OSError:
            return
        self._channel = link
        self._server.loop.watch(link.fileno(), self._ready)
        link.send(handoff.register(self._server.role - FIRST_WORKER))
        for connection in self._server.served():
            link.send(handoff.opened(connection.listener, connection.host))
        self._watch_writes(link)

    def _ready(self, events: int) -> None:
        link = self._channel
        assert link is not None
        link.flush()
        try:
            messages = link.receive()
        except EOFError:
            self._lost(link)
            return
        fds = link.take_fds()
        for message in messages:
            kind = message[:1]
            if kind == handoff.HANDOFF:
                self._take(handoff.client(message), fds)
            elif kind == handoff.END:
                self.ended = True
        self._watch_writes(link)

    def _take(self, client: Client, fds: list[int]) -> None:
        fd = fds.pop(0) if fds else channel.LOST
        if fd == channel.LOST:
            log.error("lost the connection of %s in the handoff", client.host)
            self._say(handoff.closed(client.listener, client.host))
            return
        sock = socket.socket(fileno=fd)
        try:
            self._server.accept(sock, client.listener, client.host, client.port)
        except OSError as error:
            self.cannot_serve(client, error)
            sock.close()
            self._say(handoff.closed(client.listener, client.host))

    def cannot_serve(self, client: Client | Connection, error: OSError) -> None:
        """Log that a connection has failed before it was served: a client that resets it causes that."""
        where = (client.host, client.port, client.listener)
        self._refusals.write(time.monotonic(), client.listener, "cannot serve %s:%d on %s: %s", *where, error)

    def _lost(self, link: Channel) -> None:
        self._server.loop.unwatch(link.fileno())
        link.close()
        self._channel = None
        self._handed_back.clear()
        if self._server.draining or self._drain_said:
            self.ended = True

    def _watch_writes(self, link: Channel) -> None:
        self._server.loop.rewatch(link.fileno(), select.EPOLLIN | (select.EPOLLOUT if link.wants_write else 0))
        if not link.wants_write:
            for connection in self._handed_back:
                connection.sock.close()
            self._handed_back.clear()

    def closed(self, connection: Connection) -> None:
        """Report a closed connection to the acceptor, or one that another worker has."""
        self._say(handoff.closed(connection.listener, connection.host))

    def opened(self, connection: Connection) -> None:
        """Report a connection that did not come from the acceptor."""
        self._say(handoff.opened(connection.listener, connection.host))

    def _say(self, message: bytes) -> None:
        link = self._channel
        if link is not None:
            link.send(message)
            if link.wants_write:
                self._watch_writes(link)

    def drain(self) -> None:
        """Accept no more connections."""
        if self._channel is None:
            self.ended = self._drain_said = True
        elif not self._drain_said:
            self._drain_said = True
            self._say(handoff.DRAIN)

    def resume(self) -> None:
        """Accept connections again, after `drain`: with another registration, since an acceptor forgets no DRAIN."""
        self._resumes = self._drain_said

    def _begin_again(self) -> None:
        """Only when `ended`: an acceptor closes the connections on their way to a worker whose channel ends."""
        if self._channel is not None:
            self._lost(self._channel)
        self._resumes = self._drain_said = self.ended = False

    def hand_back(self) -> None:
        """Hand connections at a request boundary to the other workers; close them when the whole broker stops.

        A connection with an unfinished frame cannot be handed over, since this worker holds its start: it is closed.
        One that stays is closed with its last answer.
        """
        server = self._server
        self._drop_unfinished()
        for connection in [c for c in server.loop.connections.values() if c.idle]:
            if server.shared.draining or self._channel is None:
                server.drop(connection, "closed: the broker is stopping")
            elif not _stays(connection):
                self._give(connection)
        if not server.shared.draining:
            now = time.monotonic()
            for connection in filter(_stays, server.loop.connections.values()):
                self._last_answers.add(connection, now)

    def keep(self, connection: Connection) -> None:
        """Do not close it with its next answer, though the worker drains."""
        self._last_answers.forget(connection)

    def close_answered(self) -> None:
        """Close connections that have got their last answer. Called after each turn of a draining worker."""
        if self._last_answers.turn(time.monotonic()):
            self._server.loop.finish_round()

    def _drop_unfinished(self) -> None:
        now = int(time.monotonic())
        for connection in [c for c in self._server.loop.connections.values() if c.only_receives and not c.idle]:
            if connection.active:
                connection.active, connection.last_active = False, now
            elif now - connection.last_active > UNFINISHED_S:
                self._server.drop(connection, "closed: the worker is stopping, and the request is incomplete")

    def _give(self, connection: Connection) -> None:
        link = self._channel
        assert link is not None
        self._server.loop.give_up(connection)
        self._handed_back.append(connection)
        link.send(handoff.back(Client(connection.listener, connection.host, connection.port)), [connection.fd])
        self._watch_writes(link)


def _stays(connection: Connection) -> bool:
    """Whether no other process can have it: none knows its keys, or what its SASL exchange may do again."""
    return connection.tls is not None or connection.exchange is not None
