"""A row of the table of Kafka APIs (workers.apis.table).

ApiVersions, dispatch, version checks and the docs' table all come from these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeVar

from odradek.protocol import requests, responses
from odradek.protocol.library import message_class

WORKER, COORDINATOR, CONTROLLER = "worker", "coordinator", "controller"
PIECE = 128  # rows of an answer made in one step
LARGE = 4096  # bytes above which a worker decodes a request in steps
_FROM_END = -2
WAIT = object()  # yielded by a step of a worker when the next one has to wait for a moment

T = TypeVar("T")


class Codec(Protocol):
    """Decodes request bodies and encodes response bodies that the library's schemas do not cover."""

    def decode(self, version: int, body: memoryview) -> Any:
        """The request object; any ValueError, IndexError or struct.error means malformed."""

    def decoding(self, version: int, body: memoryview) -> Generator[None, None, Any]:
        """`decode` in steps."""

    def encode(self, version: int, response: Any) -> bytes:
        """The response's body."""


def pieces(items: Sequence[T], size: int = PIECE) -> Iterator[Sequence[T]]:
    """`items` in slices for one step each (broker.process.steps)."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def complete(work: Generator[object, None, T]) -> T:
    """Run work in steps at once; returns its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: T = end.value
            return found


@dataclass(frozen=True)
class Api:
    """One Kafka API: its key, Kafka's name for it, the (first, last) version served, the serving process and handler.

    `handle(services, request, context)` returns the response, or None when it replies later through the context; where
    services can `begin` work it may be a generator, which replies in steps (broker.process.steps).
    `fast_path(services, connection, version, correlation, view, head, body, end)` stands in place of `handle`: it takes
    the undecoded request in view[head:end], whose client id begins at `head` and whose body at `body`, and answers.
    `pipelined`: it may be taken while earlier requests of its kind have no answer (workers.net.framing); one API can.
    `unsupported()` is the body, of version 0, that answers versions not served; without it the connection ends.
    `flexible` is the first version with a flexible request header, taken from the schema when not given.
    `route(version, body)` returns where a request is handled when that depends on the request; `runs_in` is then only
    the place of most requests. `between_brokers`: served only by members of a cluster.
    `served_from` is the first version that is served when the ones before it are only offered (kafka_versions).
    """

    key: int
    name: str
    versions: tuple[int, int]
    handle: Callable[..., Any] | None = None
    runs_in: str = WORKER
    codec: Codec | None = None
    fast_path: Callable[..., None] | None = None
    pipelined: bool = False
    unsupported: Callable[[], bytes] | None = None
    flexible: int | None = None
    route: Callable[[int, bytes], str] | None = None
    between_brokers: bool = False
    served_from: int = 0

    @property
    def oldest(self) -> int:
        """The first version that is served."""
        return max(self.versions[0], self.served_from)

    def place(self, version: int, body: bytes) -> str:
        """Which process handles this request."""
        return self.runs_in if self.route is None else self.route(version, body)

    def serves(self, version: int) -> bool:
        """Whether requests of `version` are answered."""
        return self.oldest <= version <= self.versions[1]

    def is_flexible(self, version: int) -> bool:
        """Whether requests of `version` have tagged fields in their header."""
        first = self.flexible
        return version >= (self._flexible_in_schema() if first is None else first)

    def has_flexible_response(self, version: int) -> bool:
        """Whether responses of `version` have tagged fields in their header; ApiVersions never has (KIP-511)."""
        return self.key != 18 and self.is_flexible(version)

    def throttle_at(self, version: int, size: int) -> int:
        """The position of the throttle time in a response's body of `size` bytes; -1 when it has none."""
        found = _throttle_at(self.name, version)
        return found if found != _FROM_END else size - (5 if self.is_flexible(version) else 4)

    def _flexible_in_schema(self) -> int:
        return _first_flexible(self.name)

    def decode(self, version: int, body: memoryview) -> Any:
        """The request in `body`."""
        if self.codec is not None:
            return self.codec.decode(version, body)
        return requests.decode(message_class(self.name + "Request"), version, body)

    def encode(self, version: int, response: Any) -> bytes:
        """The body of `response`."""
        if self.codec is not None:
            return self.codec.encode(version, response)
        return responses.encoded(response, version)

    def decoding(self, version: int, body: memoryview) -> Generator[None, None, Any]:
        """`decode` in steps."""
        if self.codec is not None:
            return (yield from self.codec.decoding(version, body))
        return (yield from requests.decoding(message_class(self.name + "Request"), version, body))

    def encoding(self, version: int, response: Any) -> Generator[None, None, bytes]:
        """`encode` in steps, if the library's schemas cover it."""
        if self.codec is not None:
            return self.codec.encode(version, response)
        return (yield from responses.encoding(response, version))


@cache
def _throttle_at(name: str, version: int) -> int:
    """It is the first field of most responses, the second of OffsetDelete, behind the error code, and else the last."""
    at = 0
    for field in message_class(name + "Response").fields.values():
        if not field.for_version_q(version):
            continue
        if field.name == "throttle_time_ms":
            return at
        at = at + 2 if field.name == "error_code" and at != _FROM_END else _FROM_END
    return -1


@cache
def _first_flexible(name: str) -> int:
    request = message_class(name + "Request")
    return next((v for v in range(request.max_version + 1) if request.flexible_version_q(v)), 1 << 15)
