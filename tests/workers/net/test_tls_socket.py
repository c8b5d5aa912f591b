"""TLS connections through the loop, over real sockets: all bytes arrive, whatever the sizes and the order."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.ipc import latencies
from odradek.security.tls.handshake import Progress
from odradek.storage.files.openfile import FileSlice, OpenFile
from odradek.workers.net import buffered_tls, connection_state, framing, tls_socket
from odradek.workers.net.buffered_tls import BufferedTls
from odradek.workers.net.connection import Connection, Tls
from odradek.workers.net.loop import Loop
from odradek.workers.net.request_times import RequestTimes
from odradek.workers.net.tls_socket import TlsSocket

from ...security.tls.conftest import certificates_in

SECONDS = 60  # limit for each wait
FILE = 600_000  # bytes
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
KEY, SLOW = 7, 8  # APIs: one is answered at once, the other on the test's command


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Callable[[ssl.TLSVersion], tuple[ssl.SSLContext, ...]]:
    """Contexts of server and client for a version."""
    server_pem, ca_pem = certificates_in(tmp_path_factory.mktemp("tls"))

    def of(version: ssl.TLSVersion) -> tuple[ssl.SSLContext, ...]:
        server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        server.load_cert_chain(server_pem)
        client.load_verify_locations(ca_pem)
        client.check_hostname = False
        client.minimum_version = client.maximum_version = version
        return server, client

    return of


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> OpenFile:
    """A segment's file."""
    path = tmp_path_factory.mktemp("file") / "segment"
    path.write_bytes(os.urandom(FILE))
    return OpenFile(str(path))


def _by_socket(sock: socket.socket, context: ssl.SSLContext) -> Tls:
    return TlsSocket(context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False))


@pytest.fixture(scope="module", params=[_by_socket, BufferedTls], autouse=True)
def _both(request: pytest.FixtureRequest) -> None:
    """Each test runs with both TLS implementations."""
    Served.make = request.param


def _set_most(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    for module in (tls_socket, buffered_tls):
        monkeypatch.setattr(module, "MOST", most)


class Served:
    """One TLS connection of a loop, and its handler, which records requests and answers them."""

    make: Callable[[socket.socket, ssl.SSLContext], Tls] = staticmethod(_by_socket)

    def __init__(self, contexts: tuple[ssl.SSLContext, ...], buffers: int, tcp: bool = False) -> None:
        ours, theirs = _pair(tcp)
        for sock in (ours, theirs):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffers)
            sock.setblocking(False)
        self.client = contexts[1].wrap_socket(theirs, do_handshake_on_connect=False)
        tls = Served.make(ours, contexts[0])
        self._shake_hands(tls)
        self.loop = Loop(self, 100 << 20, 0, RequestTimes(memoryview(bytearray(latencies.SIZE)).cast("q"), 0))
        self.connection = Connection(tls, "SSL", "h", 1)
        self.connection.tls = tls
        self.loop.add(self.connection)
        self.taken: list[bytes] = []
        self.answers: list[list[bytes | FileSlice]] = []  # for the requests to come; empty: four bytes
        self.waiting = 0
        self.dropped = ""
        self.received = b""
        self.ended = False
        self._unsent = b""

    def _shake_hands(self, tls: Tls) -> None:
        handshake, done = tls.handshake(1e99), False
        while not (done and handshake.is_over):
            assert handshake.step(0) is not Progress.FAILED, handshake.failure
            try:
                self.client.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                pass
        tls.established()

    # -- the loop's handler

    def take(
        self, connection: Connection, key: int, version: int, correlation: int, view: memoryview, head: int, end: int
    ) -> None:
        self.taken.append(bytes(view[head + 2 : end]))
        if key == SLOW:
            self.waiting += 1
        else:
            self.answer()

    def answer(self) -> None:
        """Answer the request."""
        pieces = self.answers.pop(0) if self.answers else [b"done"]
        if len(pieces) == 1 and isinstance(pieces[0], bytes):
            self.loop.sender.answer_bytes(self.connection, pieces[0])
        else:
            self.loop.sender.answer_pieces(self.connection, list(pieces))

    def answer_waiting(self) -> None:
        """Answer a slow request, if one waits."""
        if self.waiting and not self.connection.closed:
            self.waiting -= 1
            self.answer()

    def flush(self) -> None: ...
    def before_events(self) -> None: ...

    def drop(self, connection: Connection, why: str) -> None:
        self.dropped = self.dropped or why
        if not connection.closed:
            self.loop.remove(connection)

    def name_of(self, key: int) -> str:
        return str(key)

    # -- the client

    def send(self, data: bytes) -> None:
        """Send now, and the rest in later turns."""
        self._unsent += data
        self._send()

    def _send(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[self.client.send(self._unsent[:50_000]) :]
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        except OSError:
            self._unsent, self.ended = b"", True

    def read(self, size: int) -> None:
        """Read once."""
        try:
            data = self.client.recv(size)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError:
            data = b""
        self.received += data
        self.ended = self.ended or not data

    def turn(self) -> None:
        """A round of the loop."""
        self._send()
        self.loop.turn(0)

    def until(self, done: Callable[[], Any], read: int = 1 << 16) -> None:
        """Turn and read until `done()`."""
        deadline = time.monotonic() + SECONDS
        while not done():
            assert time.monotonic() < deadline, f"the connection hangs: {self.connection.state=} {self.dropped=}"
            self.turn()
            if read:
                self.read(read)

    def close(self) -> None:
        self.drop(self.connection, "the end")
        self.loop.finish_round()
        self.client.close()
        self.loop._epoll.close()


def _pair(tcp: bool) -> tuple[socket.socket, socket.socket]:
    if not tcp:
        return socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        return server.accept()[0], client


@pytest.fixture
def serve(contexts: Any) -> Iterator[Callable[..., Served]]:
    """Make connections, and close them at the end."""
    made: list[Served] = []

    def make(version: ssl.TLSVersion, buffers: int = 1, **options: Any) -> Served:
        made.append(Served(contexts(version), buffers, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def frame(payload: bytes, key: int = KEY) -> bytes:
    """A request."""
    head = key.to_bytes(2, "big") + bytes(6) + b"\xff\xff"
    return (len(head) + len(payload)).to_bytes(4, "big") + head + payload


def payload(number: int, size: int) -> bytes:
    """Bytes that identify a request."""
    return (number.to_bytes(4, "big") * (size // 4 + 1))[:size]


SIZES = st.one_of(
    st.integers(0, 300), st.integers(16_000, 17_000), st.integers(60_000, 70_000), st.integers(0, 400_000)
)
PIECES = st.lists(
    st.one_of(
        SIZES.map(lambda size: ("bytes", size)),
        st.tuples(st.integers(0, FILE - 1), st.integers(1, FILE)).map(lambda pair: ("file", *pair)),
    ),
    min_size=1,
    max_size=4,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("request"), SIZES, st.booleans(), PIECES),
        st.tuples(st.just("turn")),
        st.tuples(st.just("read"), st.integers(1, 300_000)),
        st.tuples(st.just("answer")),
    ),
    max_size=12,
)
HERE = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.mark.parametrize("version", VERSIONS)
@given(steps=STEPS, buffers=st.sampled_from([1, 10_000, 1 << 20]))
@HERE
def test_all_requests_and_all_answers_arrive(
    contexts: Any, file: OpenFile, version: ssl.TLSVersion, steps: list[tuple[Any, ...]], buffers: int
) -> None:
    served, answers = Served(contexts(version), buffers), b""
    requests: list[bytes] = []
    try:
        for step in steps:
            if step[0] == "request":
                requests.append(payload(len(requests), step[1]))
                pieces = [_piece(file, piece) for piece in step[3]]
                served.answers.append([piece for piece in pieces if _size(piece)] or [b"none"])
                answers += b"".join(_content(file, piece) for piece in served.answers[-1])
                served.send(frame(requests[-1], SLOW if step[2] else KEY))
            elif step[0] == "turn":
                served.turn()
            elif step[0] == "read":
                served.read(step[1])
            else:
                served.answer_waiting()
        served.until(lambda: served.answer_waiting() or (len(served.taken) == len(requests) and not served.waiting))
        served.until(lambda: len(served.received) >= len(answers))
        assert served.taken == requests
        assert served.received == answers
        assert not served.connection.out
        assert not served.connection.out_size
        assert served.dropped == ""
        assert served.connection.idle
    finally:
        served.close()


@pytest.mark.parametrize("version", VERSIONS)
@given(steps=STEPS, gracefully=st.booleans(), half=st.booleans())
@HERE
def test_close_by_the_client_at_any_time_drops_the_connection(
    contexts: Any, file: OpenFile, version: ssl.TLSVersion, steps: list[tuple[Any, ...]], gracefully: bool, half: bool
) -> None:
    """Requests sent before are taken or dropped; the connection does not hang, and no incomplete request is taken.

    A client that only stops sending gets its answers, so it must read them: the server reads no end before.
    """
    served = Served(contexts(version), 1, tcp=True)
    requests: list[bytes] = []
    try:
        for step in steps:
            if step[0] == "request":
                requests.append(payload(len(requests), step[1]))
                served.answers.append([piece for each in step[3] if _size(piece := _piece(file, each))] or [b"none"])
                served.send(frame(requests[-1]))
            elif step[0] == "turn":
                served.turn()
            elif step[0] == "read":
                served.read(step[1])
        _close(served.client, gracefully, half)
        served._unsent = b""
        served.until(lambda: served.dropped, read=1 << 16 if half else 0)
        assert served.taken == requests[: len(served.taken)]
    finally:
        served.close()


def _close(client: ssl.SSLSocket, gracefully: bool, half: bool) -> None:
    if gracefully:
        try:
            client.unwrap()
        except (OSError, ValueError):
            pass
    if half:
        socket.socket.shutdown(client, socket.SHUT_WR)
    else:
        client.close()


def _piece(file: OpenFile, piece: tuple[Any, ...]) -> bytes | FileSlice:
    if piece[0] == "bytes":
        return payload(piece[1], piece[1])
    return FileSlice(file, piece[1], min(piece[2], FILE - piece[1]))


def _size(piece: bytes | FileSlice) -> int:
    return len(piece) if isinstance(piece, bytes) else piece.size


def _content(file: OpenFile, piece: bytes | FileSlice) -> bytes:
    return piece if isinstance(piece, bytes) else os.pread(file.fd, piece.size, piece.position)


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_buffered_in_openssl_are_read_without_an_event(
    serve: Any, version: ssl.TLSVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A TLS record holds more than one read takes, and epoll does not report the rest."""
    monkeypatch.setattr(framing, "MOST_RECEIVED", 100)
    served = serve(version, 1 << 20)
    requests = [payload(number, 10) for number in range(300)]
    served.send(b"".join(map(frame, requests)))
    served.until(lambda: len(served.taken) == 300)
    assert served.taken == requests


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_buffered_in_openssl_wait_for_the_answer(
    serve: Any, version: ssl.TLSVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until a request is answered, the connection is not read; then the rest is read without an event."""
    monkeypatch.setattr(framing, "MOST_RECEIVED", 40)
    served = serve(version, 1 << 20)
    served.send(b"".join(frame(payload(number, 10), SLOW) for number in range(20)))
    for number in range(20):
        served.until(lambda number=number: len(served.taken) == number + 1)
        for _ in range(3):
            served.turn()
        assert len(served.taken) == number + 1
        assert not served.connection.idle
        served.answer_waiting()


def test_request_before_the_end_of_the_stream_is_taken(serve: Any) -> None:
    """The request and the end arrive together."""
    served = serve(VERSIONS[1], 1 << 20)
    served.send(frame(b"last"))
    with pytest.raises((ssl.SSLError, OSError)):
        served.client.unwrap()
    served.client.close()
    served.until(lambda: served.dropped, read=0)
    assert served.taken == [b"last"]


def test_stream_of_small_records_is_received_up_to_its_end(serve: Any) -> None:
    """Its records and its end are more than one call of the socket returns."""
    served = serve(VERSIONS[1], 1 << 20)
    sent = [payload(number, size) for number, size in enumerate([10, 1000] * 150)]
    for request in sent:
        served.send(frame(request))
    served.until(lambda: len(served.taken) == len(sent))
    for request in sent:
        served.send(frame(request))
    with pytest.raises((ssl.SSLError, OSError)):
        served.client.unwrap()
    served.until(lambda: served.dropped, read=0)
    assert served.taken == sent + sent


def test_large_frame_is_decrypted_in_slices(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read lasts as long as bytes arrive: without slices, other connections would wait for the whole frame."""
    _set_most(monkeypatch, 1000)
    served = serve(VERSIONS[1], 1 << 20)
    served.send(payload(1, 16_000))
    with memoryview(bytearray(16_000)) as room:
        assert served.connection.sock.recv_into(room) == 1000
    assert served.connection.tls.has_more


def test_a_large_answer_is_encrypted_in_slices(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call of OpenSSL lasts as long as the socket takes bytes."""
    _set_most(monkeypatch, 1000)
    served = serve(VERSIONS[1], 1 << 20)
    assert served.connection.sock.send(bytes(16_000), 0) == 1000


def test_file_that_ends_early_closes_the_connection(serve: Any, file: OpenFile) -> None:
    served = serve(VERSIONS[1])
    served.answers.append([b"head", FileSlice(file, FILE - 10, 20)])
    served.send(frame(b""))
    served.until(lambda: served.dropped)
    assert "shorter than what was published" in served.dropped


@pytest.mark.parametrize("version", VERSIONS)
def test_plain_bytes_among_tls_records_close_the_connection(serve: Any, version: ssl.TLSVersion) -> None:
    served = serve(version)
    socket.socket.send(served.client, b"GET / HTTP/1.0\r\n\r\n" + bytes(100))
    served.until(lambda: served.dropped, read=0)


def test_close_sends_close_notify(serve: Any) -> None:
    """The client sees the end of TLS, not a truncated stream."""
    served = serve(VERSIONS[1])
    served.drop(served.connection, "closed by us")
    served.loop.finish_round()
    served.client.suppress_ragged_eofs = False
    served.client.settimeout(SECONDS)
    assert served.client.recv(1) == b""


def test_expired_connection_keeps_bytes_buffered_in_openssl(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection leaves the loop with `has_more` set, for its next owner."""
    monkeypatch.setattr(framing, "MOST_RECEIVED", 40)
    served = serve(VERSIONS[1], 1 << 20)
    served.send(frame(b"first", SLOW) + frame(bytes(100)))
    served.until(lambda: served.taken)
    served.connection.state = connection_state.EXPIRE[served.connection.state]
    served.answer_waiting()
    for _ in range(3):
        served.turn()
    assert served.taken == [b"first"]
    assert served.connection.tls.has_more
    assert served.received == b""
    served.until(lambda: served.received == b"done")
