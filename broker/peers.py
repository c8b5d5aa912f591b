"""Connections from this broker's controller process to other brokers: requests in order, and who is gone at once.

A dead process closes its connections, and a host whose broker is dead refuses new ones, all in milliseconds, where a
session with ZooKeeper lasts for seconds. So each peer tells its broker's standing: REACHED, or REFUSED when nobody
listens there. REFUSED is a suspicion, not knowledge: whoever acts on it must be right also when it is wrong
(broker.elected). What does not answer at all is left to the session.

Requests to a broker are sent one at a time, in order, and again after a lost connection, until the peer is closed: the
receiver takes each twice without harm (Kafka's RequestSendThread).
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from odradek.cluster.view import CONTROLLER

log = logging.getLogger(__name__)

REACHED, REFUSED = "reached", "refused"
CLIENT_ID = CONTROLLER
_AGAIN_S = 0.02  # after a refusal or a loss; doubled up to
_LONGEST_PAUSE_S = 0.5
_CONNECT_S = 3.0
_SETTLED_S = 1.0  # a connection that lasted so long may be made again at once
_LARGEST = 64 << 20
_LENGTH = struct.Struct(">i")

Encode = Callable[[int], bytes]  # correlation id → the whole frame
Answered = Callable[[bytes], None]  # the response frame without its length


class _Request(NamedTuple):
    encode: Encode
    answered: Answered


class Sources(Protocol):
    """Where a peer has its descriptor watched: the controller's loop."""

    def watch(self, fd: int, events: int, ready: Callable[[int], None]) -> None:
        """Call `ready(events)` whenever one of `events` is there; replaces what was said before of `fd`."""

    def unwatch(self, fd: int) -> None:
        """Forget `fd`."""


class Peer:
    """One broker. `changed(broker, REACHED | REFUSED)` is called when that is another than last told."""

    def __init__(
        self, broker: int, address: tuple[str, int], sources: Sources, changed: Callable[[int, str], None]
    ) -> None:
        self.broker = broker
        self.address = address
        self._sources = sources
        self._changed = changed
        self._standing = ""
        self._queue: deque[_Request] = deque()
        self._sock: socket.socket | None = None
        self._connected = False
        self._under_way = False
        self._correlation = 0
        self._out = b""
        self._in = bytearray()
        self._next_try = self._since = 0.0
        self._pause = _AGAIN_S
        self._connect()

    @property
    def idle(self) -> bool:
        """Whether everything sent is answered."""
        return not self._queue

    @property
    def next_try(self) -> float | None:
        """When `tick` has something to do (monotonic seconds)."""
        return None if self._connected else self._next_try

    def send(self, encode: Encode, answered: Answered) -> None:
        """Send a request behind those sent before."""
        self._queue.append(_Request(encode, answered))
        self._start()

    def forget(self) -> None:
        """Forget what was not answered: the broker is taken for dead, and told everything if it is not."""
        self._queue.clear()
        self._under_way = False
        self._out = b""

    def close(self) -> None:
        """Forget the connection and what was not answered."""
        self.forget()
        self._drop()

    def tick(self, now: float) -> None:
        """Connect again when it is time, give a connection up that does not come."""
        if self._connected or now < self._next_try:
            return
        self._drop()
        self._connect()

    # -- the connection

    def _connect(self) -> None:
        self._next_try = time.monotonic() + _CONNECT_S
        try:
            family, kind, _, _, address = socket.getaddrinfo(*self.address, type=socket.SOCK_STREAM)[0]
            self._sock = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            code = self._sock.connect_ex(address)
        except OSError as error:
            self._lost(error.errno or 0)
            return
        if code not in (0, errno.EINPROGRESS):
            self._lost(code)
            return
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sources.watch(self._sock.fileno(), select.EPOLLOUT | select.EPOLLIN, self._event)

    def _lost(self, code: int) -> None:
        """The connection is gone or did not come; try again soon."""
        self._drop()
        now = time.monotonic()
        if now - self._since > _LONGEST_PAUSE_S * 4:
            self._pause = _AGAIN_S
        self._next_try = now + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_S)
        if code == errno.ECONNREFUSED:
            self._tell(REFUSED)

    def _drop(self) -> None:
        if self._sock is not None:
            self._sources.unwatch(self._sock.fileno())
            self._sock.close()
        self._sock, self._connected, self._under_way = None, False, False
        self._out = b""
        self._in.clear()

    def _tell(self, standing: str) -> None:
        if standing != self._standing:
            self._standing = standing
            self._changed(self.broker, standing)

    # -- events

    def _event(self, events: int) -> None:
        assert self._sock is not None
        if not self._connected:
            code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._lost(code)
                return
            if not events & select.EPOLLOUT:
                return
            self._connected, self._since = True, time.monotonic()
            self._watch()
            self._tell(REACHED)
            self._start()
            return
        if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            self._receive()
        if events & select.EPOLLOUT and self._connected:
            self._flush()

    def _watch(self) -> None:
        if self._sock is not None:
            wanted = select.EPOLLIN | (select.EPOLLOUT if self._out else 0)
            self._sources.watch(self._sock.fileno(), wanted, self._event)

    def _start(self) -> None:
        """Send the first request of the queue, if none is under way."""
        if self._connected and self._queue and not self._under_way:
            self._under_way = True
            self._correlation = (self._correlation + 1) & 0x7FFFFFFF
            self._out = self._queue[0].encode(self._correlation)
            self._flush()

    def _flush(self) -> None:
        assert self._sock is not None
        try:
            while self._out:
                self._out = self._out[self._sock.send(self._out) :]
        except BlockingIOError:
            pass
        except OSError as error:
            self._again(error)
            return
        self._watch()

    def _receive(self) -> None:
        assert self._sock is not None
        try:
            data = self._sock.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError as error:
            self._again(error)
            return
        if not data:
            self._again(None)
            return
        self._in += data
        self._take_answers()

    def _take_answers(self) -> None:
        while len(self._in) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._in)
            if not 4 <= size <= _LARGEST or not self._under_way:
                log.error("broker %d answers what nobody asked for: connecting again", self.broker)
                self._again(None)
                return
            if len(self._in) < _LENGTH.size + size:
                return
            frame = bytes(self._in[_LENGTH.size : _LENGTH.size + size])
            del self._in[: _LENGTH.size + size]
            self._answer(frame)

    def _answer(self, frame: bytes) -> None:
        request = self._queue.popleft()
        self._under_way = False
        try:
            request.answered(frame)
        except Exception:
            log.exception("an answer of broker %d could not be used", self.broker)
        self._start()

    def _again(self, error: OSError | None) -> None:
        """An established connection was lost: is anybody still there? (At once, but not again and again.)"""
        log.info("broker %d: connection lost%s", self.broker, f": {os.strerror(error.errno or 0)}" if error else "")
        if time.monotonic() - self._since < _SETTLED_S:
            self._lost(0)
            return
        self._drop()
        self._connect()
