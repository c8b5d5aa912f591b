"""One client's connection: received bytes that are not decoded yet, and the answers to send, in order.

Requests of a connection take effect one at a time, as in Kafka, except runs of Produce, which are executed together.
`order` holds the answers of that run, done or not; any other request is a barrier (`waiting`) until it is answered.
The bytes behind a barrier wait in `backlog`.
"""

from __future__ import annotations

import mmap
import os
import socket
from collections import deque
from typing import Any

from odradek.storage.files.openfile import FileSlice
from odradek.workers.net import splice

# As plain integers: combining the enum's members costs a microsecond at each send.
LAST = int(socket.MSG_NOSIGNAL)
_MORE = int(socket.MSG_NOSIGNAL | socket.MSG_MORE)
_HEAD = 12  # bytes of size, api key, version and correlation id, which identify a frame
_TRICKLE = 1024  # bytes between two checks
SLICE = 1 << 20  # bytes sent per turn of a connection; a quarter of it cost twice the CPU per byte
_REST = mmap.PAGESIZE  # sent on top of a SLICE: a header precedes it, and a splice ends at a page boundary
_REQUEST = 500  # bytes of a request without its records, roughly

_BURST = splice.Splice()  # one per process


class Connection:
    """State of one connection; the loop reads from the socket, this class writes to it."""

    __slots__ = (
        "active", "backlog", "big", "big_fill", "big_size", "blocked", "client_id", "closing", "consuming", "fd",
        "full", "host", "keeps_up", "last_active", "listener", "mask", "order", "out", "out_size", "parked", "partial",
        "port", "request_name", "seen", "settling", "sock", "standing", "target", "waiting",
    )  # fmt: skip

    def __init__(self, sock: socket.socket, listener: str, host: str, port: int) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.listener = listener
        self.host = host
        self.port = port
        self.client_id: str | None = None
        self.partial = b""  # the start of a small frame
        self.big: bytearray | None = None  # a large frame being received into its own memory
        self.big_fill = 0
        self.big_size = 0
        self.backlog: tuple[memoryview, int, int] | None = None  # whole or partial frames behind a barrier
        self.order: deque[Any] = deque()
        self.out: deque[bytes | memoryview | FileSlice] = deque()
        self.out_size = 0
        self.full = False
        self.keeps_up = True  # the socket took the whole of the last large slice
        self.waiting = False
        self.blocked = False
        self.closing = False
        self.consuming = False  # the loop is taking its frames right now
        self.settling = False
        self.parked: Any = None  # its delayed fetch
        self.active = True  # bytes moved since the last check (connections.max.idle.ms)
        self.mask = 0
        self.last_active = 0
        self.seen: tuple[bytes, int] = (b"", 0)  # see `trickles`
        self.request_name = ""
        self.target: Any = None  # of the last Produce request; see apis.k00_produce
        self.standing: Any = None  # the last Fetch; see workers.fetch.repeated_fetch

    def __repr__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port} ({self.client_id or '-'}, {self.listener})"

    @property
    def idle(self) -> bool:
        """At a request boundary: no partial frame, no unanswered request, no unsent answer."""
        return not (self.partial or self.big or self.backlog or self.order or self.out or self.waiting)

    @property
    def only_receives(self) -> bool:
        """No request is under way, apart from the start of a frame."""
        return not (self.backlog or self.order or self.out or self.waiting)

    def trickles(self) -> bool:
        """Whether an unfinished frame has hardly grown since the last call."""
        held, size = (self.partial, len(self.partial)) if self.big is None else (self.big, self.big_fill)
        (head, before), self.seen = self.seen, (bytes(held[:_HEAD]), size)
        return before > 0 and 0 <= size - before < _TRICKLE and self.seen[0].startswith(head)

    @property
    def undecided(self) -> int:
        """Approximate memory held by unanswered Produce requests, in bytes."""
        return sum(_REQUEST + request.size for request in self.order)

    def queue(self, data: bytes) -> None:
        """Append a whole answer to the send queue."""
        self.out.append(data)
        self.out_size += len(data)

    def queue_all(self, pieces: list[bytes | FileSlice]) -> None:
        """Append an answer in pieces to the send queue."""
        self.out.extend(pieces)
        self.out_size += sum(len(piece) if isinstance(piece, bytes) else piece.size for piece in pieces)

    def flush(self) -> int:
        """Send what the socket takes, but stop after a SLICE: a client that reads a backlog must not delay the others.

        Returns the bytes sent; sets `full` when the socket takes no more. OSError: connection or file is broken.
        """
        sent = 0
        out = self.out
        self.full = False
        while out and sent < SLICE:
            piece = out[0]
            try:
                most = max(SLICE - sent, _REST)
                count = self._send_file(piece, most) if isinstance(piece, FileSlice) else self._send_bytes(piece)
            except (BlockingIOError, InterruptedError):
                self.full, self.keeps_up = True, False
                break
            sent += count
        self.out_size -= sent
        return sent

    def _send_bytes(self, piece: bytes | memoryview) -> int:
        """Does not copy the unsent rest: a socket takes a thousandth of a 100 MB answer at a time."""
        out = self.out
        count = self.sock.send(piece, LAST if len(out) == 1 else _MORE)
        if count == len(piece):
            out.popleft()
        else:
            out[0] = memoryview(piece)[count:]
        return count

    def _send_file(self, piece: FileSlice, most: int) -> int:
        asked = min(piece.size, most)
        if asked < splice.LEAST:
            count = os.sendfile(self.fd, piece.file.fd, piece.position, asked)
        else:
            count = self._send_large(piece, asked)
        if not count:
            raise EOFError("the segment file is shorter than what was published of it")
        piece.position += count
        piece.size -= count
        if not piece.size:
            self.out.popleft()
        return count

    def _send_large(self, piece: FileSlice, asked: int) -> int:
        """If the socket took only part of the last large slice, ACKs free its buffer bit by bit: do not splice then."""
        if self.keeps_up:
            asked = min(asked, splice.room(piece.position))
            count = _BURST.send(self.fd, piece.file.fd, piece.position, asked, asked < piece.size)
        else:
            count = os.sendfile(self.fd, piece.file.fd, piece.position, asked)
        self.keeps_up = count == asked
        return count
