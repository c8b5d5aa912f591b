"""Connections whose peers are not known yet: TLS handshakes and SASL exchanges, apart from the loop of known ones.

Each peer has until `odradek.authentication.timeout.ms` for all of it. At most MOST peers wait here; the oldest goes for
a new one. Their frames are bounded by the exchange (security.sasl.exchange), and all bytes that wait here together by
MOST_HELD: the peer that holds most goes first. Steps are taken in slices of STEPS_S a turn of the loop, so that a flood
of handshakes cannot starve the known connections. A peer that fails is read no more, and closed after the delay that
the exchange asks for. Sockets are closed when the loop's round ends, so that no event of the round is taken for one of
a new connection with the same descriptor.
"""

from __future__ import annotations

import logging
import select
import socket
import ssl
import time
from collections.abc import Callable
from typing import Protocol, cast

from odradek.security.principal import Principal
from odradek.security.sasl.exchange import Effect, Exchange, Fail, Now, Send, Session
from odradek.security.sasl.exchange_states import State
from odradek.security.sasl.sasl_requests import SASL_HANDSHAKE
from odradek.security.tls.contexts import OP_ENABLE_KTLS
from odradek.security.tls.handshake import Handshake, Progress
from odradek.security.tls.principal_mapping import NoMatchingRule
from odradek.workers.authentication.listener_security import ListenerSecurity
from odradek.workers.authentication.peer import IN, Peer
from odradek.workers.net.bounded_log import BoundedLog
from odradek.workers.net.buffered_tls import BufferedTls
from odradek.workers.net.connection import Connection, Tls
from odradek.workers.net.tls_socket import TlsSocket

log = logging.getLogger(__name__)

MOST = 4096  # peers
MOST_HELD = 32 << 20  # bytes of incomplete frames
MOST_LINES = 10  # of failures in the log, a second
STEPS_S = 0.002
DRAIN_S = 1.0  # for all that is left of authentications when the worker stops
_RECEIVED = bytearray(64 << 10)  # from a socket to an exchange, one at a time
HANDSHAKE = SASL_HANDSHAKE.to_bytes(2, "big")  # the first bytes of such a frame
EXPIRED = "closed: its session has expired (connections.max.reauth.ms)"
_NO_SIGNAL = int(socket.MSG_NOSIGNAL)
_OUT = int(select.EPOLLOUT)
_GONE = int(select.EPOLLHUP | select.EPOLLERR)


class Loop(Protocol):
    """What this needs of workers.net.loop."""

    def watch(self, fd: int, handler: Callable[[int], None], events: int) -> None: ...
    def rewatch(self, fd: int, events: int) -> None: ...
    def unwatch(self, fd: int) -> None: ...
    def close(self, connection: Connection) -> None: ...


class Owner(Protocol):
    """What this needs of the worker."""

    def admit(self, connection: Connection, data: bytes) -> None:
        """Take the requests of a known peer; `data` has come already."""

    def refuse(self, connection: Connection) -> None:
        """The connection is closed: count it no more."""

    def again(self, work: Callable[[], bool]) -> None:
        """Call `work` every millisecond until it returns True."""


class Unauthenticated:
    """All peers of one worker that are not known yet."""

    def __init__(self, loop: Loop, owner: Owner, timeout_s: float) -> None:
        """`timeout_s`: for all of a peer's authentication."""
        self._loop = loop
        self._owner = owner
        self._timeout_s = timeout_s
        self._timed_out = "it took longer than odradek.authentication.timeout.ms"
        self.peers: dict[int, Peer] = {}  # by descriptor, the oldest first
        self._ready: dict[Peer, int] = {}  # with the events of their sockets
        self._runs = False  # `_run` is called again
        self._failing: dict[Peer, None] = {}
        self._held = 0
        self._log = BoundedLog(log, logging.INFO, "failed authentications", MOST_LINES, 1)
        self.failures = 0

    # -- peers come

    def take(self, connection: Connection, security: ListenerSecurity) -> None:
        """Begin with a new connection; close it if its listener cannot be secured. Raises OSError if it is dead."""
        peer = self._new(connection, security)
        if security.fault:
            log.debug("%r: refused: %s", connection, security.fault)
            self._loop.close(connection)
            self._owner.refuse(connection)
            return
        if security.tls is not None:
            connection.sock = connection.tls = tls = _wrap(connection, security.tls.server)
            peer.handshake = tls.handshake(peer.deadline)
        elif security.sasl is not None:
            peer.exchange = Exchange(security.sasl)
        self._add(peer)

    def take_back(self, connection: Connection, security: ListenerSecurity, data: bytes) -> None:
        """Take a known connection that must authenticate again, with the bytes that have come already."""
        peer = self._new(connection, security)
        peer.exchange, peer.early = connection.exchange, data
        self._add(peer)
        self._event(peer, 0)

    def _new(self, connection: Connection, security: ListenerSecurity) -> Peer:
        return Peer(connection, security, time.monotonic() + self._timeout_s)

    def _add(self, peer: Peer) -> None:
        fd = peer.connection.fd
        self._loop.watch(fd, lambda events: self._event(peer, events), peer.mask)
        self.peers[fd] = peer
        if len(self.peers) > MOST:
            self._end(next(iter(self.peers.values())), f"more than {MOST} connections wait for authentication")

    def close_listener(self, name: str) -> None:
        """Close the peers of a listener that was removed."""
        for peer in [peer for peer in self.peers.values() if peer.connection.listener == name]:
            self._close(peer, "closed: its listener was removed")

    # -- events

    def _event(self, peer: Peer, events: int) -> None:
        self._ready[peer] = events
        if not self._runs:
            self._runs = True
            self._owner.again(self._run)

    def _run(self) -> bool:
        """Take steps of the ready peers for one slice; True when none is left."""
        until = time.monotonic() + STEPS_S
        while self._ready:
            peer = next(iter(self._ready))
            self._step(peer, self._ready.pop(peer))
            if time.monotonic() >= until:
                break
        self._runs = bool(self._ready)
        return not self._runs

    def _step(self, peer: Peer, events: int) -> None:
        if not self._has(peer):
            return
        try:
            self._take_step(peer, events)
        except OSError as error:
            self._close(peer, str(error))
        except Exception:  # a bug costs this connection, not the others
            log.exception("%r: authentication failed", peer.connection)
            self._close(peer, "closed after an internal error")

    def _take_step(self, peer: Peer, events: int) -> None:
        if events & _GONE:
            self._close(peer, "closed by the client")
        elif peer.failure is not None:
            return  # `tick` ends it
        elif peer.handshake is not None and not peer.handshake.is_over:
            self._shake_hands(peer, peer.handshake)
        elif peer.early:
            data, peer.early = peer.early, b""
            self._give(peer, data)
        elif peer.out:
            self._flush(peer)
        else:
            self._receive(peer)

    # -- TLS

    def _shake_hands(self, peer: Peer, handshake: Handshake) -> None:
        progress = handshake.step(time.monotonic())
        if progress is Progress.DONE:
            self._encrypted(peer)
        elif progress is Progress.FAILED:
            self._end(peer, f"TLS: {handshake.failure}")
        else:
            self._watch(peer, _OUT if progress is Progress.WANTS_WRITE else IN)

    def _encrypted(self, peer: Peer) -> None:
        tls, security = peer.connection.tls, peer.security
        assert tls is not None and security.tls is not None
        tls.established()
        if security.sasl is not None:
            peer.exchange = Exchange(security.sasl)
            self._watch(peer, IN)
            self._receive(peer)
            return
        try:
            principal = security.tls.mapper.principal(tls.peer_certificate)
        except ValueError as error:  # no rule is about it, or it is no certificate for the library
            self._end(peer, str(error) if isinstance(error, NoMatchingRule) else "the certificate cannot be read")
        else:
            self._admit(peer, principal, b"")

    # -- SASL

    def _receive(self, peer: Peer) -> None:
        """Receive once."""
        with memoryview(_RECEIVED) as room:
            try:
                count = peer.connection.sock.recv_into(room)
            except (BlockingIOError, InterruptedError):
                self._read_on(peer)
                return
            data = bytes(room[:count])
        if data:
            self._give(peer, data)
        else:
            self._close(peer, "closed by the client")

    def _read_on(self, peer: Peer) -> None:
        """Wait for more; epoll knows nothing of what OpenSSL has left."""
        self._watch(peer, IN)
        tls = peer.connection.tls
        if tls is not None and tls.has_more:
            self._event(peer, 0)

    def _give(self, peer: Peer, data: bytes) -> None:
        exchange = peer.exchange
        assert exchange is not None
        if exchange.state is State.COMPLETE:
            self._renew(peer, exchange, data)
        else:
            self._carry_out(peer, exchange.receive(data, now()))
        if self._has(peer):
            self._hold(peer, len(exchange.unread) + len(peer.out))

    def _renew(self, peer: Peer, exchange: Exchange, data: bytes) -> None:
        """Take the first frame of a known client, which must begin another exchange."""
        exchange.unread += data
        size = int.from_bytes(exchange.unread[:4], "big", signed=True)
        if len(exchange.unread) < 4 or (0 <= size <= exchange.most and len(exchange.unread) < 4 + size):
            self._read_on(peer)
            return
        taken, rest = bytes(exchange.unread[4 : 4 + size]), bytes(exchange.unread[4 + size :])
        if not 2 <= size <= exchange.most or taken[:2] != HANDSHAKE:
            self._close(peer, EXPIRED)
            return
        exchange.unread.clear()
        effects = exchange.reauthenticate(taken, now())
        if effects is None:
            self._close(peer, "closed: its session was renewed within the last second")
            return
        self._carry_out(peer, effects + exchange.receive(rest, now()))

    def _carry_out(self, peer: Peer, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                peer.out += effect.data
            elif isinstance(effect, Fail):
                self._fail(peer, effect)
                return
        self._flush(peer)

    def _flush(self, peer: Peer) -> None:
        """Send; read again, or leave, once all is sent."""
        if peer.out:
            try:
                peer.out = peer.out[peer.connection.sock.send(peer.out, _NO_SIGNAL) :]
            except (BlockingIOError, InterruptedError):
                pass
        if peer.out:
            self._watch(peer, _OUT)
            return
        exchange = peer.exchange
        if exchange is not None and exchange.state is State.COMPLETE and exchange.session is not None:
            data = bytes(exchange.unread)
            exchange.unread.clear()
            self._known(peer, exchange, exchange.session, data)
        else:
            self._read_on(peer)

    def _known(self, peer: Peer, exchange: Exchange, session: Session, data: bytes) -> None:
        peer.connection.exchange, peer.connection.by_token = exchange, session.by_token
        self._admit(peer, session.principal, data)

    # -- peers go

    def _admit(self, peer: Peer, principal: Principal, data: bytes) -> None:
        peer.connection.principal = principal
        self._forget(peer)
        log.debug("%r: authenticated as %s", peer.connection, principal)
        self._owner.admit(peer.connection, data)

    def _fail(self, peer: Peer, failure: Fail) -> None:
        """Read no more; `tick` sends the response, after the delay."""
        self._failed(peer, failure.reason)
        peer.failure, peer.fails_at = failure, time.monotonic() + failure.delay_ms / 1000
        self._failing[peer] = None
        self._watch(peer, _GONE)
        if not failure.delay_ms:
            self._answer_failure(peer, failure)

    def _answer_failure(self, peer: Peer, failure: Fail) -> None:
        try:
            data = peer.out + failure.response
            if data:
                peer.connection.sock.send(data, _NO_SIGNAL)
        except OSError:
            pass  # it gets no answer
        self._close(peer, "")

    def _end(self, peer: Peer, why: str) -> None:
        """Close a peer that has failed, without an answer."""
        self._failed(peer, why)
        self._close(peer, "")

    def _failed(self, peer: Peer, why: str) -> None:
        self.failures += 1
        self._log.write(time.monotonic(), "", "%r: authentication failed: %s", peer.connection, why)

    def _close(self, peer: Peer, why: str) -> None:
        if not self._has(peer):
            return
        if why:
            log.debug("%r: %s", peer.connection, why)
        self._forget(peer)
        self._loop.close(peer.connection)
        self._owner.refuse(peer.connection)

    def _has(self, peer: Peer) -> bool:
        """Whether it is still here: it may have been admitted, and its descriptor may belong to another."""
        return self.peers.get(peer.connection.fd) is peer

    def _forget(self, peer: Peer) -> None:
        del self.peers[peer.connection.fd]
        self._ready.pop(peer, None)
        self._failing.pop(peer, None)
        self._held -= peer.held
        self._loop.unwatch(peer.connection.fd)

    def _watch(self, peer: Peer, mask: int) -> None:
        if mask != peer.mask:
            peer.mask = mask
            self._loop.rewatch(peer.connection.fd, mask)

    def _hold(self, peer: Peer, size: int) -> None:
        """Account for the bytes that wait for a peer, and bound those of all."""
        self._held += size - peer.held
        peer.held = size
        if self._held > MOST_HELD:
            most = max(self.peers.values(), key=lambda one: one.held)
            self._end(most, f"more than {MOST_HELD} bytes wait for authentication, and most of them are its own")

    # -- time

    def tick(self, time_s: float) -> None:
        """Close those whose time is over; the oldest are the first, since all have the same time."""
        self._log.tick(time_s)
        for peer in [one for one in self._failing if one.fails_at <= time_s]:
            assert peer.failure is not None
            self._answer_failure(peer, peer.failure)
        while self.peers:
            peer = next(iter(self.peers.values()))
            if peer.deadline > time_s:
                return
            self._end(peer, self._timed_out)

    def drain(self) -> None:
        """The worker is stopping: those that are about to be known may end it, and reconnect after that."""
        self._timeout_s, self._timed_out = DRAIN_S, "the worker is stopping"
        until = time.monotonic() + DRAIN_S
        for peer in self.peers.values():
            peer.deadline = min(peer.deadline, until)

    def close(self) -> None:
        """Close all."""
        for peer in list(self.peers.values()):
            self._close(peer, "closed: the worker is stopping")


def now() -> Now:
    """The time for an exchange."""
    return Now(time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000)


def _wrap(connection: Connection, context: ssl.SSLContext) -> Tls:
    """Only an SSLSocket can have its kernel encrypt; else memory costs less."""
    sock = cast(socket.socket, connection.sock)
    if context.options & OP_ENABLE_KTLS:
        return TlsSocket(context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False))
    return BufferedTls(sock, context)
