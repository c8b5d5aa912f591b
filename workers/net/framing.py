"""Framing: the whole requests in received bytes, in order. A machine without sockets: bytes and events in, calls out.

Requests of a connection take effect one at a time, as in Kafka, except runs of pipelined ones (Produce), which are
executed together. Any other request waits for those in flight, and those behind it wait for its answer.

Layout: small frames are received into one buffer that all connections share (`fill`: its used part), behind the start
of the connection's unfinished frame. The bytes of a round live in it until the round ends; `partial`, the start of a
frame, and `backlog`, the bytes behind a request that they must wait for, outlive it and are copied out. A large frame
(`big`) has memory of its own, which grows with the received bytes, not with the announced size.
"""

from __future__ import annotations

import logging
import mmap
import struct
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from odradek.protocol.wire import MALFORMED, skip_tags
from odradek.workers.net.connection import Connection
from odradek.workers.net.connection_state import (
    ANSWER,
    CLOSED,
    EXPIRED,
    FULL,
    HOLD,
    RESTING,
    TAKE,
    TAKEN,
    THROTTLED,
    UNANSWERED,
)  # fmt: skip
from odradek.workers.net.request_times import RequestTimes

log = logging.getLogger(__name__)

BUFFER = 8 << 20
LEAST_ROOM = 1 << 19  # receive only with this much room left: large reads, few of them
MOST_RECEIVED = 1 << 20  # by one connection in one round, so that others get their turn
BIG_FRAME = 1 << 17  # larger partial frames get memory of their own
BIG_HELD = 1 << 16  # once this much has arrived
MOST_IN_FLIGHT = 1 << 20  # bytes of pipelined requests that wait for locks or the disk; then the connection waits too
LEAST_FRAME = 10  # a request header: api key, version, correlation id, client id

_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">ihhih")  # frame size, api key, version, correlation id, length of the client id
_HELD = UNANSWERED | FULL | RESTING | THROTTLED | EXPIRED


class Pipelined(NamedTuple):
    """The API whose requests are taken before the answers of earlier ones, and executed together.

    `take(services, connection, version, correlation, view, head, body, end)`: the client id begins at `head`, the body
    at `body`.
    """

    key: int
    oldest: int  # version that is served
    newest: int
    flexible: int  # the first version with tagged fields in the request header
    take: Callable[..., None]
    services: Any


NOTHING_PIPELINED = Pipelined(-1 << 16, 0, -1, 0, lambda *_: None, None)


class Handler(Protocol):
    """What framing needs of the worker."""

    def take(
        self, connection: Connection, key: int, version: int, correlation: int, view: memoryview, head: int, end: int
    ) -> None:
        """Take a request that is not pipelined; its client id begins at `head`. It is answered once, now or later."""

    def flush(self) -> None:
        """Execute the pipelined requests of all connections, and answer those that are decided."""

    def drop(self, connection: Connection, why: str) -> None:
        """End a connection."""

    def name_of(self, key: int) -> str:
        """The name of an API."""


class Framing:
    """Takes the requests of all connections of a worker.

    `handler` handles them; `watch(connection, read)` starts or stops watching for received bytes; `spend(connection)`
    accounts for the time of a request (workers.net.time_slices).
    """

    def __init__(
        self, handler: Handler, watch: Callable[[Connection, bool], None], spend: Callable[[Connection], None],
        largest: int, times: RequestTimes,
    ) -> None:  # fmt: skip
        """`largest`: bytes of a request (socket.request.max.bytes)."""
        self._handler = handler
        self._watch = watch
        self._spend = spend
        self._largest = largest
        self._times = times
        self._buffer = mmap.mmap(-1, BUFFER)  # a bytearray is zeroed, and so takes memory, at once
        self._view = memoryview(self._buffer)
        self.fill = 0
        self.pipelined = NOTHING_PIPELINED
        self.requests = 0  # that were not pipelined

    # -- bytes in

    def receive(self, connection: Connection, read: Callable[[memoryview], int]) -> int | None:
        """Have `read(room)` put the connection's next bytes into `room`, and take the requests that are whole now.

        Returns the bytes read: 0 at their end, None while they must wait in the socket: then TCP pushes back. Raises
        what `read` raises.
        """
        if (connection.in_flight or connection.state or connection.big) and not self._may_receive(connection):
            return None
        if connection.big is not None:
            return self._receive_big(connection, connection.big, read)
        start = self.fill
        if BUFFER - start < LEAST_ROOM:
            self._handler.flush()
            self.fill = 0
            return self.receive(connection, read)
        view, partial = self._view, connection.partial
        begin = start + len(partial)
        count = read(view[begin : begin + MOST_RECEIVED])
        if count:
            if partial:
                view[start:begin] = partial
                connection.partial = b""
            self.fill = end = begin + count
            self._take_frames(connection, view, start, end)
        return count

    def _may_receive(self, connection: Connection) -> bool:
        """Whether a connection that is not at the boundary of a request may receive; else it is not watched."""
        if connection.in_flight and connection.undecided > MOST_IN_FLIGHT:
            connection.state = HOLD[connection.state]
        if connection.state & _HELD:
            self._watch(connection, False)
        return not connection.state

    def _receive_big(self, connection: Connection, big: bytearray, read: Callable[[memoryview], int]) -> int:
        with memoryview(big) as view, view[connection.big_fill :] as room:  # released, or the memory could not grow
            count = read(room)
        connection.big_fill += count
        if connection.big_fill == connection.big_size:
            connection.big = None
            self._take_frames(connection, memoryview(big), 0, len(big))
        elif connection.big_fill == len(big):
            big.extend(bytes(min(len(big), connection.big_size - len(big))))
        return count

    # -- events in

    def resume(self, connection: Connection) -> None:
        """The connection is ready: take the requests that have waited, then receive again."""
        if connection.backlog is not None:
            (view, at, end), connection.backlog = connection.backlog, None
            self._take_frames(connection, view, at, end)
        if not connection.state:
            self._watch(connection, True)

    def settled(self, connection: Connection) -> None:
        """No pipelined request is in flight any more: continue with the one that waits for it, if any."""
        state = connection.state
        if state & UNANSWERED:
            connection.state = state = ANSWER[state]
            if not state:
                self.resume(connection)

    # -- frames

    def _take_frames(self, connection: Connection, view: memoryview, at: int, end: int) -> None:
        """Take the whole frames in view[at:end]; keep the rest."""
        largest, key = self._largest, -1
        pipelined, oldest, newest, flexible, take, services = self.pipelined
        try:
            while end - at >= _HEAD.size:
                size, key, version, correlation, length = _HEAD.unpack_from(view, at)
                following = at + 4 + size
                if following > end or size < LEAST_FRAME or size > largest:
                    break
                if key == pipelined and oldest <= version <= newest:
                    body = at + 14 + length if length > 0 else at + 14
                    if version >= flexible:
                        body = skip_header_tags(view, body, following)
                    take(services, connection, version, correlation, view, at + 12, body, following)
                    if connection.state:
                        self._wait(connection, view, following, end)
                        return
                elif not self._take_alone(connection, key, version, correlation, view, at + 12, following):
                    self._wait(connection, view, at, end)
                    return
                elif connection.state or (following < end and self._is_over(connection)):
                    self._wait(connection, view, following, end)
                    return
                at = following
        except MALFORMED as error:
            self._handler.drop(connection, f"malformed {self._handler.name_of(key)}: {error}")
            return
        except Exception:  # a bug costs this connection, not the others
            log.exception("%r: %s failed", connection, self._handler.name_of(key))
            self._handler.drop(connection, "closed after an internal error")
            return
        if at < end and connection.state != CLOSED:
            self._keep(connection, view, at, end)

    def _take_alone(
        self, connection: Connection, key: int, version: int, correlation: int, view: memoryview, head: int, end: int
    ) -> bool:
        """Take a request that is not pipelined; False when it must wait for those in flight."""
        if connection.in_flight:
            self._handler.flush()
            if connection.in_flight:  # they wait for a lock or the disk
                connection.state = HOLD[connection.state]
            if connection.state:
                return False
        self.requests += 1
        connection.state = TAKE[connection.state]
        self._times.taken(connection, key)
        try:
            self._handler.take(connection, key, version, correlation, view, head, end)
        finally:
            connection.state = TAKEN[connection.state]
            if connection.times is not None:
                self._times.waits(connection)
        return True

    def _is_over(self, connection: Connection) -> bool:
        """Whether a connection with more frames has used up its slice."""
        self._spend(connection)
        return connection.state != 0

    # -- bytes that wait

    def _keep(self, connection: Connection, view: memoryview, at: int, end: int) -> None:
        """Keep the start of a frame; a large frame gets memory of its own."""
        if end - at >= 4:
            (size,) = _SIZE.unpack_from(view, at)
            if not LEAST_FRAME <= size <= self._largest:
                self._handler.drop(
                    connection, f"closed: invalid request size {size} (socket.request.max.bytes={self._largest})"
                )
                return
            if size > BIG_FRAME and end - at >= BIG_HELD:
                connection.big_fill, connection.big_size = end - at, size + 4
                connection.big = bytearray(min(size + 4, 2 * (end - at)))
                connection.big[: end - at] = view[at:end]
                return
        connection.partial = bytes(view[at:end])

    def _wait(self, connection: Connection, view: memoryview, at: int, end: int) -> None:
        """The frames in view[at:end] wait until the connection is ready."""
        if at < end and connection.state != CLOSED:
            connection.backlog = self.kept(view, at, end)

    def kept(self, view: memoryview, at: int, end: int) -> tuple[memoryview, int, int]:
        """Copy waiting bytes out of the shared buffer; bytes outside of it are not copied each time."""
        if view.obj is not self._buffer:
            return view, at, end
        return memoryview(bytearray(view[at:end])), 0, end - at


def skip_header_tags(view: memoryview, at: int, end: int) -> int:
    """The position behind the tagged fields of a flexible request header; mostly one zero byte."""
    return at + 1 if view[at] == 0 else skip_tags(view, at, end)
