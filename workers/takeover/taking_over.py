"""The worker that replaces another: serves the connections that it gets, from the first byte that was not taken.

Owner: the worker. A crash closes its connections, as that of any worker; the giver closes those on their way.
"""

from __future__ import annotations

import logging
import os
import select
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from odradek.ipc import channel
from odradek.ipc.channel import Channel
from odradek.security.principal import Principal
from odradek.workers.net.acceptor_channel import AcceptorChannel
from odradek.workers.net.connection import Connection
from odradek.workers.net.loop import Loop
from odradek.workers.net.removed_listeners import RemovedListeners
from odradek.workers.takeover import takeover_messages
from odradek.workers.takeover.handing_over import mute_again
from odradek.workers.takeover.handover import Abandon, Answer, Hello, Report, Serve, Taker, TakerEffect
from odradek.workers.takeover.takeover_messages import Kept

if TYPE_CHECKING:
    from odradek.workers.authentication.authentication import Authentication
    from odradek.workers.quotas.muting import Muting

log = logging.getLogger(__name__)


class Server(Protocol):
    """The worker."""

    loop: Loop
    muting: Muting
    acceptance: AcceptorChannel
    authentication: Authentication | None
    listeners: RemovedListeners


class TakingOver:
    """One take-over, over a channel to the giver."""

    def __init__(self, server: Server, link: Channel) -> None:
        self._server = server
        self._link = link
        self._machine = Taker()
        self._came: tuple[bytes, int] = (b"", channel.LOST)  # the message and descriptor that Serve is about
        server.loop.watch(link.fileno(), self._ready)
        self._apply(self._machine.begin())

    def _ready(self, _: int) -> None:
        self._link.flush()
        try:
            messages = self._link.receive()
        except EOFError:
            self._apply(self._machine.gone())
            self._close()
            return
        fds = self._link.take_fds()
        for message in messages:
            self._take(message, fds)
        for fd in fds:  # of messages that were not taken
            _close(fd)
        self._watch_writes()

    def _take(self, message: bytes, fds: list[int]) -> None:
        if message[:1] == takeover_messages.END:
            self._apply(self._machine.end())
        elif message[:1] == takeover_messages.GIVE and self._link.fileno() >= 0:
            self._came = message, fds.pop(0) if fds else channel.LOST
            self._apply(self._machine.given(takeover_messages.number_of(message)))

    def _apply(self, effects: Sequence[TakerEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Hello):
                self._link.send(takeover_messages.versions(effect.oldest, effect.newest))
            elif isinstance(effect, Serve):
                self._serve(effect.number)
            elif isinstance(effect, Answer):
                kind = takeover_messages.TOOK if effect.served else takeover_messages.NOT_TAKEN
                self._link.send(takeover_messages.numbered(kind, effect.number))
            elif isinstance(effect, Report):
                _report(effect)
            elif isinstance(effect, Abandon):
                log.error("taking over has ended: %s", effect.why)
                _close(self._came[1])
                self._close()

    # -- a connection

    def _serve(self, number: int) -> None:
        """Take it, or refuse it before a byte is read: then its giver goes on with it."""
        message, fd = self._came
        connection = None
        try:
            kept = takeover_messages.kept(message)
            connection = self._made(kept, fd)
            self._server.loop.add(connection)
        except (ValueError, OSError, KeyError) as error:
            log.warning("cannot take over a connection: %s", error)
            _close(fd) if connection is None else connection.sock.close()
            self._apply(self._machine.unable(number))
            return
        self._server.acceptance.opened(connection)
        self._apply(self._machine.served(number))
        self._continue(connection, kept)

    def _made(self, kept: Kept, fd: int) -> Connection:
        """The connection as it was. Raises ValueError, KeyError, and OSError; leaves `fd` open then."""
        if fd == channel.LOST:
            raise ValueError("its descriptor was lost: raise `ulimit -n`")
        if kept.listener not in self._server.listeners.protocols:
            raise ValueError(f"there is no listener {kept.listener} any more")
        principal = Principal(*kept.principal)
        exchange = None
        if kept.session is not None:
            if self._server.authentication is None:
                raise ValueError(f"listener {kept.listener} is not secured here")
            exchange = self._server.authentication.resumed(kept.listener, kept.session, principal, kept.by_token)
        connection = Connection(_socket(fd), kept.listener, kept.host, kept.port)
        connection.principal, connection.by_token, connection.exchange = principal, kept.by_token, exchange
        connection.client_head = kept.client_head
        connection.client_id = kept.client_head[2:].decode("utf-8", "replace") or None
        return connection

    def _continue(self, connection: Connection, kept: Kept) -> None:
        """Take the requests that have come already, unless the client is throttled."""
        server = self._server
        if server.authentication is not None:
            server.authentication.authenticated(connection)
        if kept.received:
            connection.backlog = memoryview(bytearray(kept.received)), 0, len(kept.received)
        mute_again(server.muting, connection, kept.muted_until_ms / 1000)
        if not connection.state:
            server.loop.framing.resume(connection)

    # -- the channel

    def _watch_writes(self) -> None:
        if self._link.fileno() >= 0:
            events = select.EPOLLIN | (select.EPOLLOUT if self._link.wants_write else 0)
            self._server.loop.rewatch(self._link.fileno(), events)

    def _close(self) -> None:
        if self._link.fileno() >= 0:
            self._server.loop.unwatch(self._link.fileno())
            self._link.close()


def _socket(fd: int) -> socket.socket:
    sock = socket.socket(fileno=fd)
    sock.setblocking(False)
    return sock


def _close(fd: int) -> None:
    try:
        if fd != channel.LOST:
            os.close(fd)
    except OSError:
        pass


def _report(effect: Report) -> None:
    if effect.whole:
        log.info("took over %d connections", effect.taken)
    else:
        log.warning("took over %d connections before the former worker ended", effect.taken)
