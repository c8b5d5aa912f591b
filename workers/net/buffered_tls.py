"""A TLS connection between its socket and memory, with the calls that the loop makes of a socket.

The kernel gives all records that have come in one call, where an SSLSocket makes two calls for each: for small requests
that is a third of what decryption costs. `TlsSocket` is for kernels that encrypt.

State: ciphertext that OpenSSL has not decrypted (`_in`), and what it has encrypted and the kernel did not take
(`_unsent`) of the `_accepted` bytes of the last `send`. Such a `send` raises BlockingIOError, as one of which the
kernel took nothing, and must be repeated with the same bytes: workers.net.sending keeps the first piece of its queue
until it is sent.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress

from odradek.security.tls import records
from odradek.security.tls.handshake import Handshake

MOST = 1 << 18  # bytes in one call: with a fast peer it goes on for as long as there are any, and others wait
_RECEIVED = memoryview(bytearray(64 << 10))  # from a socket to OpenSSL, one at a time; a BIO keeps room for as much
_NO_SIGNAL = int(socket.MSG_NOSIGNAL)


class BufferedTls:
    """TLS over a non-blocking socket. Calls raise BlockingIOError where a socket would, else OSError."""

    __slots__ = ("_accepted", "_ended", "_in", "_out", "_read", "_sock", "_ssl", "_unsent", "has_more")

    in_kernel = False

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._sock = sock
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._in, self._out, server_side=True)
        self._read = records.reader(self._ssl)
        self._unsent = memoryview(b"")
        self._accepted = 0
        self._ended = False
        self.has_more = False

    def fileno(self) -> int:
        """The descriptor, for epoll."""
        return self._sock.fileno()

    # -- the handshake

    def handshake(self, deadline: float) -> Handshake:
        """The handshake, to be done by `deadline`."""
        return Handshake(self, deadline)

    def do_handshake(self) -> None:
        """Go on as far as the peer allows; raises what SSLSocket's does."""
        while True:
            self._flush_handshake()
            try:
                self._ssl.do_handshake()
            except ssl.SSLWantReadError:
                self._flush_handshake()
                self._receive_handshake()
            except ssl.SSLError:
                with suppress(OSError):
                    self._flush_handshake()  # the alert
                raise
            else:
                self._flush_handshake()
                return

    def _flush_handshake(self) -> None:
        if self._out.pending:
            self._unsent = memoryview(bytes(self._unsent) + self._out.read())
        try:
            self._flush()
        except BlockingIOError:
            raise ssl.SSLWantWriteError from None

    def _receive_handshake(self) -> None:
        try:
            count = self._sock.recv_into(_RECEIVED)
        except BlockingIOError:
            raise ssl.SSLWantReadError from None
        if not count:
            raise ConnectionResetError("the peer closed the connection")
        self._in.write(_RECEIVED[:count])

    def established(self) -> None:
        """The handshake is done; requests may have come with its end."""
        self.has_more = self._in.pending > 0

    @property
    def peer_certificate(self) -> bytes | None:
        """The client's certificate in DER."""
        return self._ssl.getpeercert(True)

    @property
    def cipher(self) -> str:
        """The cipher suite, for logs."""
        found = self._ssl.cipher()
        return found[0] if found else ""

    # -- bytes

    def recv_into(self, room: memoryview) -> int:
        """Receive into `room` until it is full, nothing is left, or there is MOST; 0 at the end."""
        room = room[:MOST]
        count = self._decrypt(room) if self.has_more else 0
        while count < len(room) and not self._ended:
            try:
                got = self._sock.recv_into(_RECEIVED)
            except BlockingIOError:
                break
            self._in.write(_RECEIVED[:got])
            count += self._decrypt(room[count:])
            self._ended = self._ended or not got
            if got < len(_RECEIVED):
                break
        left = count == len(room) and (self._in.pending > 0 or self._ssl.pending() > 0)
        self.has_more = count > 0 and (self._ended or left)
        if not count and not self._ended:
            raise BlockingIOError
        return count

    def _decrypt(self, room: memoryview) -> int:
        """Decrypt whole records into `room`, until it is full."""
        count, most, got, pending, read = 0, len(room), 1, self._in, self._read
        try:
            if pending.pending >= len(_RECEIVED):  # mostly ends within a record: one exception costs less than checks
                while got := read(most, room[count:]):
                    count += got
            while (pending.pending or self._ssl.pending()) and (got := read(most, room[count:])):
                count += got
            self._ended = self._ended or (not got and count < most)
        except ssl.SSLWantReadError:
            pass  # the rest of a record has not come
        except ssl.SSLError:
            self._ended = True
            if not count:
                raise
        return count

    def send(self, data: bytes | memoryview, _flags: int = 0) -> int:
        """Send a piece of `data`; returns its size. Raises BlockingIOError until the kernel has taken all of it."""
        if not self._accepted:
            self._accepted = self._ssl.write(memoryview(data)[:MOST])
            self._unsent = memoryview(self._out.read())
        self._flush()
        accepted, self._accepted = self._accepted, 0
        return accepted

    def _flush(self) -> None:
        while self._unsent:
            self._unsent = self._unsent[self._sock.send(self._unsent, _NO_SIGNAL) :]

    def close(self) -> None:
        """Tell the peer that this is the end, if the kernel takes it now, and close."""
        if not self._unsent:
            with suppress(OSError, ValueError):
                self._ssl.unwrap()
            with suppress(OSError):
                self._sock.send(self._out.read(), _NO_SIGNAL)
        self._sock.close()
