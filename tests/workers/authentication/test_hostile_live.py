"""Peers that never authenticate harm neither the processes of a whole broker nor its authenticated clients."""

from __future__ import annotations

import os
import random
import re
import socket
import struct
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from odradek.workers.authentication import unauthenticated

from ...clients.admin import create_topic
from ...fuzz.background_client import BackgroundClient
from ...fuzz.golden import Golden, noise
from ...fuzz.grammar import Grammar
from ...fuzz.shooter import shoot_alone
from ...fuzz.test_connections import descriptors
from ...fuzz.watch import Watch
from ...harness.process import wait_until
from ...harness.wire import Wire, header
from ...security.sasl.frames import api_versions, authenticate, handshake, metadata, sized
from .secured_broker import OTHER_PASSWORD, PASSWORD, PROTOCOLS, SecuredBroker

pytestmark = pytest.mark.live

SECONDS = 60
TIMEOUT_S = 5
SEED = int(os.environ.get("ODRADEK_FUZZ_SEED", "1"))
MOST_KIB = 64  # memory of a worker for one unauthenticated connection
CROWD = 2000
AT_ONCE = 50  # fuzzed connections: each failure is delayed by a tenth of a second


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    made = SecuredBroker(
        tmp_path_factory.mktemp("hostile"),
        odradek_authentication_timeout_ms=TIMEOUT_S * 1000,
        connections_max_reauth_ms=3600_000,
    )
    try:
        yield made.start()  # type: ignore[misc]
    finally:
        made.close()


def open_sockets(broker: SecuredBroker) -> int:
    """The number of TCP connections of all workers; open files would vary with topics."""
    return sum(len(psutil.Process(pid).net_connections("tcp")) for pid in broker.pids("worker"))


@pytest.fixture(autouse=True)
def unharmed(broker: SecuredBroker) -> Iterator[BackgroundClient]:
    """No process dies or logs a fault, the background client continues, and the sockets are closed."""
    watch = Watch(broker)
    background = BackgroundClient(broker, timeout=SECONDS)
    background.await_more()
    before = open_sockets(broker)
    yield background
    background.await_more()
    background.check()
    wait_until(lambda: open_sockets(broker) <= before, SECONDS, "the sockets are closed")
    background.finish()
    assert not watch.fault()
    for secret in (PASSWORD, OTHER_PASSWORD):
        assert secret not in broker.log


def ended(wire: Wire) -> bool:
    """Wait until the broker closes the connection, whatever it sends before."""
    wire.socket.settimeout(SECONDS)
    with suppress(ConnectionError):
        while wire.socket.recv(1 << 16):
            pass
    wire.close()
    return True


def plain(broker: SecuredBroker, protocol: str) -> Wire:
    """A TCP connection without TLS."""
    return Wire(broker.address(protocol), SECONDS)


HTTP = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_http_and_random_bytes_harm_no_client(broker: SecuredBroker, protocol: str) -> None:
    host, port = broker.address(protocol).split(":")
    rng = random.Random(SEED)
    shoot_alone((host, int(port)), [HTTP, b"\0" * 100, b"\xff" * 100, *[rng.randbytes(300) for _ in range(100)]])


def test_client_hello_byte_by_byte_is_answered(broker: SecuredBroker) -> None:
    """An incomplete hello, without its last byte, is closed after the timeout."""
    hello = client_hello()
    wholes, cuts = ([plain(broker, protocol) for protocol in ("SSL", "SASL_SSL")] for _ in range(2))
    for byte in hello[:-1]:
        for wire in (*wholes, *cuts):
            wire.send_raw(bytes([byte]))
    for whole in wholes:
        whole.send_raw(hello[-1:])
        assert whole.read_exactly(1) == b"\x16", "the server's hello"
        whole.close()
    assert all(ended(cut) for cut in cuts)


def client_hello() -> bytes:
    """A ClientHello of OpenSSL."""
    import ssl

    context = ssl.create_default_context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def test_silent_peers_are_closed_after_the_timeout(broker: SecuredBroker) -> None:
    """The peers are silent before or after their TLS handshake."""
    since = len(broker.log)
    waiting = [plain(broker, protocol) for protocol in PROTOCOLS for _ in range(20)]
    waiting += [broker.connect("SASL_SSL") for _ in range(20)]
    assert all(ended(wire) for wire in waiting)
    assert "odradek.authentication.timeout.ms" in broker.log[since:]


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
@pytest.mark.parametrize("size", [-1, -(1 << 31), 65_537, (1 << 19) + 1, 1 << 30])
def test_frame_of_an_invalid_size_closes_the_connection(broker: SecuredBroker, protocol: str, size: int) -> None:
    wire = broker.connect(protocol)
    wire.send_raw(struct.pack(">i", size) + bytes(100))
    assert wire.closed_by_peer()
    wire.close()


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
def test_tokens_up_to_the_size_limit_are_answered(broker: SecuredBroker, protocol: str) -> None:
    """Large tokens of a mechanism that has them arrive whole, in many reads; larger ones close the connection."""
    for size, answered in ((500_000, True), (1 << 19, False)):
        wire = broker.connect(protocol)
        wire.send_raw(sized(handshake("OAUTHBEARER")))
        wire.read_frame()
        token = b"n,,\x01auth=Bearer " + b"a" * (size - 18) + b"\x01\x01"
        with suppress(ConnectionError):
            wire.send_raw(sized(authenticate(token)))
        if answered:
            assert len(wire.read_frame()) > 4
        else:
            assert ended(wire)
        wire.close()


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
def test_requests_of_unauthenticated_peers_are_not_answered(broker: SecuredBroker, protocol: str) -> None:
    for request in (metadata(), header(0, 7, 1) + bytes(40), header(1, 11, 1) + bytes(80), authenticate(b"x")):
        wire = broker.connect(protocol)
        wire.send_frame(request)
        with pytest.raises((EOFError, ConnectionError)):
            wire.read_frame()
        wire.close()


@pytest.mark.needs("openssl")
def test_renegotiation_and_key_updates_harm_no_client(broker: SecuredBroker) -> None:
    """TLS 1.2 has renegotiation, which is expensive; TLS 1.3 has key updates, which are cheap."""
    for version, command in (("-tls1_2", b"R\n"), ("-tls1_3", b"K\n"), ("-tls1_3", b"k\n")):
        words = ["openssl", "s_client", "-connect", broker.address("SASL_SSL"), "-CAfile", broker.ca, version]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            while b"Verify return code" not in client.stdout.readline():
                pass
            with suppress(BrokenPipeError):
                for _ in range(20):
                    client.stdin.write(command)
                    client.stdin.flush()
            with suppress(BrokenPipeError):
                client.stdin.close()
            client.wait(SECONDS)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("end", ["reset", "half closed", "closed"])
def test_connection_ends_in_every_state_leave_no_socket(broker: SecuredBroker, protocol: str, end: str) -> None:
    for state in states(protocol):
        for _ in range(5):
            wire = (
                broker.connect(protocol) if state is not None and protocol.endswith("SSL") else plain(broker, protocol)
            )
            if state:
                wire.send_raw(state)
            if end == "reset":
                wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if end == "half closed":
                socket.socket.shutdown(wire.socket, socket.SHUT_WR)
                assert ended(wire)
            wire.close()


def states(protocol: str) -> list[bytes | None]:
    """The bytes that the peer has sent; None: TLS has not begun."""
    begun = sized(handshake("PLAIN"))
    exchange = [begun, begun[:-3], begun + sized(authenticate(b"x"))[:9], begun + sized(authenticate(b"x"))]
    exchange += [sized(api_versions(3)), sized(handshake("OAUTHBEARER")) + sized(authenticate(b"n,,\x01\x01"))]
    return [None, b"", *(exchange if protocol.startswith("SASL") else [])]


def _crowd(broker: SecuredBroker, stack: ExitStack, protocol: str, tls: bool, number: int) -> None:
    for _ in range(number):
        wire = broker.connect(protocol) if tls else plain(broker, protocol)
        stack.callback(wire.close)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_clients_are_served_beside_thousands_of_silent_peers(
    broker: SecuredBroker, unharmed: BackgroundClient, protocol: str
) -> None:
    """The peers are accepted and then closed; meanwhile authenticated clients are served."""
    with descriptors(3 * CROWD + 2000), ExitStack() as stack:
        _crowd(broker, stack, protocol, False, CROWD)
        for _ in range(3):
            unharmed.await_more()
        late = broker.authenticated("SASL_SSL")
        assert late.api_versions()
        late.close()


def test_memory_for_an_unauthenticated_connection_is_bounded(tmp_path: Path) -> None:
    """The connection has or has not done its TLS handshake."""
    broker = SecuredBroker(tmp_path, odradek_workers=1, odradek_authentication_timeout_ms=600_000)
    figures = {}
    try:
        broker.start()
        broker.connect("SASL_SSL").close()
        watch = Watch(broker)
        before = watch.memory()["worker-0"]  # later it is never less: freed memory is reused
        with descriptors(3 * CROWD + 2000):
            for protocol, tls in (("SASL_PLAINTEXT", False), ("SASL_SSL", False), ("SASL_SSL", True)):
                with ExitStack() as stack:
                    _crowd(broker, stack, protocol, tls, 1000)
                    broker.authenticated("SASL_PLAINTEXT").close()  # the worker has accepted the earlier ones
                    figures[protocol, tls] = (watch.memory()["worker-0"] - before) / 1000 / 1024
    finally:
        broker.close()
    print("KiB for a connection:", {key: round(size, 1) for key, size in figures.items()})
    assert all(size < MOST_KIB for size in figures.values()), figures


@pytest.mark.slow
def test_oldest_unauthenticated_peers_are_closed_above_the_limit(tmp_path: Path) -> None:
    """A client that authenticates is accepted nevertheless."""
    broker = SecuredBroker(tmp_path, odradek_workers=1, odradek_authentication_timeout_ms=600_000)
    try:
        broker.start()
        number = unauthenticated.MOST + 500
        with descriptors(2 * number + 2000), ExitStack() as stack:
            wires = []
            for _ in range(number):
                wires.append(plain(broker, "SASL_PLAINTEXT"))
                stack.callback(wires[-1].close)
            known = broker.authenticated("SASL_PLAINTEXT")
            assert known.api_versions()
            known.close()
            assert all(wire.closed_by_peer() for wire in wires[:500])
            wires[-1].socket.settimeout(0.1)
            with pytest.raises(TimeoutError):
                wires[-1].socket.recv(1)
            assert len(failures(broker.log)) < 500, "the log is bounded"
    finally:
        broker.close()


def failures(log: str) -> list[str]:
    return re.findall(r".*authentication failed.*", log)


def test_failures_do_not_fill_the_log(broker: SecuredBroker) -> None:
    since = len(broker.log)
    host, port = broker.address("SASL_PLAINTEXT").split(":")
    shoot_alone((host, int(port)), [HTTP] * 300)
    wait_until(lambda: "more failed authentications" in broker.log[since:], SECONDS)
    assert len(failures(broker.log[since:])) < 280


def test_passwords_are_not_in_status_command_lines_or_log(broker: SecuredBroker) -> None:
    wire = broker.authenticated("SASL_SSL")
    shown = broker.command("status", str(broker.properties_file)).stdout
    shown += broker.command("status", str(broker.properties_file), "--json").stdout
    for process in psutil.Process(broker.pids("supervisor")[0]).children(recursive=True):
        shown += Path(f"/proc/{process.pid}/cmdline").read_text() + Path(f"/proc/{process.pid}/comm").read_text()
    shown += broker.log
    wire.close()
    for secret in (PASSWORD, OTHER_PASSWORD):
        assert secret not in shown


def exchange_frame(rng: random.Random) -> bytes:
    """A frame of the exchange with some bytes changed, or cut, or of another API."""
    frames = [handshake("PLAIN"), handshake("PLAIN", 0), authenticate(b"\0alice\0x"), api_versions(rng.randrange(6))]
    frame = bytearray(rng.choice([*frames, metadata(), noise(rng)[:4000]]))
    for _ in range(rng.choice([0, 0, 1, 1, 3])):
        if frame:
            frame[rng.randrange(len(frame))] = rng.randrange(256)
    return sized(bytes(frame[: rng.choice([len(frame), len(frame), rng.randrange(len(frame) + 1)])]))


def _fuzz(broker: SecuredBroker, protocol: str, cases: int) -> None:
    prefixes = [b"", sized(api_versions(3)), sized(handshake("PLAIN")), sized(handshake("OAUTHBEARER"))]
    prefixes += [sized(handshake("PLAIN", 0))]
    known = sized(handshake("PLAIN")) + sized(authenticate(f"\0alice\0{PASSWORD}".encode()))
    prefixes += [known, known + sized(handshake("PLAIN"))]
    for at in range(0, cases, AT_ONCE):
        wires = []
        for number in range(at, min(at + AT_ONCE, cases)):
            rng = random.Random(f"{SEED}/{protocol}/{number}")
            wire = broker.connect(protocol)
            with suppress(OSError):
                wire.send_raw(rng.choice(prefixes) + b"".join(exchange_frame(rng) for _ in range(rng.randrange(1, 6))))
                socket.socket.shutdown(wire.socket, socket.SHUT_WR)
            wires.append(wire)
        assert all(ended(wire) for wire in wires), f"seed {SEED}, cases from {at}"


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_fuzzed_exchanges_harm_no_client(broker: SecuredBroker, protocol: str) -> None:
    _fuzz(broker, protocol, 400)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_fuzzed_handshakes_harm_no_client(broker: SecuredBroker, protocol: str) -> None:
    hello, cases = client_hello(), []
    for number in range(400):
        rng = random.Random(f"{SEED}/hello/{number}")
        case = bytearray(hello)
        for _ in range(rng.randrange(1, 6)):
            case[rng.randrange(len(case))] = rng.randrange(256)
        cases.append(bytes(case[: rng.choice([len(case), rng.randrange(len(case))])]))
    host, port = broker.address(protocol).split(":")
    shoot_alone((host, int(port)), cases)


def _fuzz_known(broker: SecuredBroker, protocol: str, kind: str, cases: int) -> None:
    """Send the requests of tests/fuzz over authenticated connections."""
    with broker.wire() as wire:
        grammar = Grammar(wire.api_versions(), [b"fuzz-secured", b"", b"1"], [])
    golden = Golden(grammar, create_topic(broker, "fuzz-secured"), uuid.UUID(int=1), "fuzz-group")
    maker = {"grammar": grammar.frame, "golden": golden.mutated, "torn": golden.torn, "noise": noise}[kind]
    for at in range(0, cases, AT_ONCE):
        wires = []
        for number in range(at, min(at + AT_ONCE, cases)):
            wire = broker.authenticated(protocol)
            rng = random.Random(f"{SEED}/{protocol}/{kind}/{number}")
            with suppress(OSError):
                wire.send_raw(b"".join(maker(rng) for _ in range(5)))
                socket.socket.shutdown(wire.socket, socket.SHUT_WR)
            wires.append(wire)
        assert all(ended(wire) for wire in wires), f"seed {SEED}, {kind}, cases from {at}"


KINDS = ("grammar", "golden", "torn", "noise")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "kind"), [("SASL_SSL", "grammar"), ("SSL", "golden"), ("SASL_PLAINTEXT", "torn"), ("SSL", "noise")]
)
def test_fuzzed_requests_of_authenticated_clients_harm_no_other(
    broker: SecuredBroker, protocol: str, kind: str
) -> None:
    """The long test below has all kinds over each protocol."""
    _fuzz_known(broker, protocol, kind, 100)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_thousands_of_fuzzed_requests_of_authenticated_clients_harm_no_other(
    broker: SecuredBroker, protocol: str, kind: str
) -> None:
    _fuzz_known(broker, protocol, kind, 5000)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_tens_of_thousands_of_fuzzed_exchanges_harm_no_client(broker: SecuredBroker, protocol: str) -> None:
    _fuzz(broker, protocol, 20_000)
