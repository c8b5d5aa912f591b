"""One client's connection: its socket, its state, received bytes that are not taken yet, and the answers to send.

`workers.net.framing` takes its requests, `workers.net.sending` sends its answers; `state` says whether the next request
may be taken (workers.net.connection_state). `in_flight` has the pipelined requests without an answer, in their order,
decided or not.
"""

from __future__ import annotations

import socket
from collections import deque
from typing import Any, Protocol

from odradek.storage.files.openfile import FileSlice
from odradek.workers.net.connection_state import CLOSED, READY, UNANSWERED

_HEAD = 12  # bytes of size, api key, version and correlation id, which identify a frame
_TRICKLE = 1024  # bytes between two checks
_REQUEST = 500  # bytes of a request without its records, roughly


class RepeatedRequest(Protocol):
    """A connection's last request of a kind that clients repeat, and that is answered without being decoded again."""

    key: int  # of its API

    def take(self, version: int, correlation: int, view: memoryview, head: int, end: int) -> bool:
        """Take the request in view[head:end] if it repeats this one; False: it must be decoded."""


class Connection:
    """One connection of a worker."""

    __slots__ = (
        "active", "backlog", "big", "big_fill", "big_size", "client_id", "delayed", "fd", "full", "host", "in_flight",
        "keeps_up", "last_active", "listener", "mask", "out", "out_size", "partial", "port", "repeated", "seen",
        "settling", "sock", "state", "target",
    )  # fmt: skip

    def __init__(self, sock: socket.socket, listener: str, host: str, port: int) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.listener = listener
        self.host = host
        self.port = port
        self.client_id: str | None = None
        self.state = READY
        self.partial = b""  # the start of a small frame
        self.big: bytearray | None = None  # a large frame being received into its own memory
        self.big_fill = 0
        self.big_size = 0
        self.backlog: tuple[memoryview, int, int] | None = None  # frames, the last one perhaps partial, that wait
        self.in_flight: deque[Any] = deque()
        self.out: deque[bytes | memoryview | FileSlice] = deque()
        self.out_size = 0
        self.full = False  # the socket took no more
        self.keeps_up = True  # the socket took the whole of the last large slice
        self.settling = False  # some of `in_flight` were decided since the last answer
        self.delayed: Any = None  # its request in the purgatory
        self.active = True  # bytes moved since the last check (connections.max.idle.ms)
        self.mask = 0  # the events that its socket is watched for
        self.last_active = 0
        self.seen: tuple[bytes, int] = (b"", 0)  # see `trickles`
        self.target: Any = None  # of the last Produce request (workers.produce.produce_targets)
        self.repeated: RepeatedRequest | None = None

    def __repr__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port} ({self.client_id or '-'}, {self.listener})"

    @property
    def closed(self) -> bool:
        """Whether the connection has ended: nothing is read or sent any more."""
        return self.state == CLOSED

    @property
    def waits(self) -> bool:
        """Whether a request is unanswered that later ones must not overtake."""
        return bool(self.state & UNANSWERED)

    @property
    def idle(self) -> bool:
        """At a request boundary: no partial frame, no unanswered request, no unsent answer."""
        return not (self.partial or self.big) and self.only_receives

    @property
    def only_receives(self) -> bool:
        """No request is under way, apart from the start of a frame."""
        return not (self.backlog or self.in_flight or self.out or self.waits)

    def trickles(self) -> bool:
        """Whether an unfinished frame has hardly grown since the last call."""
        held, size = (self.partial, len(self.partial)) if self.big is None else (self.big, self.big_fill)
        (head, before), self.seen = self.seen, (bytes(held[:_HEAD]), size)
        return before > 0 and 0 <= size - before < _TRICKLE and self.seen[0].startswith(head)

    @property
    def undecided(self) -> int:
        """Approximate memory held by the requests in flight, in bytes."""
        return sum(_REQUEST + request.size for request in self.in_flight)

    def queue(self, data: bytes) -> None:
        """Append a whole answer to the send queue."""
        self.out.append(data)
        self.out_size += len(data)

    def queue_all(self, pieces: list[bytes | FileSlice]) -> None:
        """Append an answer in pieces to the send queue."""
        self.out.extend(pieces)
        self.out_size += sum(len(piece) if isinstance(piece, bytes) else piece.size for piece in pieces)
