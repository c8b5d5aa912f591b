"""Large slices through a pipe: every byte arrives once, whatever the socket takes or the system refuses."""

from __future__ import annotations

import errno
import mmap
import os
import resource
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.storage.files.openfile import FileSlice, OpenFile
from odradek.workers.net import splice
from odradek.workers.net.connection import Connection
from odradek.workers.net.sending import _SPLICE, SLICE, flush

from ...harness.process import readable

SIZE = (3 << 20) + 12_345
CONTENT = os.urandom(SIZE)


@pytest.fixture
def file(tmp_path: Path) -> OpenFile:
    (tmp_path / "log").write_bytes(CONTENT)
    return OpenFile(str(tmp_path / "log"))


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


def send(ours: socket.socket, pieces: list[bytes | FileSlice]) -> None:
    """Send all pieces, as the loop does."""
    connection = Connection(ours, "l", "h", 1)
    connection.queue_all(pieces)
    while connection.out:
        flush(connection)
        if connection.full:
            assert _writable(ours)
    assert connection.out_size == 0


def _writable(sock: socket.socket) -> bool:
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    return bool(poll.poll(20_000))


def received(theirs: socket.socket, size: int) -> bytes:
    """Receive `size` bytes; check that no more come."""
    data = bytearray()
    while len(data) < size:
        piece = theirs.recv(100_000)
        assert piece
        data += piece
    assert not readable(theirs, 0.05)
    return bytes(data)


@pytest.mark.parametrize("slow", [False, True])
def test_every_byte_arrives_once_and_in_order(
    pair: tuple[socket.socket, socket.socket], file: OpenFile, slow: bool
) -> None:
    """Slices begin and end at any offset, with bytes between them; the socket buffer is small or large."""
    ours, theirs = pair
    if slow:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20_000)
    places = [(0, SIZE), (1, splice.LEAST), (4095, SLICE + 5000), (4097, splice.LEAST - 1), (SIZE - 1, 1), (77, SLICE)]
    pieces: list[bytes | FileSlice] = []
    for position, size in places:
        pieces += [b"head", FileSlice(file, position, min(size, SIZE - position))]
    expected = b"".join(b"head" + CONTENT[position : position + size] for position, size in places)
    sending = threading.Thread(target=send, args=(ours, pieces))
    sending.start()
    assert received(theirs, len(expected)) == expected
    sending.join(60)
    assert not sending.is_alive()


def test_unsent_bytes_of_one_connection_do_not_reach_another(
    pair: tuple[socket.socket, socket.socket], file: OpenFile
) -> None:
    """All connections of the process share the pipe, so no bytes may stay in it."""
    ours, _ = pair
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
    stuck = Connection(ours, "l", "h", 1)
    stuck.queue_all([FileSlice(file, 0, SLICE)])
    flush(stuck)
    while not stuck.full:
        flush(stuck)
    assert 0 < stuck.out_size < SLICE
    assert not stuck.keeps_up
    other, reader = socket.socketpair()
    with other, reader:
        other.setblocking(False)
        sending = threading.Thread(target=send, args=(other, [FileSlice(file, SLICE, SLICE)]))
        sending.start()
        assert received(reader, SLICE) == CONTENT[SLICE : 2 * SLICE]
        sending.join(10)


def test_slice_is_sent_in_one_splice_if_the_socket_has_room(file: OpenFile) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        reading = threading.Thread(target=received, args=(theirs, splice.room(0)))
        reading.start()
        assert splice.Splice().send(ours.fileno(), file.fd, 0, splice.room(0), False) == splice.room(0) == 1 << 20
        reading.join(10)
    assert splice.room(1) == splice.room(mmap.PAGESIZE + 1) == (1 << 20) - 1


def test_a_file_that_ends_early_is_an_error(pair: tuple[socket.socket, socket.socket], file: OpenFile) -> None:
    ours, theirs = pair
    connection = Connection(ours, "l", "h", 1)
    connection.queue_all([FileSlice(file, SIZE - 10, splice.LEAST)])
    with pytest.raises(EOFError, match="shorter than what was published"):
        while True:
            flush(connection)
    assert theirs.recv(100) == CONTENT[-10:]


def test_reset_connection_is_an_error_and_closes_the_pipe(
    pair: tuple[socket.socket, socket.socket], file: OpenFile
) -> None:
    ours, theirs = pair
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    theirs.close()
    sender = splice.Splice()
    with pytest.raises(OSError) as caught:
        for _ in range(3):
            sender.send(ours.fileno(), file.fd, 0, splice.LEAST, False)
    assert caught.value.errno in (errno.ECONNRESET, errno.EPIPE)
    assert sender._pipe is None


def test_slice_is_sent_without_descriptors_for_a_pipe(
    pair: tuple[socket.socket, socket.socket], file: OpenFile
) -> None:
    ours, theirs = pair
    _SPLICE.close()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(lowest := os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        sending = threading.Thread(target=send, args=(ours, [FileSlice(file, 5, SLICE)]))
        sending.start()
        assert received(theirs, SLICE) == CONTENT[5 : 5 + SLICE]
        sending.join(10)
        assert _SPLICE._pipe is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
