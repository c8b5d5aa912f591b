"""One client's connection: its socket, its state, received bytes that are not taken yet, and the answers to send.

`workers.net.framing` takes its requests, `workers.net.sending` sends its answers; `state` says whether the next request
may be taken (workers.net.connection_state). `in_flight` has the pipelined requests without an answer, in their order,
decided or not.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from odradek.security.principal import ANONYMOUS
from odradek.storage.files.openfile import FileSlice
from odradek.workers.net.connection_state import CLOSED, READY, THROTTLED, UNANSWERED

if TYPE_CHECKING:
    from odradek.security.sasl.exchange import Exchange
    from odradek.security.tls.handshake import Handshake

NO_CLIENT_ID = b"\0\0"  # as in a request's header
_HEAD = 12  # bytes of size, api key, version and correlation id, which identify a frame
_TRICKLE = 1024  # bytes between two checks
_REQUEST = 500  # bytes of a request without its records, roughly


class RepeatedRequest(Protocol):
    """A connection's last request of a kind that clients repeat, and that is answered without being decoded again."""

    key: int  # of its API

    def take(self, version: int, correlation: int, view: memoryview, head: int, end: int) -> bool:
        """Take the request in view[head:end] if it repeats this one; False: it must be decoded."""


class Stream(Protocol):
    """What a connection needs of its socket, whether that encrypts or not."""

    def fileno(self) -> int: ...
    def recv_into(self, room: memoryview, /) -> int: ...
    def send(self, data: bytes | memoryview, flags: int, /) -> int: ...
    def close(self) -> None: ...


class Tls(Stream, Protocol):
    """One that encrypts: workers.net.buffered_tls, workers.net.tls_socket."""

    has_more: bool
    """Bytes, or their end, have come that epoll does not know of."""

    @property
    def in_kernel(self) -> bool:
        """The kernel encrypts, so files can be sent without a copy."""

    @property
    def peer_certificate(self) -> bytes | None:
        """The client's certificate in DER."""

    def handshake(self, deadline: float) -> Handshake:
        """The handshake, to be done by `deadline`."""

    def established(self) -> None:
        """The handshake is done."""


class Connection:
    """One connection of a worker."""

    __slots__ = (
        "active", "backlog", "begun_ns", "big", "big_fill", "big_size", "by_token", "client_head", "client_id",
        "delayed", "exchange", "fd", "full", "host", "in_flight", "keeps_up", "last_active", "listener", "mask", "mute",
        "out", "out_size", "partial", "port", "principal", "received_ns", "repeated", "seen", "sends", "sends_ns",
        "settling", "sock", "spent_ns", "state", "target", "times", "tls", "unrecorded", "waits_ns",
    )  # fmt: skip

    def __init__(self, sock: Stream, listener: str, host: str, port: int) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.tls: Tls | None = None  # `sock`, where that encrypts
        self.listener = listener
        self.host = host
        self.port = port
        self.client_id: str | None = None  # of its last request; of Produce only while there are quotas
        self.client_head = NO_CLIENT_ID  # as in the header of that request (workers.net.client_ids)
        self.principal = ANONYMOUS
        self.by_token = False  # a delegation token authenticated the principal
        self.exchange: Exchange | None = None  # that authenticated the principal, and may do so again
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
        self.mute: Any = None  # while its client is throttled (workers.quotas.muting)
        self.unrecorded = 0  # bytes of requests that no quota has counted yet (workers.quotas.request_quotas)
        self.spent_ns = 0  # on requests that no quota has counted yet
        self.times: list[int] | None = None  # histograms of the request that is timed (workers.net.request_times)
        self.received_ns = self.begun_ns = self.waits_ns = 0  # waits_ns: 0 while its handler works
        self.sends: list[int] = []  # histograms of the first answer in `out`, if `sends_ns`, since when it is there
        self.sends_ns = 0

    def __repr__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port} ({self.client_id or '-'}, {self.listener})"

    @property
    def user(self) -> str:
        """The name of its principal, for quotas."""
        return self.principal.name

    @property
    def closed(self) -> bool:
        """Whether the connection has ended: nothing is read or sent any more."""
        return self.state == CLOSED

    @property
    def waits(self) -> bool:
        """Whether a request is unanswered that later ones must not overtake."""
        return bool(self.state & UNANSWERED)

    @property
    def throttled(self) -> bool:
        """Whether its client must wait, because it exceeds a quota."""
        return bool(self.state & THROTTLED)

    @property
    def idle(self) -> bool:
        """At a request boundary: no partial frame, no unanswered request, no unsent answer."""
        held = self.partial or self.big or (self.tls is not None and self.tls.has_more)
        return not held and self.only_receives

    @property
    def only_receives(self) -> bool:
        """No request is under way, apart from the start of a frame."""
        return not (self.backlog or self.in_flight or self.out or self.waits or self.throttled)

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
