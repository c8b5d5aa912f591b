"""A connection to another broker: one request under way, its answer received into one buffer, used where it lies.

Refused or lost, it is tried again after AGAIN_MS, doubled up to `Limits.longest_ms`; at once after `hurry`, and when it
had lasted for SETTLED_MS. What is malformed, not asked for, or does not come in time closes it. So does silence of the
other host for SILENT_S, idle or not: TCP would wait for as long again as the network was away before it sends the next
packet, and the cluster with it. Times are in ms of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import time
from errno import EINPROGRESS
from typing import NamedTuple, Protocol

from odradek.broker.interbroker.resolver import Resolver
from odradek.protocol.wire import I32, WireError

log = logging.getLogger(__name__)

AGAIN_MS, LONGEST_MS = 20, 1000
SETTLED_MS = 1000
CONNECT_MS = 3000  # the kernel's pauses between attempts double, too
SILENT_S = 5
SMALL = 64 << 10
SMALL_IN_A_ROW = 16  # answers after which a large buffer is given back

Address = tuple[str, int]


class Limits(NamedTuple):
    """Bytes of answers as they usually are, and at most; ms to wait for one; SO_RCVBUF, -1 for the kernel's choice; the
    longest pause in ms between attempts to connect."""

    usual: int
    most: int
    patience_ms: int
    receive_buffer: int
    longest_ms: int = LONGEST_MS


class ConnectionHandler(Protocol):
    """What is said on a link, and who polls its socket."""

    def watch(self, fd: int, events: int) -> None:
        """Poll `fd` for `events` from now on; 0: not at all, it is about to be closed."""

    def request(self, link: Link) -> bytes | None:
        """The next frame to send; None when there is nothing to ask now."""

    def answer(self, link: Link, frame: memoryview) -> None:
        """The answer to it, without its length, valid during the call. WireError: it is none.

        Who knows already what to ask next may call `ask` before it uses the answer.
        """

    def lost(self, link: Link) -> None:
        """The connection is gone, and so is what was under way."""


class Link:
    """One connection, made as soon as `tick` is called first."""

    def __init__(
        self, name: str, address: Address, talk: ConnectionHandler, resolver: Resolver, limits: Limits
    ) -> None:
        self.name = name
        self.address = address
        self._talk, self._resolver, self._limits = talk, resolver, limits
        self._sock: socket.socket | None = None
        self._up = self._busy = self._writing = self._resolving = False
        self._due_ms = 0  # next attempt, or end of patience
        self._since_ms = 0  # when the connection was made
        self._again_ms = AGAIN_MS
        self._attempts = self._refusals = 0  # since then; and how many of the last were refused
        self._addresses = 1  # of the host
        self._fault = ""  # said in the log, so that it is said once
        self._out = memoryview(b"")
        self._frame = Frame(limits)

    @property
    def up(self) -> bool:
        """Whether the connection stands."""
        return self._up

    @property
    def refused(self) -> bool:
        """Whether nobody listens there: the last attempts, one for each address of the host, were refused."""
        return self._refusals >= self._addresses

    @property
    def due_ms(self) -> int | None:
        """When `tick` has something to do; None while nothing is under way."""
        return None if self._up and not self._busy else self._due_ms

    @property
    def _patience_ms(self) -> int:
        most = self._limits.patience_ms
        return most if self._up else min(CONNECT_MS, most)

    def hurry(self) -> None:
        """Somebody may be there now: do not wait for the next attempt."""
        if self._sock is None:
            self._due_ms, self._again_ms = 0, AGAIN_MS

    def resolved(self) -> None:
        """The resolver has found something."""
        if self._resolving:
            self._due_ms = 0

    def ask(self) -> None:
        """There may be something to ask: at once, if the connection stands and nothing is under way."""
        request = self._talk.request(self) if self._up and not self._busy else None
        if request is not None:
            self._busy, self._due_ms = True, _now_ms() + self._limits.patience_ms
            self._out = memoryview(request)
            self._send()

    def tick(self, now_ms: int) -> None:
        """Ask if there is something to ask; connect when it is time; lose patience."""
        if self._up and not self._busy:
            self.ask()
        elif now_ms >= self._due_ms and self._sock is None:
            self._connect(now_ms)
        elif now_ms >= self._due_ms:
            self._lose(TimeoutError(f"no {'answer' if self._up else 'connection'} within {self._patience_ms} ms"))

    def ready(self, events: int) -> None:
        """The socket is readable, writable, or broken."""
        try:
            if not self._up:
                self._connected()
            elif events & ~select.EPOLLOUT:
                self._receive()
            elif self._out:
                self._send()
        except (OSError, WireError) as error:
            self._lose(error)

    def close(self) -> None:
        """Let go of the connection and of what is under way."""
        if self._sock is not None:
            self._talk.watch(self._sock.fileno(), 0)
            self._sock.close()
        self._sock = None
        self._up = self._busy = self._writing = self._resolving = False
        self._out, self._frame = memoryview(b""), Frame(self._limits)

    # -- the connection

    def _connect(self, now_ms: int) -> None:
        self._due_ms = now_ms + self._patience_ms
        try:
            addresses = self._resolver.ask(*self.address)
            if addresses is None:  # asked again as soon as the resolver knows
                self._resolving, self._due_ms = True, now_ms + LONGEST_MS
                return
            self._resolving, self._addresses = False, len(addresses)
            family, kind, _, _, address = addresses[self._attempts % len(addresses)]
            self._sock = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            if self._limits.receive_buffer > 0:
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._limits.receive_buffer)
            code = self._sock.connect_ex(address)
            if code not in (0, EINPROGRESS):
                raise OSError(code, os.strerror(code))
            _set_options(self._sock)
        except OSError as error:
            self._lose(error)
            return
        self._talk.watch(self._sock.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def _connected(self) -> None:
        assert self._sock is not None
        code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        self._up, self._since_ms = True, _now_ms()
        self._attempts = self._refusals = 0
        log.log(logging.INFO if self._fault else logging.DEBUG, "%s: connected", self.name)
        self._talk.watch(self._sock.fileno(), select.EPOLLIN)
        self.ask()

    def _lose(self, error: OSError | WireError) -> None:
        """Say why, once, and try again: after a while, unless the connection had lasted."""
        why, now_ms = (error.strerror if isinstance(error, OSError) else None) or str(error), _now_ms()
        log.log(logging.WARNING if why != self._fault else logging.DEBUG, "%s: %s", self.name, why)
        self._fault = why
        self._attempts += 1
        self._refusals = self._refusals + 1 if isinstance(error, ConnectionRefusedError) and not self._up else 0
        lasted = self._up and now_ms >= self._since_ms + SETTLED_MS
        self.close()
        self._due_ms, self._again_ms = now_ms + self._again_ms, min(2 * self._again_ms, self._limits.longest_ms)
        if lasted:
            self.hurry()
        self._talk.lost(self)

    # -- requests and answers

    def _send(self) -> None:
        assert self._sock is not None
        try:
            self._out = self._out[self._sock.send(self._out) :]
        except BlockingIOError:
            pass
        except OSError as error:
            self._lose(error)
            return
        if bool(self._out) != self._writing:
            self._writing = bool(self._out)
            self._talk.watch(self._sock.fileno(), select.EPOLLIN | (select.EPOLLOUT if self._writing else 0))

    def _receive(self) -> None:
        """Whatever has come; when that is a whole answer, its use, and the next request."""
        assert self._sock is not None
        frame = self._frame
        while not frame.whole:
            try:
                count = self._sock.recv_into(frame.room)
            except BlockingIOError:
                return
            if not count:
                raise OSError(0, "closed by the other side")
            frame.take(count)
        if not self._busy or self._out:
            raise WireError("an answer that nobody has asked for")
        self._busy = False
        self._talk.answer(self, frame.content)
        self._fault = ""
        frame.clear()
        self.ask()


class Frame:
    """The answer that is being received: its length, and then itself, in one buffer that fits most."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._buffer = memoryview(bytearray(SMALL))
        self._filled = 0
        self._end = 0  # 0: not known yet
        self._small = 0  # answers in a row that needed no large buffer

    @property
    def whole(self) -> bool:
        """Whether there is all of it."""
        return self._filled == self._end > 0

    @property
    def room(self) -> memoryview:
        """Where the next bytes go."""
        return self._buffer[self._filled : self._end or None]

    @property
    def content(self) -> memoryview:
        """The answer without its length."""
        return self._buffer[4 : self._end]

    def take(self, count: int) -> None:
        """`count` bytes have come into `room`. WireError: its length cannot be."""
        self._filled += count
        if not self._end and self._filled >= 4:
            (size,) = I32.unpack_from(self._buffer)
            if not max(4, self._filled - 4) <= size <= self._limits.most:
                raise WireError(f"an answer of {size} bytes, of which {self._filled - 4} have come")
            self._end = 4 + size
            self._grow()

    def _grow(self) -> None:
        if self._end > len(self._buffer):
            former, self._buffer = self._buffer, memoryview(bytearray(max(self._end, self._limits.usual)))
            self._buffer[: self._filled] = former[: self._filled]

    def clear(self) -> None:
        """The answer has been used: make room for the next."""
        self._small = self._small + 1 if self._end <= SMALL else 0
        if len(self._buffer) > self._limits.usual or (len(self._buffer) > SMALL and self._small >= SMALL_IN_A_ROW):
            self._buffer = memoryview(bytearray(SMALL))
        self._filled = self._end = 0


def _set_options(sock: socket.socket) -> None:
    """Send at once, and notice a silent host: probed after a second without traffic, then each second."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    tcp = {
        socket.TCP_NODELAY: 1, socket.TCP_KEEPIDLE: 1, socket.TCP_KEEPINTVL: 1, socket.TCP_KEEPCNT: SILENT_S,
        socket.TCP_USER_TIMEOUT: SILENT_S * 1000,
    }  # fmt: skip
    for option, value in tcp.items():
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
