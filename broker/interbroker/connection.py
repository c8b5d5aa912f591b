"""A connection to another broker: one request in flight; its response is read into one buffer and used in place.

A refused or lost connection is retried after AGAIN_MS, doubled up to `LinkLimits.longest_ms`; at once after
`reconnect_now`, and if it had lasted for SETTLED_MS. A malformed, unrequested or late response closes it. So does
silence of the other host for SILENT_S, idle or not: after a network failure TCP would wait as long as the failure
lasted before it sends the next packet, and the cluster would wait with it. Times are in ms of CLOCK_MONOTONIC.

With a LinkSecurity the connection is secured before it counts as up: TLS handshake, then SASL, both within SECURE_MS.
When the session of SASL nears its end, the connection authenticates again in place of its next request.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import time
from errno import EINPROGRESS
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from odradek.broker.interbroker.resolver import Resolver
from odradek.protocol.wire import I32, WireError

if TYPE_CHECKING:
    from odradek.broker.interbroker.authentication import Authentication
    from odradek.broker.interbroker.link_security import LinkSecurity
    from odradek.broker.interbroker.secure_socket import SecureSocket

log = logging.getLogger(__name__)

AGAIN_MS, LONGEST_MS = 20, 1000
SETTLED_MS = 1000
CONNECT_MS = 3000  # the kernel's pauses between attempts double, too
SECURE_MS = 10_000  # for TLS and SASL
READY_MS = 50  # between looks whether there is something to authenticate with
SILENT_S = 5
SMALL = 64 << 10
SMALL_IN_A_ROW = 16  # responses after which a large buffer is freed

Address = tuple[str, int]


class LinkLimits(NamedTuple):
    """The usual and the largest response in bytes; ms to wait for one; SO_RCVBUF, -1 for the kernel's choice; the
    longest pause in ms between attempts to connect."""

    usual: int
    most: int
    timeout_ms: int
    receive_buffer: int
    longest_ms: int = LONGEST_MS


class ConnectionHandler(Protocol):
    """Makes a link's requests, takes the responses, polls its socket."""

    def watch(self, fd: int, events: int) -> None:
        """Poll `fd` for `events` from now on; 0: stop, it is about to be closed."""

    def request(self, link: Link) -> bytes | None:
        """The next frame to send; None when there is no request now."""

    def answer(self, link: Link, frame: memoryview) -> None:
        """The response without its length, valid during the call. Raises WireError when it is not valid.

        A handler that already knows the next request may call `send_next` before it uses the response.
        """

    def lost(self, link: Link) -> None:
        """The connection is lost, and so is the request in flight."""


class Link:
    """One connection; the first call of `tick` opens it."""

    def __init__(
        self, name: str, address: Address, talk: ConnectionHandler, resolver: Resolver, limits: LinkLimits,
        security: LinkSecurity | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.address = address
        self._handler, self._resolver, self._limits, self._security = talk, resolver, limits, security
        self._sock: Any = None  # a socket, or a SecureSocket
        self._handshake: SecureSocket | None = None  # the socket, while it is not done
        self._authentication: Authentication | None = None
        self._step = ""  # what secures the connection now, for the log
        self._up = self._busy = self._writing = self._resolving = False
        self._due_ms = 0  # next attempt, or timeout
        self._since_ms = 0  # when the connection was made
        self._backoff_ms = AGAIN_MS
        self._attempts = self._refusals = 0  # since then; and how many of the last ones were refused
        self._addresses = 1  # of the host
        self._fault = ""  # the last one logged, so that it is logged once
        self._out = memoryview(b"")
        self._frame = Frame(limits)

    @property
    def up(self) -> bool:
        """Whether the connection stands."""
        return self._up

    @property
    def refused(self) -> bool:
        """Whether no process listens there: the last attempts, one for each address of the host, were refused."""
        return self._refusals >= self._addresses

    @property
    def due_ms(self) -> int | None:
        """When `tick` has something to do; None while no request is in flight."""
        return None if self._up and not self._busy else self._due_ms

    @property
    def _timeout_ms(self) -> int:
        most = self._limits.timeout_ms
        return most if self._up else min(SECURE_MS if self._step else CONNECT_MS, most)

    def reconnect_now(self) -> None:
        """The broker may be up now: connect at the next `tick`, without a pause."""
        if self._sock is None:
            self._due_ms, self._backoff_ms = 0, AGAIN_MS

    def resolved(self) -> None:
        """The resolver has a result."""
        if self._resolving:
            self._due_ms = 0

    def send_next(self) -> None:
        """Send the next request, if there is one, the connection stands and no request is in flight."""
        if not self._up or self._busy:
            return
        if self._authentication is not None and self._authentication.is_due(_now_ms()):
            self._authenticate(self._authentication)
            return
        request = self._handler.request(self)
        if request is not None:
            self._due_ms = _now_ms() + self._limits.timeout_ms
            self._request(request)

    def tick(self, now_ms: int) -> None:
        """Send a request if there is one; connect when it is due; time out."""
        if self._up and not self._busy:
            self.send_next()
        elif now_ms >= self._due_ms and self._sock is None:
            self._connect(now_ms)
        elif now_ms >= self._due_ms:
            what = "answer" if self._up or self._step else "connection"
            self._lose(TimeoutError(f"no {what} within {self._timeout_ms} ms"))

    def ready(self, events: int) -> None:
        """The socket is readable, writable, or broken."""
        try:
            if self._handshake is not None:
                self._shake_hands(self._handshake)
            elif not self._up and not self._busy:
                self._connected()
            elif events & ~select.EPOLLOUT:
                self._receive()
            elif self._out:
                self._send()
        except (OSError, WireError) as error:
            self._lose(error)

    def close(self) -> None:
        """Close the connection and drop the request in flight."""
        if self._sock is not None:
            self._handler.watch(self._sock.fileno(), 0)
            self._sock.close()
        self._sock = self._handshake = self._authentication = None
        self._up = self._busy = self._writing = self._resolving = False
        self._out, self._frame, self._step = memoryview(b""), Frame(self._limits), ""

    # -- the connection

    def _connect(self, now_ms: int) -> None:
        if self._security is not None and not self._security.is_ready():
            self._due_ms = now_ms + READY_MS
            return
        self._due_ms = now_ms + self._timeout_ms
        try:
            addresses = self._resolver.resolve(*self.address)
            if addresses is None:  # retried as soon as the resolver knows
                self._resolving, self._due_ms = True, now_ms + LONGEST_MS
                return
            self._resolving, self._addresses = False, len(addresses)
            family, kind, _, _, address = addresses[self._attempts % len(addresses)]
            self._sock = sock = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            if self._limits.receive_buffer > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._limits.receive_buffer)
            code = sock.connect_ex(address)
            if code not in (0, EINPROGRESS):
                raise OSError(code, os.strerror(code))
            _set_options(sock)
        except OSError as error:
            self._lose(error)
            return
        self._handler.watch(sock.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def _connected(self) -> None:
        assert self._sock is not None
        code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        if self._security is None:
            self._open()
        else:
            self._secure(self._security, self._sock)

    def _secure(self, security: LinkSecurity, sock: socket.socket) -> None:
        """Begin with TLS, if the protocol has it."""
        self._step, self._due_ms = security.tls_step, _now_ms() + min(SECURE_MS, self._limits.timeout_ms)
        self._handler.watch(sock.fileno(), 0)
        self._sock = None  # `wrap` closes it when it fails
        self._handshake = security.wrap(sock, self.address[0])
        self._sock = self._handshake or sock
        self._handler.watch(self._sock.fileno(), select.EPOLLIN)
        if self._handshake is not None:
            self._shake_hands(self._handshake)
        else:
            self._secured(security)

    def _shake_hands(self, sock: SecureSocket) -> None:
        wanted = sock.handshake()
        self._handler.watch(sock.fileno(), wanted or select.EPOLLIN)
        if not wanted:
            self._handshake = None
            assert self._security is not None
            self._secured(self._security)

    def _secured(self, security: LinkSecurity) -> None:
        """TLS is done: go on with SASL, if the protocol has it."""
        self._authentication = security.authentication()
        if self._authentication is not None:
            self._authenticate(self._authentication)
        else:
            self._open()

    def _authenticate(self, authentication: Authentication) -> None:
        """Authenticate, also again while the connection is up."""
        assert self._security is not None
        self._step = self._security.sasl_step
        if self._up:
            self._due_ms = _now_ms() + self._limits.timeout_ms
        try:
            self._request(authentication.start())
        except OSError as error:
            self._lose(error)

    def _authenticated(self, authentication: Authentication, frame: bytes) -> None:
        request = authentication.receive(frame, _now_ms())
        if request is not None:
            self._request(request)
        elif self._up:
            self._step = ""
        else:
            self._open()

    def _open(self) -> None:
        assert self._sock is not None
        self._up, self._since_ms, self._step = True, _now_ms(), ""
        self._attempts = self._refusals = 0
        log.log(logging.INFO if self._fault else logging.DEBUG, "%s: connected", self.name)
        self._handler.watch(self._sock.fileno(), select.EPOLLIN)
        self.send_next()

    def _lose(self, error: OSError | WireError) -> None:
        """Log why, once, and retry: after a pause, unless the connection had lasted."""
        why, now_ms = (error.strerror if isinstance(error, OSError) else None) or str(error), _now_ms()
        why, longest_ms = (f"{self._step}: {why}", LONGEST_MS) if self._step else (why, self._limits.longest_ms)
        log.log(logging.WARNING if why != self._fault else logging.DEBUG, "%s: %s", self.name, why)
        self._fault = why
        self._attempts += 1
        self._refusals = self._refusals + 1 if isinstance(error, ConnectionRefusedError) and not self._up else 0
        lasted = self._up and now_ms >= self._since_ms + SETTLED_MS
        self.close()
        self._due_ms, self._backoff_ms = now_ms + self._backoff_ms, min(2 * self._backoff_ms, longest_ms)
        if lasted:
            self.reconnect_now()
        self._handler.lost(self)

    # -- requests and answers

    def _request(self, request: bytes) -> None:
        self._busy, self._out = True, memoryview(request)
        self._send()

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
            self._handler.watch(self._sock.fileno(), select.EPOLLIN | (select.EPOLLOUT if self._writing else 0))

    def _receive(self) -> None:
        """Read what has come; once the response is whole, use it and send the next request."""
        assert self._sock is not None
        frame, authentication = self._frame, self._authentication
        if authentication is not None and not authentication.under_way:
            authentication = None
        most = self._limits.most if authentication is None else SMALL
        while not frame.is_complete:
            try:
                count = self._sock.recv_into(frame.room)
            except BlockingIOError:
                return
            if not count:
                raise OSError(0, "closed by the other side")
            frame.add(count, most)
        if not self._busy or self._out:
            raise WireError("a response to no request")
        self._busy = False
        if authentication is not None:
            content = bytes(frame.content)
            frame.clear()
            self._authenticated(authentication, content)
        else:
            self._handler.answer(self, frame.content)
            self._fault = ""
            frame.clear()
        self.send_next()


class Frame:
    """The response being received: its length, then its content, in one buffer that fits most."""

    def __init__(self, limits: LinkLimits) -> None:
        self._limits = limits
        self._buffer = memoryview(bytearray(SMALL))
        self._filled = 0
        self._end = 0  # 0: not known yet
        self._small = 0  # responses in a row that needed no large buffer

    @property
    def is_complete(self) -> bool:
        """Whether the response is complete."""
        return self._filled == self._end > 0

    @property
    def room(self) -> memoryview:
        """Where the next bytes go."""
        return self._buffer[self._filled : self._end or None]

    @property
    def content(self) -> memoryview:
        """The response without its length."""
        return self._buffer[4 : self._end]

    def add(self, count: int, most: int) -> None:
        """`count` bytes have come into `room`. Raises WireError for an impossible length, or one above `most`."""
        self._filled += count
        if not self._end and self._filled >= 4:
            (size,) = I32.unpack_from(self._buffer)
            if not max(4, self._filled - 4) <= size <= most:
                raise WireError(f"an answer of {size} bytes, of which {self._filled - 4} have come")
            self._end = 4 + size
            self._grow()

    def _grow(self) -> None:
        if self._end > len(self._buffer):
            former, self._buffer = self._buffer, memoryview(bytearray(max(self._end, self._limits.usual)))
            self._buffer[: self._filled] = former[: self._filled]

    def clear(self) -> None:
        """The response has been used: make room for the next."""
        self._small = self._small + 1 if self._end <= SMALL else 0
        if len(self._buffer) > self._limits.usual or (len(self._buffer) > SMALL and self._small >= SMALL_IN_A_ROW):
            self._buffer = memoryview(bytearray(SMALL))
        self._filled = self._end = 0


def _set_options(sock: socket.socket) -> None:
    """Send at once, and detect a silent host: probe after a second without traffic, then each second."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    tcp = {
        socket.TCP_NODELAY: 1, socket.TCP_KEEPIDLE: 1, socket.TCP_KEEPINTVL: 1, socket.TCP_KEEPCNT: SILENT_S,
        socket.TCP_USER_TIMEOUT: SILENT_S * 1000,
    }  # fmt: skip
    for option, value in tcp.items():
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
