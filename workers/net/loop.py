"""The worker's event loop: one epoll, one receive buffer, and rounds over the ready descriptors.

A round: for each readable connection, receive into the shared buffer and take the whole frames in it. Produce requests
collect in `workers.produce.batching`; at the end of the round they are executed together, answers are sent, and dropped
descriptors are closed (never within the round: the kernel reuses their numbers). Bytes of a round live in the buffer
until it ends; the start of a frame and the bytes behind a barrier must outlive it and are copied out.

A client may send thousands of requests of a few bytes at once, and each may cost a millisecond or more. So a connection
whose requests have taken SLICE_S rests, and all others have their turn before it continues. The loop reads the clock
where more frames follow a request that is not plain Produce, and where records had to be decoded.
"""

from __future__ import annotations

import logging
import mmap
import select
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.workers.apis import k00_produce
from odradek.workers.dispatch.api import SLICE_S
from odradek.workers.dispatch.dispatch import MALFORMED
from odradek.workers.net.busy_poll import BusyPoll
from odradek.workers.net.connection import LAST, Connection

if TYPE_CHECKING:
    from odradek.workers.worker import Worker

log = logging.getLogger(__name__)

BUFFER = 8 << 20
LEAST_ROOM = 1 << 19  # receive only with this much room left: large reads, few of them
MOST_RECEIVED = 1 << 20  # by one connection in one round, so that others get their turn
BIG_FRAME = 1 << 17  # larger partial frames get memory of their own
BIG_HELD = 1 << 16  # once this much has arrived: memory grows with received bytes, not with the announced size
BLOCKED_OUT = 1 << 20  # unsent bytes above which a connection is not read
MOST_UNDECIDED = 1 << 20  # bytes of Produce requests that wait for locks or the disk, with the same effect
LEAST_FRAME = 10  # a request header: api key, version, correlation id, client id

_NEWEST_PRODUCE = k00_produce.API.versions[1]

_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">ihhih")  # frame size, api key, version, correlation id, length of the client id
_READABLE = int(select.EPOLLIN)
_IN, _OUT, _RDHUP = int(select.EPOLLIN | select.EPOLLRDHUP), int(select.EPOLLOUT), int(select.EPOLLRDHUP)
_GONE = int(select.EPOLLHUP | select.EPOLLERR)


class Loop:
    """Connections and other descriptors of one worker."""

    def __init__(self, worker: Worker, max_request: int, spin_us: int) -> None:
        self._worker = worker
        self._round = worker.round
        self._max_request = max_request
        self._epoll = select.epoll()
        self._wait = BusyPoll(self._epoll.poll, spin_us).wait
        self._buffer = mmap.mmap(-1, BUFFER)  # a bytearray is zeroed, and so takes memory, at once
        self._view = memoryview(self._buffer)
        self._fill = 0
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._garbage: list[Connection] = []
        self._unfinished: dict[Connection, None] = {}  # with more to send, and room in their sockets
        self._resting: dict[Connection, None] = {}  # with more requests to execute
        self._timed: Connection | None = None  # the connection that `_until` belongs to
        self._until = 0.0
        self.connections: dict[int, Connection] = {}
        self.bytes_in = self.bytes_out = self.requests = self.produce_requests = 0

    # -- descriptors

    def watch(self, fd: int, handler: Callable[[int], None], events: int = select.EPOLLIN) -> None:
        """Call `handler(events)` when `fd` is ready."""
        self._handlers[fd] = handler
        self._epoll.register(fd, events)

    def rewatch(self, fd: int, events: int) -> None:
        """Change the events that `fd` is watched for."""
        self._epoll.modify(fd, events)

    def unwatch(self, fd: int) -> None:
        """Stop watching `fd`."""
        del self._handlers[fd]
        self._epoll.unregister(fd)

    def add(self, connection: Connection) -> None:
        """Serve a new connection."""
        self._epoll.register(connection.fd, _IN)  # first: this may fail
        self.connections[connection.fd] = connection
        connection.mask = _IN
        connection.last_active = int(time.monotonic())

    def remove(self, connection: Connection) -> None:
        """Stop serving a connection; its socket is closed when the round ends."""
        if self.connections.pop(connection.fd, None) is not None:
            connection.closing = connection.blocked = True  # blocked: no more of its requests are executed
            self._epoll.unregister(connection.fd)
            self._garbage.append(connection)

    def give_up(self, connection: Connection) -> None:
        """Stop serving a connection without closing it: another process continues with it."""
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
        events = self._wait(0 if self._unfinished or self._resting else timeout)
        self._worker.before_events()
        self._timed = None
        if self._unfinished:
            self._go_on()
        if self._resting:
            self._wake()
        connections = self.connections
        for fd, event in events:
            connection = connections.get(fd)
            if connection is None:
                handler = self._handlers.get(fd)
                if handler is not None:
                    handler(event)
            elif event == _READABLE:
                self._receive(connection)
            else:
                self._other(connection, event)
        self.finish_round()

    def _wake(self) -> None:
        """Resume resting connections, each for a slice, while time is left; the others in the next turns."""
        until = time.monotonic() + SLICE_S
        for connection in list(self._resting):
            del self._resting[connection]
            self._timed = None
            if connection.out_size <= BLOCKED_OUT:
                connection.blocked = connection.closing
                if not (connection.blocked or connection.waiting):
                    self.resume(connection)
            if time.monotonic() >= until:
                return

    def spend(self, connection: Connection) -> None:
        """Account for an expensive request: a connection that has used SLICE_S rests."""
        now = time.monotonic()
        if connection is not self._timed:
            self._timed, self._until = connection, now + SLICE_S
        elif now >= self._until and not connection.closing:
            connection.blocked = True
            self._resting[connection] = None

    def _go_on(self) -> None:
        """Send one more slice to each unfinished connection."""
        unfinished, self._unfinished = self._unfinished, {}
        for connection in unfinished:
            if not connection.closing:
                self.send(connection)

    def _other(self, connection: Connection, event: int) -> None:
        """Handle an event other than plain readability."""
        if event & _OUT:
            connection.active = True
            self.send(connection)
        if event & _RDHUP and connection.waiting:
            self._worker.drop(connection, "closed by the client")
        elif event & _IN:
            self._receive(connection)
        elif event & _GONE:
            self._worker.drop(connection, "hung up")

    def finish_round(self) -> None:
        """Execute the collected requests, answer them, and release the buffer."""
        collected = self._round
        if collected.touched or collected.settling:
            self._flush()
        self._fill = 0
        if self._garbage:
            for connection in self._garbage:
                connection.sock.close()
            self._garbage.clear()

    def _flush(self) -> None:
        """Append and answer until nothing is left: an answered barrier may release further requests."""
        collected = self._round
        collected.flush()
        while collected.settling:
            settling, collected.settling = collected.settling, []
            for connection in settling:
                try:
                    self._settle(connection)
                except Exception:  # a bug costs this connection, not the others
                    log.exception("%r: cannot answer Produce", connection)
                    self._worker.drop(connection, "an error of the broker")
            if collected.touched:
                collected.flush()

    def _settle(self, connection: Connection) -> None:
        """Send the answers of decided Produce requests, in request order, and continue behind them."""
        connection.settling = False
        if connection.closing:
            return
        order, answers = connection.order, []
        before = len(order)
        while order and order[0].done:
            pending = order.popleft()
            reply = pending.reply
            answer = k00_produce.answer(pending) if reply is None or pending.error else reply(pending)
            if answer is not None:
                answers.append(answer)
            elif k00_produce.refused_silently(pending):
                self._worker.drop(connection, "a request with acks=0 was refused")
                return
        self.produce_requests += before - len(order)
        if answers:
            self.send_bytes(connection, b"".join(answers))
        if connection.waiting and not order:
            connection.waiting = False
            self.resume(connection)

    # -- receiving

    def _receive(self, connection: Connection) -> None:
        held = connection.order or connection.waiting or connection.blocked or connection.closing or connection.big
        if held and not self._receives_small(connection):
            return
        connection.active = True
        start = self._fill
        if BUFFER - start < LEAST_ROOM:
            self._flush()
            start = self._fill = 0
            if connection.closing:
                return
        view, partial = self._view, connection.partial
        begin = start + len(partial)
        count = self._receive_into(connection, view[begin : begin + MOST_RECEIVED])
        if count > 0:
            if partial:
                view[start:begin] = partial
                connection.partial = b""
            self._fill = begin = begin + count
            self._consume(connection, view, start, begin)

    def _receives_small(self, connection: Connection) -> bool:
        """Whether a connection that is not at a request boundary may receive into the shared buffer now."""
        if connection.closing:
            return False
        if connection.order and connection.undecided > MOST_UNDECIDED:
            connection.waiting = True  # as behind a barrier
        if connection.waiting or connection.blocked:
            self._pause(connection)
            return False
        if connection.big is not None:
            connection.active = True
            self._receive_big(connection)
            return False
        return True

    def _receive_into(self, connection: Connection, view: memoryview) -> int:
        """Bytes received; 0 when there are none now; -1 when the connection has ended (and was dropped)."""
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
        """The client sends although its last request is unanswered: stop reading, so that TCP pushes back."""
        self._want(connection, connection.mask & ~_IN)

    def _consume(self, connection: Connection, view: memoryview, at: int, end: int) -> None:
        """Take the whole frames in view[at:end]; keep the rest."""
        worker, largest, key = self._worker, self._max_request, -1
        try:
            while end - at >= _HEAD.size:
                size, key, version, correlation, length = _HEAD.unpack_from(view, at)
                following = at + 4 + size
                if following > end or size < LEAST_FRAME or size > largest:
                    break
                if key == 0:
                    if not 0 <= version <= _NEWEST_PRODUCE:
                        worker.requests.unsupported(connection, key, version)
                        return
                    body = at + 14 + length if length > 0 else at + 14
                    if version >= 9:
                        body = skip_header_tags(view, body, following)
                    k00_produce.raw(worker, connection, version, correlation, view, at + 12, body, following)
                    if connection.blocked or connection.waiting:
                        self._put_off(connection, view, following, end)
                        return
                elif not self._request(connection, key, version, correlation, view, at + 12, following):
                    if not connection.closing:
                        connection.backlog = self.kept(view, at, end)
                    return
                elif connection.waiting or connection.blocked or (following < end and self._is_over(connection)):
                    self._put_off(connection, view, following, end)
                    return
                at = following
        except MALFORMED as error:
            worker.drop(connection, f"malformed {connection.request_name if key else 'Produce'}: {error}")
            return
        except Exception:  # a bug costs this connection, not the others
            log.exception("%r: %s failed", connection, connection.request_name if key else "Produce")
            worker.drop(connection, "an error of the broker")
            return
        if at < end and not connection.closing:
            self._keep(connection, view, at, end)

    def _keep(self, connection: Connection, view: memoryview, at: int, end: int) -> None:
        """Keep the start of a frame; a large frame gets memory of its own."""
        if end - at >= 4:
            (size,) = _SIZE.unpack_from(view, at)
            if not LEAST_FRAME <= size <= self._max_request:
                self._worker.drop(connection, f"a frame of {size} bytes (socket.request.max.bytes)")
                return
            if size > BIG_FRAME and end - at >= BIG_HELD:
                connection.big_fill, connection.big_size = end - at, size + 4
                connection.big = bytearray(min(size + 4, 2 * (end - at)))
                connection.big[: end - at] = view[at:end]
                return
        connection.partial = bytes(view[at:end])

    def _is_over(self, connection: Connection) -> bool:
        """Whether a connection with more frames has used up its slice."""
        self.spend(connection)
        return connection.blocked

    def _put_off(self, connection: Connection, view: memoryview, at: int, end: int) -> None:
        if at < end:
            connection.backlog = self.kept(view, at, end)

    def kept(self, view: memoryview, at: int, end: int) -> tuple[memoryview, int, int]:
        """Copy waiting bytes out of the shared buffer; bytes outside of it are not copied for each barrier."""
        if view.obj is not self._buffer:
            return view, at, end
        return memoryview(bytearray(view[at:end])), 0, end - at

    def _request(
        self, connection: Connection, key: int, version: int, correlation: int, view: memoryview, at: int, end: int
    ) -> bool:
        """Execute a request other than Produce; False when it must wait for earlier ones."""
        if connection.order:
            self._flush()
            if connection.closing:
                return False
            if connection.order:
                connection.waiting = True  # its batches wait for a lock or the disk, as a barrier
                return False
        self.requests += 1
        connection.consuming = True
        try:
            self._worker.requests.take(connection, key, version, correlation, view, at, end)
        finally:
            connection.consuming = False
        return True

    def resume(self, connection: Connection) -> None:
        """A barrier is answered: execute the requests behind it, then read again."""
        if connection.consuming:
            return
        if connection.backlog is not None:
            (view, at, end), connection.backlog = connection.backlog, None
            self._consume(connection, view, at, end)
        if not (connection.closing or connection.waiting or connection.blocked):
            self._want(connection, connection.mask | _IN)

    # -- sending

    def answer_pieces(self, connection: Connection, pieces: list[Any]) -> None:
        """Send a whole answer and continue behind the barrier."""
        if connection.closing:
            return
        connection.waiting = False
        connection.parked = None
        connection.queue_all(pieces)
        self.send(connection)
        if not (connection.closing or connection.waiting or connection.blocked):
            self.resume(connection)

    def answer_bytes(self, connection: Connection, data: bytes) -> None:
        """`answer_pieces` for an answer that consists of these bytes."""
        if connection.closing:
            return
        connection.waiting = False
        connection.parked = None
        self.send_bytes(connection, data)
        if not (connection.closing or connection.waiting or connection.blocked):
            self.resume(connection)

    def send_bytes(self, connection: Connection, data: bytes) -> None:
        """Send a whole answer: at once if the socket takes it, as it nearly always does."""
        if not connection.out:
            try:
                sent = connection.sock.send(data, LAST)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._worker.drop(connection, str(error))
                return
            self.bytes_out += sent
            if sent == len(data):
                return
            data = data[sent:]
        connection.queue(data)
        self.send(connection)

    def send(self, connection: Connection) -> None:
        """Send queued answers; continue later when the socket is full."""
        try:
            self.bytes_out += connection.flush()
        except (OSError, EOFError) as error:
            self._worker.drop(connection, str(error))
            return
        if connection.out:
            if connection.full:
                self._want(connection, connection.mask | _OUT)
            else:
                self._unfinished[connection] = None
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
    """The position behind the tagged fields of a flexible request header; mostly one zero byte."""
    if view[at] == 0:
        return at + 1
    from odradek.protocol.wire import skip_tags

    return skip_tags(view, at, end)
