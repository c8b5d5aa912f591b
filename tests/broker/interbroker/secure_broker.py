"""A broker behind TLS and SASL, with the server side of security.sasl; it can fail at any step of the connection."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from odradek.security.sasl.exchange import Exchange, Fail, Now, SaslListener, Send
from odradek.security.sasl.exchange_states import State
from odradek.security.sasl.sasl_requests import SASL_AUTHENTICATE, SASL_HANDSHAKE

TLS, MECHANISM, CHALLENGE, ANSWER = "tls", "mechanism", "challenge", "answer"


class Fault(NamedTuple):
    """The fault that replaces the step's response."""

    step: str
    kind: str  # silent, close, garbage, huge

    def happen(self, sock: socket.socket) -> None:
        """End the connection, or keep it open without a response."""
        if self.kind == "garbage":
            sock.sendall(b"\xff" * 1000)
        elif self.kind == "huge":
            sock.sendall(struct.pack(">i", 100 << 20) + bytes(1 << 16))
        elif self.kind == "silent":
            while sock.recv(1 << 16):
                pass
        raise ConnectionError


class SecureBroker:
    """Echoes each request."""

    def __init__(
        self, tls: ssl.SSLContext | None, sasl: SaslListener | None, clock: Callable[[], int] | None = None
    ) -> None:
        self.fault: Fault | None = None
        self.connections = self.handshakes = 0
        self.authentications = 0
        self.mechanisms: list[str] = []  # the mechanism of each authentication
        self.certificates: list[Any] = []
        self.tls = tls
        self._sasl = sasl
        self._clock = clock or (lambda: time.monotonic_ns() // 1_000_000)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listening.getsockname()[:2]
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock = self._listening.accept()[0]
                self._open.append(sock)
                self.connections += 1
                self._threads.append(threading.Thread(target=self._serve, args=(sock,), daemon=True))
                self._threads[-1].start()

    def _serve(self, raw: socket.socket) -> None:
        with raw, suppress(OSError, ValueError), self._secured(raw) as sock:
            exchange = None if self._sasl is None else Exchange(self._sasl)
            for frame in _frames(sock):
                if exchange is not None and struct.unpack_from(">h", frame, 4)[0] in (
                    SASL_HANDSHAKE,
                    SASL_AUTHENTICATE,
                ):
                    self._authenticate(sock, exchange, frame)
                else:
                    if exchange is not None and (not exchange.session or exchange.session.expired(self._clock())):
                        return
                    self._step(sock, ANSWER)
                    sock.sendall(frame)

    @contextmanager
    def _secured(self, raw: socket.socket) -> Iterator[socket.socket]:
        if self.tls is None:
            yield raw
            return
        raw.recv(1, socket.MSG_PEEK)
        self._step(raw, TLS)
        with self.tls.wrap_socket(raw, server_side=True) as sock:
            self._open.append(sock)
            self.handshakes += 1
            self.certificates.append(sock.getpeercert())
            yield sock

    def _authenticate(self, sock: socket.socket, exchange: Exchange, frame: bytes) -> None:
        self._step(sock, MECHANISM if struct.unpack_from(">h", frame, 4)[0] == SASL_HANDSHAKE else CHALLENGE)
        again, now = exchange.state is State.COMPLETE, Now(time.time_ns() // 1_000_000, self._clock())
        effects = exchange.reauthenticate(frame[4:], now) if again else exchange.receive(frame, now)
        assert effects is not None, "the connection authenticates too often"
        for effect in effects:
            if isinstance(effect, Send):
                sock.sendall(effect.data)
            elif isinstance(effect, Fail):
                sock.sendall(effect.response)
                raise ConnectionError
            else:
                self.authentications += 1
                self.mechanisms.append(effect.session.mechanism)

    def _step(self, sock: socket.socket, step: str) -> None:
        if self.fault is not None and self.fault.step == step:
            self.fault.happen(sock)

    def hang_up(self) -> None:
        """Close all connections."""
        for sock in self._open:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close everything."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(10)


def _frames(sock: socket.socket) -> Iterator[bytes]:
    stream = sock.makefile("rb")
    while head := stream.read(4):
        yield head + stream.read(struct.unpack(">i", head)[0])
