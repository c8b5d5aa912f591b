"""The socket on which the supervisor tells a worker to hand over connections, to take some over, or to be probed.

The socket is in the run directory, so only the broker's user can connect; `takeover_messages` has the messages. Until
`odradek upgrade` runs it costs a descriptor and nothing else.
"""

from __future__ import annotations

import logging
import os
import select
import socket
from pathlib import Path
from typing import Protocol

from odradek.ipc import channel
from odradek.ipc.channel import Channel
from odradek.ipc.roles import role_name
from odradek.workers.net.connection import Connection
from odradek.workers.takeover import handing_over, takeover_messages, taking_over
from odradek.workers.takeover.handing_over import HandingOver
from odradek.workers.takeover.taking_over import TakingOver

log = logging.getLogger(__name__)

PROBE_HOST = "upgrade"  # in the place of an address, so that no client is refused because of it


class Server(handing_over.Server, taking_over.Server, Protocol):
    """The worker."""

    role: int


class UpgradeDoor:
    """The socket, and what came of it."""

    def __init__(self, server: Server, run_dir: Path, seconds: float) -> None:
        """`seconds`: the most that a hand-over takes."""
        self._server = server
        self._seconds = seconds
        self._path = run_dir / takeover_messages.door(role_name(server.role))
        self._listener: channel.Listener | None = None
        self._handing: HandingOver | None = None

    def open(self) -> None:
        """Bind the socket, and take requests from now on. Raises OSError."""
        self._listener = listener = channel.Listener(self._path)
        self._server.loop.watch(listener.fileno(), lambda _: self._admit(listener))

    def close(self) -> None:
        """The worker ends."""
        if self._listener is not None:
            self._listener.close()

    def _admit(self, listener: channel.Listener) -> None:
        link = listener.accept()
        if link is not None:
            self._server.loop.watch(link.fileno(), lambda _: self._listen(link))

    def _listen(self, link: Channel) -> None:
        link.flush()
        try:
            messages = link.receive()
        except EOFError:
            self._server.loop.unwatch(link.fileno())
            link.close()
            return
        fds = link.take_fds()
        for message in messages:
            fd = fds.pop(0) if fds else channel.LOST
            self._carry_out(link, message[:1], fd)
        self._watch_writes(link)

    def _carry_out(self, link: Channel, kind: bytes, fd: int) -> None:
        if fd == channel.LOST:
            self._say(link, takeover_messages.FAILED + b"its descriptor was lost: raise `ulimit -n`")
        elif kind == takeover_messages.PROBE:
            self._probe(fd)
        elif kind == takeover_messages.TAKE_OVER:
            TakingOver(self._server, Channel(socket.socket(fileno=fd)))
        elif kind == takeover_messages.HAND_OVER and not self._busy():
            pair = Channel(socket.socket(fileno=fd))
            self._handing = HandingOver(self._server, pair, self._seconds, lambda message: self._say(link, message))
        else:
            os.close(fd)
            self._say(link, takeover_messages.FAILED + b"it stops, or hands over already")

    def _busy(self) -> bool:
        return self._server.draining or (self._handing is not None and not self._handing.over)

    def _probe(self, fd: int) -> None:
        """Serve a connection of the supervisor as one of a client that needs no authentication."""
        sock = socket.socket(fileno=fd)
        sock.setblocking(False)
        connection = Connection(sock, next(iter(self._server.listeners.protocols), ""), PROBE_HOST, 0)
        self._server.loop.add(connection)
        self._server.acceptance.opened(connection)

    def _say(self, link: Channel, message: bytes) -> None:
        if link.fileno() >= 0:
            link.send(message)
            self._watch_writes(link)

    def _watch_writes(self, link: Channel) -> None:
        if link.fileno() >= 0:
            self._server.loop.rewatch(link.fileno(), select.EPOLLIN | (select.EPOLLOUT if link.wants_write else 0))
