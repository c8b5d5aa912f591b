"""The worker's event loop: one epoll, one receive buffer, and rounds of whatever is ready.

A round: for each connection that is readable, receive into the shared buffer and take the whole frames in it; Produce
requests pile up in `workers.round`; then they are executed together, answers are sent, and descriptors that were
given up are closed (never within the round: their numbers are used again). Bytes of a round live in the buffer until
it ends; what must outlive it, the beginning of a frame or what lies behind a barrier, is copied out.
"""

from __future__ import annotations

import logging
import select
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.workers.apis import k00_produce
from odradek.workers.connection import Connection
from odradek.workers.dispatch import MALFORMED

if TYPE_CHECKING:
    from odradek.workers.worker import Worker

log = logging.getLogger(__name__)

BUFFER = 8 << 20
LEAST_ROOM = 1 << 19  # receive only with this much room left: large reads, few of them
MOST_RECEIVED = 1 << 20  # by one connection in one round, so that others get their turn
BIG_FRAME = 1 << 17  # larger ones that came in part get memory of their own
BIG_HELD = 1 << 16  # once this much of them is there: memory is taken as it comes, not as it is promised
BLOCKED_OUT = 1 << 20  # unsent bytes at which a connection is not read any more
MOST_UNDECIDED = 1 << 20  # bytes of Produce requests that wait for locks or the disk, likewise
LEAST_FRAME = 10  # a request header: api key, version, correlation id, client id

_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">hhih")  # api key, version, correlation id, length of the client id
_IN, _OUT = select.EPOLLIN | select.EPOLLRDHUP, select.EPOLLOUT
_GONE = select.EPOLLHUP | select.EPOLLERR


class Loop:
    """Connections and other descriptors of one worker."""

    def __init__(self, worker: Worker, max_request: int) -> None:
        self._worker = worker
        self._round = worker.round
        self._max_request = max_request
        self._epoll = select.epoll()
        self._buffer = bytearray(BUFFER)
        self._view = memoryview(self._buffer)
        self._fill = 0
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._garbage: list[Connection] = []
        self.connections: dict[int, Connection] = {}
        self.bytes_in = self.bytes_out = self.requests = self.produce_requests = 0

    # -- descriptors

    def watch(self, fd: int, handler: Callable[[int], None], events: int = select.EPOLLIN) -> None:
        """Call `handler(events)` when `fd` is ready."""
        self._handlers[fd] = handler
        self._epoll.register(fd, events)

    def rewatch(self, fd: int, events: int) -> None:
        """Change what `fd` is watched for."""
        self._epoll.modify(fd, events)

    def unwatch(self, fd: int) -> None:
        """Forget `fd`."""
        del self._handlers[fd]
        self._epoll.unregister(fd)

    def add(self, connection: Connection) -> None:
        """Serve a new connection."""
        self.connections[connection.fd] = connection
        connection.mask = _IN
        connection.last_active = int(time.monotonic())
        self._epoll.register(connection.fd, _IN)

    def remove(self, connection: Connection) -> None:
        """Stop serving a connection; its socket is closed when the round ends."""
        if self.connections.pop(connection.fd, None) is not None:
            connection.closing = connection.blocked = True  # blocked: nothing more of what it sent is executed
            self._epoll.unregister(connection.fd)
            self._garbage.append(connection)

    def give_up(self, connection: Connection) -> None:
        """Stop serving a connection without closing it: another process goes on with it."""
        del self.connections[connection.fd]
        connection.closing = True
        self._epoll.unregister(connection.fd)

    def _want(self, connection: Connection, mask: int) -> None:
        if mask != connection.mask and not connection.closing:
            connection.mask = mask
            self._epoll.modify(connection.fd, mask)

    # -- a round

    def turn(self, timeout: float) -> None:
        """Wait for events at most `timeout` seconds and handle them."""
        events = self._epoll.poll(timeout)
        worker = self._worker
        worker.before_events()
        connections = self.connections
        for fd, event in events:
            connection = connections.get(fd)
            if connection is None:
                handler = self._handlers.get(fd)
                if handler is not None:
                    handler(event)
                continue
            if event & _OUT:
                connection.active = True
                self.send(connection)
            if event & select.EPOLLRDHUP and connection.waiting:
                worker.drop(connection, "closed by the client")
            elif event & _IN:
                self._receive(connection)
            elif event & _GONE:
                worker.drop(connection, "hung up")
        self.finish_round()

    def finish_round(self) -> None:
        """Execute what was collected, answer, and let the buffer be used again."""
        self._recycle()
        if self._garbage:
            for connection in self._garbage:
                connection.sock.close()
            self._garbage.clear()

    def _recycle(self) -> None:
        """Be done with what is in the receive buffer."""
        if self._round.busy:
            self._flush()
        self._fill = 0

    def _flush(self) -> None:
        """Append and answer until nothing more comes of it: an answered barrier may release further requests."""
        collected = self._round
        collected.flush()
        while collected.settling:
            settling, collected.settling = collected.settling, []
            for connection in settling:
                self._settle(connection)
            if collected.touched:
                collected.flush()

    def _settle(self, connection: Connection) -> None:
        """Queue the answers of decided Produce requests, in request order, and go on behind them."""
        connection.settling = False
        if connection.closing:
            return
        order, answers = connection.order, []
        while order and order[0].done:
            pending = order.popleft()
            answer = k00_produce.answer(pending)
            if answer is not None:
                answers.append(answer)
            elif k00_produce.refused_silently(pending):
                self._worker.drop(connection, "a request with acks=0 was refused")
                return
        if answers:
            connection.queue(b"".join(answers) if len(answers) > 1 else answers[0])
            self.send(connection)
        if not order and connection.waiting:
            connection.waiting = False
            self.resume(connection)

    # -- receiving

    def _receive(self, connection: Connection) -> None:
        if connection.closing:
            return
        if connection.order and connection.undecided > MOST_UNDECIDED:
            connection.waiting = True  # as behind a barrier
        if connection.waiting or connection.blocked:
            self._pause(connection)
            return
        connection.active = True
        if connection.big is not None:
            self._receive_big(connection)
            return
        if BUFFER - self._fill < LEAST_ROOM:
            self._recycle()
            if connection.closing:
                return
        start = self._fill
        partial = connection.partial
        begin = start + len(partial)
        count = self._receive_into(connection, self._view[begin : begin + min(MOST_RECEIVED, BUFFER - begin)])
        if count <= 0:
            return
        if partial:
            self._view[start:begin] = partial
            connection.partial = b""
        self._fill = begin + count
        self._consume(connection, self._view, start, begin + count)

    def _receive_into(self, connection: Connection, view: memoryview) -> int:
        """Bytes received; 0 when there are none now; -1 when the connection is over (and dropped)."""
        try:
            count = connection.sock.recv_into(view)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self._worker.drop(connection, str(error))
            return -1
        if not count:
            self._worker.drop(connection, "closed by the client")
            return -1
        self.bytes_in += count
        return count

    def _receive_big(self, connection: Connection) -> None:
        big = connection.big
        assert big is not None
        with memoryview(big) as view, view[connection.big_fill :] as room:
            count = self._receive_into(connection, room)
        if count <= 0:
            return
        connection.big_fill += count
        if connection.big_fill == connection.big_size:
            connection.big = None
            self._consume(connection, memoryview(big), 0, len(big))
        elif connection.big_fill == len(big):
            big.extend(bytes(min(len(big), connection.big_size - len(big))))

    def _pause(self, connection: Connection) -> None:
        """The client sends while its last request is not answered: let the kernel hold it back."""
        self._want(connection, connection.mask & ~_IN)

    def _consume(self, connection: Connection, view: memoryview, at: int, end: int) -> None:
        """Take the whole frames in view[at:end]; keep the rest."""
        connection.consuming = True
        try:
            while end - at >= 4:
                (size,) = _SIZE.unpack_from(view, at)
                if not LEAST_FRAME <= size <= self._max_request:
                    self._worker.drop(connection, f"a frame of {size} bytes (socket.request.max.bytes)")
                    return
                following = at + 4 + size
                if following > end:
                    break
                if not self._frame(connection, view, at + 4, following):
                    if connection.closing:
                        return
                    connection.backlog = self._kept(view, at, end)
                    return
                at = following
                if connection.waiting or connection.blocked:
                    if at < end:
                        connection.backlog = self._kept(view, at, end)
                    return
        except MALFORMED as error:
            self._worker.drop(connection, f"malformed {connection.request_name}: {error}")
            return
        except Exception:  # a fault of ours costs this connection, not the others
            log.exception("%r: %s failed", connection, connection.request_name)
            self._worker.drop(connection, "an error of the broker")
            return
        finally:
            connection.consuming = False
        if at < end and not connection.closing:
            self._keep(connection, view, at, end)

    def _keep(self, connection: Connection, view: memoryview, at: int, end: int) -> None:
        """Remember the beginning of a frame; a large one gets memory for the whole of it."""
        if end - at >= 4:
            (size,) = _SIZE.unpack_from(view, at)
            if size > BIG_FRAME and end - at >= BIG_HELD:
                connection.big_fill, connection.big_size = end - at, size + 4
                connection.big = bytearray(min(size + 4, 2 * (end - at)))
                connection.big[: end - at] = view[at:end]
                return
        connection.partial = bytes(view[at:end])

    def _kept(self, view: memoryview, at: int, end: int) -> memoryview:
        """What must wait, out of the shared buffer; what is out of it already is not copied for each barrier."""
        return view[at:end] if view.obj is not self._buffer else memoryview(bytearray(view[at:end]))

    def _frame(self, connection: Connection, view: memoryview, at: int, end: int) -> bool:
        """Execute one request (its header begins at `at`); False when it must wait for those before it."""
        key, version, correlation, length = _HEAD.unpack_from(view, at)
        if key == 0:
            row = k00_produce.API
            connection.request_name = "Produce"
            if version > row.versions[1] or version < 0:
                self._worker.unsupported(connection, key, version)
                return True
            body = at + 10 + (length if length > 0 else 0)
            if version >= 9:
                body = skip_header_tags(view, body, end)
            self.produce_requests += 1
            k00_produce.raw(self._worker, connection, version, correlation, view, at + 8, body, end)
            return True
        if connection.order:
            self._flush()
            if connection.closing:
                return False
            if connection.order:
                connection.waiting = True  # its batches wait for a lock or the disk: a barrier until then
                return False
        self.requests += 1
        self._worker.request(connection, key, version, correlation, view, at + 8, end)
        return True

    def resume(self, connection: Connection) -> None:
        """A barrier is answered: go on with what lies behind it, then read again."""
        if connection.consuming:
            return
        backlog = connection.backlog
        if backlog:
            connection.backlog = b""
            self._consume(connection, backlog, 0, len(backlog))
        if not (connection.closing or connection.waiting or connection.blocked):
            self._want(connection, connection.mask | _IN)

    # -- sending

    def send(self, connection: Connection) -> None:
        """Send what is queued; go on later where the socket is full."""
        try:
            self.bytes_out += connection.flush()
        except (OSError, EOFError) as error:
            self._worker.drop(connection, str(error))
            return
        if connection.out:
            self._want(connection, connection.mask | _OUT)
            if connection.out_size > BLOCKED_OUT:
                connection.blocked = True
        else:
            if connection.mask & _OUT:
                self._want(connection, connection.mask & ~_OUT)
            if connection.blocked:
                connection.blocked = False
                if not connection.waiting:
                    self.resume(connection)


def skip_header_tags(view: memoryview, at: int, end: int) -> int:
    """Past the tagged fields of a flexible request header; mostly one zero byte."""
    if view[at] == 0:
        return at + 1
    from odradek.protocol.wire import skip_tags

    return skip_tags(view, at, end)
