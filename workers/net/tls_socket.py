"""A TLS connection with the calls that the loop makes of a socket.

OpenSSL takes whole records from the kernel, and epoll knows nothing of the bytes that it keeps: `recv_into` takes all
that there is, and `has_more` says whether it left some. A write that the kernel did not take must be repeated with the
same bytes, at least as many: `workers.net.sending` keeps the first piece of its queue until it is sent.
"""

from __future__ import annotations

import ssl
from contextlib import suppress

from odradek.security.tls import ktls
from odradek.security.tls.handshake import Handshake

MOST = 1 << 18  # bytes in one call: with a fast peer it goes on for as long as there are any, and others wait


class TlsSocket:
    """Wraps a non-blocking SSLSocket. Calls raise BlockingIOError where a socket would, else OSError."""

    __slots__ = ("_ended", "_read", "_ssl", "_write", "has_more", "in_kernel")

    def __init__(self, wrapped: ssl.SSLSocket) -> None:
        self._ssl = wrapped
        self._read, self._write = wrapped.read, wrapped.send
        self._ended = False
        self.has_more = False
        self.in_kernel = False  # the kernel encrypts (kTLS), so files can be sent without a copy

    def handshake(self, deadline: float) -> Handshake:
        """The handshake, to be done by `deadline`."""
        return Handshake(self._ssl, deadline)

    def established(self) -> None:
        """The handshake is done."""
        self.in_kernel = ktls.is_active(self._ssl)

    @property
    def peer_certificate(self) -> bytes | None:
        """The client's certificate in DER."""
        return self._ssl.getpeercert(True)

    @property
    def cipher(self) -> str:
        """The cipher suite, for `status` and logs."""
        found = self._ssl.cipher()
        return found[0] if found else ""

    def fileno(self) -> int:
        """The descriptor, for epoll."""
        return self._ssl.fileno()

    def recv_into(self, room: memoryview) -> int:
        """Receive into `room` until it is full, nothing is left, or there is MOST; 0 at the end."""
        count, most = 0, min(len(room), MOST)
        try:
            while count < most and not self._ended:
                got = self._read(most - count, room[count:])
                count += int(got)
                self._ended = not got
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self.has_more = False
            if not count:
                raise BlockingIOError from None
            return count
        self.has_more = count > 0 and (self._ended or self._ssl.pending() > 0)
        return count

    def send(self, data: bytes | memoryview, _flags: int = 0) -> int:
        """Send all of `data`, but not above MOST, or raise: then the next call must begin with the same bytes."""
        if len(data) > MOST:
            data = memoryview(data)[:MOST]
        try:
            return self._write(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def close(self) -> None:
        """Tell the peer that this is the end, if the kernel takes it now, and close."""
        with suppress(OSError, ValueError):
            self._ssl.unwrap()
        self._ssl.close()
