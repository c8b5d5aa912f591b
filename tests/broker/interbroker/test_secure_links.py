"""Links over TLS and SASL: steps before a link counts as up; wrong, slow and hostile peers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.commands.tls import certificates
from odradek.broker.commands.tls.certificates import Pair
from odradek.broker.interbroker import connection
from odradek.broker.interbroker.link_security import LinkSecurity, link_security
from odradek.broker.interbroker.peers import REACHED
from odradek.cluster.metadata.snapshot import Snapshot, raw_snapshot
from odradek.security.sasl.exchange import SaslListener
from odradek.security.sasl.mechanism import ServerMechanism
from odradek.security.sasl.oauthbearer import OAuthBearerServer
from odradek.security.sasl.password import Password
from odradek.security.sasl.plain import PlainServer
from odradek.security.sasl.sasl_settings import UNSECURED
from odradek.security.sasl.scram_keys import ScramMechanism, derive
from odradek.security.sasl.scram_server import ScramServer, ScramStore
from odradek.security.sasl.unsecured_tokens import UnsecuredTokens
from odradek.security.tls import listener
from odradek.security.tls.settings import listener_settings

from ...security.tls.conftest import inline
from .secure_broker import CHALLENGE, MECHANISM, TLS, Fault, SecureBroker
from .test_peers import Desk, PlayedClock

SCRAM = ScramMechanism.SCRAM_SHA_256
NAMES = ["127.0.0.1", "localhost"]
_LOGIN = "org.apache.kafka.common.security."
JAAS = {
    "PLAIN": _LOGIN + 'plain.PlainLoginModule required username="broker" password="hunter2";',
    SCRAM.value: _LOGIN + 'scram.ScramLoginModule required username="broker" password="hunter2";',
    "OAUTHBEARER": _LOGIN + 'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";',
}
PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
Settings = dict[str, Any]


@pytest.fixture(scope="module")
def ca() -> Pair:
    return certificates.new_ca(_now())


@pytest.fixture(scope="module")
def broker(ca: Pair) -> Pair:
    return certificates.issue(ca, "broker1", NAMES, _now(), 90)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> PlayedClock:
    made = PlayedClock()
    monkeypatch.setattr(connection, "_now_ms", made.now_ms)
    return made


@pytest.fixture
def made() -> Iterator[list[Any]]:
    """Objects to close at the end."""
    things: list[Any] = []
    yield things
    for thing in things:
        thing.close()


Serve = Callable[..., SecureBroker]
Connect = Callable[..., Desk]


@pytest.fixture
def serve(ca: Pair, broker: Pair, clock: PlayedClock, made: list[Any]) -> Serve:
    """Starts a broker with a security protocol; `pair` is its certificate."""

    def make(protocol: str, pair: Pair = broker, auth: str = "none", reauth_ms: int = 0) -> SecureBroker:
        settings = listener_settings(inline(pair, ca) | {"ssl.client.auth": auth})
        tls = listener.load(settings, _now().timestamp()).server if protocol.endswith("SSL") else None
        sasl = _listener(reauth_ms) if protocol.startswith("SASL") else None
        made.append(SecureBroker(tls, sasl, clock.now_ms))
        return made[-1]

    return make


@pytest.fixture
def connect(ca: Pair, broker: Pair, clock: PlayedClock, made: list[Any]) -> Connect:
    """Connects to `other`; `changes` are settings, None removes one."""

    def make(other: SecureBroker, protocol: str, host: str = "", timeout_ms: int = 30_000, **changes: Any) -> Desk:
        given = settings(broker, ca) | {name.replace("_", "."): value for name, value in changes.items()}
        given = {name: value for name, value in given.items() if value is not None}
        desk = Desk(timeout_ms, clock, LinkSecurity("INTERNAL", protocol, given, "broker-1"))
        desk.connect(host or other.address[0], other.address[1])
        made.insert(0, desk)
        return desk

    return make


def settings(pair: Pair, ca: Pair) -> Settings:
    logins = {f"listener.name.internal.{name.lower()}.sasl.jaas.config": text for name, text in JAAS.items()}
    logins["listener.name.internal.oauthbearer.sasl.server.callback.handler.class"] = UNSECURED
    return {**inline(pair, ca), **logins, "sasl.mechanism.inter.broker.protocol": SCRAM.value}


def _now() -> Any:
    import datetime

    return datetime.datetime.now(datetime.UTC)


def _listener(reauth_ms: int) -> SaslListener:
    users = {"broker": derive(SCRAM, Password("hunter2"))}
    mechanisms: dict[str, Callable[[], ServerMechanism]] = {
        "PLAIN": lambda: PlainServer({"broker": Password("hunter2")}),
        SCRAM.value: lambda: ScramServer(ScramStore(SCRAM, users.get)),
        "OAUTHBEARER": lambda: OAuthBearerServer(UnsecuredTokens()),
    }
    return SaslListener(mechanisms, lambda version, error: b"", dict.fromkeys(mechanisms, reauth_ms))


def answered(desk: Desk, *names: bytes) -> None:
    for name in names:
        desk.send(name)
    desk.turn_until(lambda: desk.peer.idle, "the answers")
    assert desk.answers[-len(names) :] == list(names)


# -- valid links


@pytest.mark.parametrize("mechanism", JAAS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_protocol(serve: Serve, connect: Connect, protocol: str, mechanism: str) -> None:
    other = serve(protocol)
    desk = connect(other, protocol, sasl_mechanism_inter_broker_protocol=mechanism)
    answered(desk, b"a", b"b")
    assert desk.told == [REACHED] and other.connections == 1
    assert other.authentications == protocol.startswith("SASL")


def test_mutual_tls(serve: Serve, connect: Connect) -> None:
    other = serve("SSL", auth="required")
    answered(connect(other, "SSL"), b"a")
    (certificate,) = other.certificates
    assert certificate and certificate["subject"] == ((("commonName", "broker1"),),)


def test_large_requests_and_answers(serve: Serve, connect: Connect) -> None:
    """Sends block, responses have many records, and OpenSSL buffers parts of them."""
    desk = connect(serve("SSL"), "SSL")
    answered(desk, *(bytes([n]) * (n << 20 | 1) for n in range(9)))


def test_no_request_before_it_is_authenticated(serve: Serve, connect: Connect) -> None:
    other = serve("SASL_SSL")
    other.fault = Fault(CHALLENGE, "silent")
    desk = connect(other, "SASL_SSL")
    desk.send(b"a")
    desk.turn_for(200)
    assert not desk.peer.link.up and desk.told == []


def test_name_mismatch_is_accepted_without_endpoint_identification(serve: Serve, connect: Connect, ca: Pair) -> None:
    other = serve("SSL", pair=certificates.issue(ca, "else", ["else"], _now(), 9))
    answered(connect(other, "SSL", ssl_endpoint_identification_algorithm=""), b"a")


def test_settings_of_the_listener_go_before(serve: Serve, connect: Connect, ca: Pair) -> None:
    ours = {"listener.name.internal.ssl.truststore.certificates": ca.certificate_pem.decode()}
    ours["ssl.truststore.certificates"] = certificates.new_ca(_now(), "Other").certificate_pem.decode()
    answered(connect(serve("SSL"), "SSL", **ours), b"a")


# -- KIP-368


def test_it_authenticates_again_in_time(serve: Serve, connect: Connect, clock: PlayedClock) -> None:
    other = serve("SASL_SSL", reauth_ms=2000)
    desk = connect(other, "SASL_SSL")
    for number in range(40):
        answered(desk, b"%d" % number)
        clock.ms += 200
    assert other.connections == 1, "the connection was opened again"
    assert 4 <= other.authentications <= 6


def test_an_idle_connection_authenticates_before_its_next_request(
    serve: Serve, connect: Connect, clock: PlayedClock
) -> None:
    other = serve("SASL_SSL", reauth_ms=2000)
    desk = connect(other, "SASL_SSL")
    answered(desk, b"a")
    clock.ms += 60_000
    answered(desk, b"b")
    assert (other.connections, other.authentications) == (1, 2)


def test_a_failed_reauthentication_ends_the_connection(
    serve: Serve, connect: Connect, clock: PlayedClock, caplog: pytest.LogCaptureFixture
) -> None:
    other = serve("SASL_SSL", reauth_ms=2000)
    desk = connect(other, "SASL_SSL")
    answered(desk, b"a")
    clock.ms += 60_000
    other.fault = Fault(MECHANISM, "close")
    desk.send(b"b")
    desk.turn_until(lambda: other.connections >= 3, "two more connections")
    other.fault = None
    desk.turn_until(lambda: desk.peer.idle, "the answer")
    assert desk.answers == [b"a", b"b"]
    _one_line(caplog, "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256: closed by the other side")


# -- change of the mechanism


def test_another_mechanism_while_it_runs(
    serve: Serve, broker: Pair, ca: Pair, clock: PlayedClock, made: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A dynamic config sets it: only new connections use it."""
    name, enabled = "sasl.mechanism.inter.broker.protocol", {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"}
    other, given = serve("SASL_PLAINTEXT", reauth_ms=2000), settings(broker, ca) | enabled
    security = LinkSecurity("INTERNAL", "SASL_PLAINTEXT", given, "broker-1", 1)
    made.insert(0, desk := Desk(30_000, clock, security))
    desk.connect(*other.address)

    def follow(mechanism: str) -> None:
        security.follow(Snapshot(raw_snapshot(1, "c", 1, [], {}, {"1": {name: mechanism}})))

    answered(desk, b"a")
    follow("PLAIN")
    clock.ms += 60_000
    answered(desk, b"b")
    assert (other.connections, other.mechanisms) == (1, [SCRAM.value] * 2), "the connection must keep its mechanism"
    other.hang_up()
    answered(desk, b"c")
    assert other.mechanisms[2:] == ["PLAIN"]
    caplog.clear()
    follow("OAUTHBEARER")
    other.hang_up()
    answered(desk, b"d")
    assert other.mechanisms[3:] == ["PLAIN"], "the former mechanism must stay in force"
    lines = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert len(lines) == 1 and f"{name}: OAUTHBEARER is not in sasl.enabled.mechanisms" in lines[0]


def test_mechanism_that_the_own_listener_does_not_enable(broker: Pair, ca: Pair) -> None:
    """Kafka refuses to start in this case, too."""
    given = settings(broker, ca) | {"listener.name.internal.sasl.enabled.mechanisms": "PLAIN"}
    with pytest.raises(ValueError, match=r"inter.broker.protocol: SCRAM-SHA-256 is not in sasl.enabled.mechanisms"):
        LinkSecurity("INTERNAL", "SASL_PLAINTEXT", given).check()


# -- failing links


def _one_line(caplog: pytest.LogCaptureFixture, *parts: str) -> None:
    lines = {record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING}
    assert len(lines) == 1, lines
    (line,) = lines
    assert line.startswith("broker 7 at ") and line.isprintable(), line
    assert all(part in line for part in parts), line
    assert "hunter2" not in caplog.text


KINDS = {
    "silent": "no answer within 300 ms",
    "close": "closed",
    "garbage": "",
    "huge": "",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [TLS, MECHANISM, CHALLENGE])
def test_a_hostile_peer_costs_one_line_and_a_pause(
    serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture, clock: PlayedClock, step: str, kind: str
) -> None:
    caplog.set_level(logging.DEBUG, connection.__name__)
    other = serve("SASL_SSL")
    other.fault = Fault(step, kind)
    desk = connect(other, "SASL_SSL", timeout_ms=300)
    desk.send(b"a")
    desk.turn_until(lambda: other.connections >= 3, "it is tried again", 30)
    setting = "listener.security.protocol.map" if step == TLS else "sasl.mechanism.inter.broker.protocol"
    _one_line(caplog, setting, KINDS[kind])
    assert desk.told == [] and len(desk.peer.link._frame._buffer) == connection.SMALL
    other.fault = None
    desk.turn_until(lambda: desk.peer.idle, "the answer", 30)
    assert desk.answers == [b"a"]


def test_failing_peer_is_retried_with_backoff(
    serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture, clock: PlayedClock
) -> None:
    other = serve("SSL")
    other.fault = Fault(TLS, "close")
    connect(other, "SSL").turn_until(lambda: other.connections >= 8, "8 attempts", 60)
    assert clock.ms >= 20 + 40 + 80 + 160 + 320 + 640 + 1000


def test_a_plain_peer(connect: Connect, serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """A plaintext broker waits for the rest of a request of 369 MB, without a response; Kafka closes the connection."""
    desk = connect(serve("SASL_PLAINTEXT"), "SSL", timeout_ms=300)
    desk.turn_until(lambda: caplog.records, "a line")
    _one_line(caplog, "listener.security.protocol.map")


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"ssl.truststore.certificates": "other"}, ["certificate is refused", "(ssl.truststore.location)"]),
        ({"ssl.truststore.location": "/nowhere"}, ["ssl.truststore.location: /nowhere does not exist"]),
        ({"ssl.enabled.protocols": "TLSv1.1"}, ["ssl.enabled.protocols: TLSv1.1 is broken"]),
        ({"sasl.mechanism.inter.broker.protocol": "GSSAPI"}, ["inter.broker.protocol: GSSAPI is not supported"]),
        (
            {"listener.name.internal.scram-sha-256.sasl.jaas.config": None},
            ["listener.name.internal.scram-sha-256.sasl.jaas.config: must be set"],
        ),
        (
            {"listener.name.internal.scram-sha-256.sasl.jaas.config": JAAS[SCRAM.value].replace("hunter2", "hunter3")},
            ["sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256: error 58"],
        ),
    ],
)
def test_a_wrong_setting_is_one_line(
    serve: Serve, connect: Connect, ca: Pair, caplog: pytest.LogCaptureFixture, changes: Settings, parts: list[str]
) -> None:
    if "ssl.truststore.certificates" in changes:
        changes = {"ssl.truststore.certificates": certificates.new_ca(_now(), "Other").certificate_pem.decode()}
    if "ssl.truststore.location" in changes:
        changes |= {"ssl.truststore.certificates": None}
    other = serve("SASL_SSL")
    desk = connect(other, "SASL_SSL", **changes)
    desk.turn_until(lambda: other.connections >= 3, "it is tried again", 30)
    _one_line(caplog, *parts)
    assert "hunter3" not in caplog.text


def test_a_certificate_of_another_host(
    serve: Serve, connect: Connect, ca: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    other = serve("SSL", pair=certificates.issue(ca, "else", ["else"], _now(), 9))
    desk = connect(other, "SSL")
    desk.turn_until(lambda: other.connections >= 3, "it is tried again", 30)
    _one_line(caplog, "127.0.0.1", "(ssl.endpoint.identification.algorithm)")


def test_a_link_has_the_certificate_of_its_listener(
    serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    other = serve("SSL")
    none = dict.fromkeys(("ssl_keystore_type", "ssl_keystore_key", "ssl_keystore_certificate_chain"))
    desk = connect(other, "SSL", **none)
    desk.turn_until(lambda: other.connections >= 3, "it is tried again", 30)
    _one_line(caplog, "ssl.keystore.location: must be set")


# -- settings of the configuration


@pytest.mark.parametrize(
    ("changes", "protocol"),
    [
        ({}, None),
        ({"inter.broker.listener.name": "IN", "listener.security.protocol.map": "IN:SASL_SSL,OUT:SSL"}, "SASL_SSL"),
        ({"security.inter.broker.protocol": "SSL"}, "SSL"),
        ({"inter.broker.listener.name": "IN", "listener.security.protocol.map": "IN:PLAINTEXT"}, None),
    ],
)
def test_the_protocol_of_the_inter_broker_listener(changes: dict[str, str], protocol: str | None) -> None:
    class Config(dict[str, Any]):
        originals = changes
        run_dir = Path("/nowhere")

    found = link_security(Config({"broker.id": 1, "password.encoder.secret": None} | changes))
    assert (found is None) == (protocol is None)
    if found is not None:
        assert (found._tls is not None, found._has_sasl) == (protocol != "SASL_PLAINTEXT", protocol == "SASL_SSL")


def test_a_listener_without_a_protocol_is_not_plain() -> None:
    with pytest.raises(ValueError, match=r"listener.security.protocol.map has no entry for IN"):
        link_security({"inter.broker.listener.name": "IN", "listener.security.protocol.map": "OUT:SSL"})
