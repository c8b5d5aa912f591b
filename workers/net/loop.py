"""The worker's event loop: one epoll, and rounds over the ready descriptors. It knows bytes, frames by way of framing,
and no API.

A round: each readable connection receives what there is, and its whole frames are taken (workers.net.framing).
Pipelined requests collect; at the end of the round they are executed together, answers are sent, and dropped
descriptors are closed (never within the round: the kernel reuses their numbers).
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Protocol

from odradek.workers.net import connection_state, framing
from odradek.workers.net.busy_poll import BusyPoll
from odradek.workers.net.connection import Connection
from odradek.workers.net.framing import Framing
from odradek.workers.net.request_times import RequestTimes
from odradek.workers.net.sending import Sender
from odradek.workers.net.time_slices import TimeSlices

_READABLE = int(select.EPOLLIN)
_IN, _OUT, _RDHUP = int(select.EPOLLIN | select.EPOLLRDHUP), int(select.EPOLLOUT), int(select.EPOLLRDHUP)
_GONE = int(select.EPOLLHUP | select.EPOLLERR)


class Handler(framing.Handler, Protocol):
    """What the loop needs of the worker."""

    def before_events(self) -> None:
        """Called once per batch of events, before them."""


class Loop:
    """Connections and other descriptors of one worker."""

    def __init__(self, handler: Handler, largest: int, spin_us: int, times: RequestTimes) -> None:
        """`largest`: bytes of a request (socket.request.max.bytes)."""
        self._handler = handler
        self._flush = handler.flush
        self._epoll = select.epoll()
        self._poll = BusyPoll(self._epoll.poll, spin_us).wait
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._garbage: list[Connection] = []
        self._more: dict[Connection, None] = {}  # of which OpenSSL has bytes that epoll does not know of
        self.slices = TimeSlices(self._resume)
        self._times = times
        self.framing = Framing(handler, self._watch_input, self.slices.spend, largest, times)
        self.sender = Sender(handler.drop, self._watch_room, self.framing.resume, times)
        self.connections: dict[int, Connection] = {}
        self.bytes_in = 0

    def _resume(self, connection: Connection) -> None:
        self.framing.resume(connection)

    # -- descriptors

    def watch(self, fd: int, handler: Callable[[int], None], events: int = select.EPOLLIN) -> None:
        """Call `handler(events)` when `fd` is ready."""
        self._handlers[fd] = handler
        self._epoll.register(fd, events)

    def rewatch(self, fd: int, events: int) -> None:
        """Change the events that `fd` is watched for."""
        self._epoll.modify(fd, events)

    def unwatch(self, fd: int) -> None:
        """Stop watching `fd`."""
        del self._handlers[fd]
        self._epoll.unregister(fd)

    def add(self, connection: Connection) -> None:
        """Serve a new connection."""
        self._epoll.register(connection.fd, _IN)  # first: this may fail
        self.connections[connection.fd] = connection
        connection.mask = _IN
        connection.last_active = int(time.monotonic())

    def remove(self, connection: Connection) -> None:
        """Stop serving a connection; its socket is closed when the round ends."""
        if connection.fd in self.connections:
            self.give_up(connection)
            self._garbage.append(connection)

    def close(self, connection: Connection) -> None:
        """Close the socket of a connection that is not served when the round ends."""
        self._garbage.append(connection)

    def give_up(self, connection: Connection) -> None:
        """Stop serving a connection without closing it: another process continues with it, or it must authenticate."""
        del self.connections[connection.fd]
        connection.state = connection_state.CLOSED
        self._epoll.unregister(connection.fd)

    def _watch_input(self, connection: Connection, on: bool) -> None:
        self._want(connection, connection.mask | _IN if on else connection.mask & ~_IN)
        if on and connection.tls is not None and connection.tls.has_more:
            self._more[connection] = None

    def _watch_room(self, connection: Connection, on: bool) -> None:
        self._want(connection, connection.mask | _OUT if on else connection.mask & ~_OUT)

    def _want(self, connection: Connection, mask: int) -> None:
        if mask != connection.mask and not connection.closed:
            connection.mask = mask
            self._epoll.modify(connection.fd, mask)

    # -- a round

    def turn(self, timeout: float) -> None:
        """Wait for events at most `timeout` seconds and handle them."""
        sender, slices = self.sender, self.slices
        events = self._poll(0 if sender.unfinished or slices.resting or self._more else timeout)
        self._times.round_ns = time.monotonic_ns()
        self._handler.before_events()
        slices.timed = None
        if sender.unfinished:
            sender.send_unfinished()
        if slices.resting:
            slices.wake()
        if self._more:
            self._receive_more()
        connections = self.connections
        for fd, event in events:
            connection = connections.get(fd)
            if connection is None:
                handler = self._handlers.get(fd)
                if handler is not None:
                    handler(event)
            elif event == _READABLE:
                self._receive(connection)
            else:
                self._other(connection, event)
        self.finish_round()

    def _other(self, connection: Connection, event: int) -> None:
        """Handle an event other than plain readability."""
        if event & _OUT:
            connection.active = True
            self.sender.send(connection)
        if event & _RDHUP and connection.waits:
            self._handler.drop(connection, "closed by the client")
        elif event & _IN:
            self._receive(connection)
        elif event & _GONE:
            self._handler.drop(connection, "reset by the client")

    def _receive(self, connection: Connection) -> None:
        """Receive, and take whole requests, unless framing has the connection wait."""
        try:
            count = self.framing.receive(connection, connection.sock.recv_into)
        except (BlockingIOError, InterruptedError):
            connection.active = True
        except OSError as error:
            self._handler.drop(connection, str(error))
        else:
            if count:
                connection.active = True
                self.bytes_in += count
                if connection.tls is not None and connection.tls.has_more:
                    self._more[connection] = None
            elif count == 0:
                self._handler.drop(connection, "closed by the client")

    def _receive_more(self) -> None:
        """Receive what OpenSSL has kept; a connection that may not receive now is back when it is watched again."""
        more, self._more = self._more, {}
        for connection in more:
            if not connection.closed and connection.mask & _READABLE:
                self._receive(connection)

    def finish_round(self) -> None:
        """Execute the collected requests, answer them, and release the receive buffer."""
        self._flush()
        self.framing.fill = 0
        if self._garbage:
            for connection in self._garbage:
                connection.sock.close()
            self._garbage.clear()
