"""Sends answers: at once where the socket takes them, else a slice for each turn of the loop.

A client that reads a backlog must not delay the others, and one that does not read must not fill this process's memory:
above MOST_UNSENT bytes no more of its requests are taken.
"""

from __future__ import annotations

import mmap
import os
import select
import socket
from collections.abc import Callable
from typing import Any

from odradek.storage.files.openfile import FileSlice
from odradek.workers.net import splice
from odradek.workers.net.connection import Connection, Tls
from odradek.workers.net.connection_state import ANSWER, CLOSED, DRAIN, FILL, FULL
from odradek.workers.net.request_times import RequestTimes

# As plain integers: combining the enum's members costs a microsecond at each send.
LAST = int(socket.MSG_NOSIGNAL)
_OUT = int(select.EPOLLOUT)
_MORE = int(socket.MSG_NOSIGNAL | socket.MSG_MORE)
SLICE = 1 << 20  # bytes sent per turn of a connection; a quarter of it cost twice the CPU per byte
MOST_UNSENT = 1 << 20  # unsent bytes above which a connection is not read
_REST = mmap.PAGESIZE  # sent on top of a SLICE: a header precedes it, and a splice ends at a page boundary

_SPLICE = splice.Splice()  # one per process
_PLAINTEXT = bytearray(128 << 10)  # from a file to OpenSSL, one at a time; eight records


class Sender:
    """Sends the answers of a worker's connections."""

    def __init__(
        self, drop: Callable[[Connection, str], None], watch: Callable[[Connection, bool], None],
        resume: Callable[[Connection], None], times: RequestTimes,
    ) -> None:  # fmt: skip
        """`watch(connection, full)` starts or stops watching for room in its socket, `resume` continues to read."""
        self._drop = drop
        self._watch = watch
        self._resume = resume
        self._times = times
        self._answered = times.answered
        self.unfinished: dict[Connection, None] = {}  # with more to send, and room in their sockets
        self.bytes_out = 0

    def answer_pieces(self, connection: Connection, pieces: list[Any]) -> None:
        """Send the whole answer of the request that the connection waits for, and continue behind it."""
        state = connection.state
        if state == CLOSED:
            return
        connection.state, row = ANSWER[state], connection.times
        self._answered(connection)
        connection.delayed = None
        connection.queue_all(pieces)
        self.send(connection, row)
        if not connection.state:
            self._resume(connection)

    def answer_bytes(self, connection: Connection, data: bytes) -> None:
        """`answer_pieces` for an answer that consists of these bytes."""
        state = connection.state
        if state == CLOSED:
            return
        connection.state, row = ANSWER[state], connection.times
        self._answered(connection)
        connection.delayed = None
        self.send_bytes(connection, data, row)
        if not connection.state:
            self._resume(connection)

    def send_bytes(self, connection: Connection, data: bytes, row: list[int] | None = None) -> None:
        """Send whole answers: at once if the socket takes them, as it nearly always does.

        `row`: the histograms of the request, None for pipelined ones.
        """
        if not connection.out:
            try:
                sent = connection.sock.send(data, LAST)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._drop(connection, str(error))
                return
            self.bytes_out += sent
            if sent == len(data):
                return
            data = data[sent:]
        connection.queue(data)
        self.send(connection, row)

    def send(self, connection: Connection, row: list[int] | None = None) -> None:
        """Send queued answers; continue later when the socket is full. `row`: as that of `send_bytes`."""
        try:
            self.bytes_out += flush(connection)
        except (OSError, EOFError) as error:
            self._drop(connection, str(error))
            return
        if not connection.out:
            self._drained(connection)
            return
        if not connection.sends_ns:
            self._times.sends(connection, row)
        if connection.full:
            self._watch(connection, True)
        else:
            self.unfinished[connection] = None
        if connection.out_size > MOST_UNSENT:
            connection.state = FILL[connection.state]

    def _drained(self, connection: Connection) -> None:
        if connection.sends_ns:
            self._times.sent(connection)
        if connection.mask & _OUT:
            self._watch(connection, False)
        if connection.state & FULL:
            connection.state = DRAIN[connection.state]
            if not connection.state:
                self._resume(connection)

    def send_unfinished(self) -> None:
        """Send one more slice to each unfinished connection."""
        unfinished, self.unfinished = self.unfinished, {}
        for connection in unfinished:
            if connection.state != CLOSED:
                self.send(connection)


def flush(connection: Connection) -> int:
    """Send what the socket takes, but stop after a SLICE: a client that reads a backlog must not delay the others.

    Returns the bytes sent; sets `full` when the socket takes no more. OSError: connection or file is broken.
    """
    sent = 0
    out = connection.out
    connection.full = False
    while out and sent < SLICE:
        piece = out[0]
        try:
            if isinstance(piece, FileSlice):
                sent += _send_file(connection, piece, max(SLICE - sent, _REST))
            else:
                sent += _send_bytes(connection, piece)
        except (BlockingIOError, InterruptedError):
            connection.full, connection.keeps_up = True, False
            break
    connection.out_size -= sent
    return sent


def _send_bytes(connection: Connection, piece: bytes | memoryview) -> int:
    """Does not copy the unsent rest: a socket takes a thousandth of a 100 MB answer at a time."""
    out = connection.out
    count = connection.sock.send(piece, LAST if len(out) == 1 else _MORE)
    if count == len(piece):
        out.popleft()
    else:
        out[0] = memoryview(piece)[count:]
    return count


def _send_file(connection: Connection, piece: FileSlice, most: int) -> int:
    size = min(piece.size, most)
    if connection.tls is not None and not connection.tls.in_kernel:
        count = _send_encrypted(connection.tls, piece)
    elif size < splice.LEAST:
        count = os.sendfile(connection.fd, piece.file.fd, piece.position, size)
    else:
        count = _send_large(connection, piece, size)
    if not count:
        raise EOFError("the segment file is shorter than what was published of it")
    piece.position += count
    piece.size -= count
    if not piece.size:
        connection.out.popleft()
    return count


def _send_encrypted(sock: Tls, piece: FileSlice) -> int:
    """A part whose size depends on the piece alone: what OpenSSL could not send it must get again."""
    with memoryview(_PLAINTEXT)[: min(piece.size, len(_PLAINTEXT))] as room:
        count = os.preadv(piece.file.fd, [room], piece.position)
        return sock.send(room[:count], LAST) if count else 0


def _send_large(connection: Connection, piece: FileSlice, size: int) -> int:
    """If the socket took only part of the last large slice, ACKs free its buffer bit by bit: do not splice then."""
    if connection.keeps_up:
        size = min(size, splice.room(piece.position))
        count = _SPLICE.send(connection.fd, piece.file.fd, piece.position, size, size < piece.size)
    else:
        count = os.sendfile(connection.fd, piece.file.fd, piece.position, size)
    connection.keeps_up = count == size
    return count
