"""A broker's own bearer token from a server: in the background, over TLS, with server failures; and links by it."""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.commands.tls import certificates
from odradek.broker.interbroker import connection, token_fetcher
from odradek.broker.interbroker.link_security import LinkSecurity
from odradek.broker.interbroker.token_fetcher import TokenFetcher
from odradek.cluster.metadata.snapshot import Snapshot, raw_snapshot
from odradek.security.sasl.exchange import SaslListener
from odradek.security.sasl.jwks import Jwks
from odradek.security.sasl.login_settings import login_settings
from odradek.security.sasl.oauthbearer import OAuthBearerServer
from odradek.security.sasl.signed_tokens import Expected, SignedTokens
from odradek.security.tls import listener
from odradek.security.tls.settings import listener_settings

from ...harness.process import wait_until
from ...harness.token_server import CLIENT, SECRET, Request, TokenServer
from ...security.sasl.bearer import RSA, jwks
from ...security.tls.conftest import inline, private
from .secure_broker import SecureBroker
from .test_peers import Desk, PlayedClock

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
JAAS, URL = "listener.name.internal.oauthbearer.sasl.jaas.config", "sasl.oauthbearer.token.endpoint.url"
NOW = datetime.datetime.now(datetime.UTC)


@pytest.fixture
def server() -> Iterator[TokenServer]:
    made = TokenServer()
    yield made
    made.close()


def settings(url: str, options: str = "", secret: str = SECRET, **changes: str) -> dict[str, str]:
    """Settings of a broker with short retry pauses."""
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER", URL: url,
        JAAS: f'{MODULE} clientId={CLIENT} clientSecret="{secret}" scope="kafka" {options};',
        "sasl.login.retry.backoff.ms": "1", "sasl.login.retry.backoff.max.ms": "5",
        **{name.replace("_", "."): text for name, text in changes.items()},
    }  # fmt: skip


def fetcher(url: str, *args: Any, **changes: str) -> TokenFetcher:
    found = login_settings(settings(url, *args, **changes), "INTERNAL", "OAUTHBEARER")
    assert found is not None
    return TokenFetcher(found)


def poll_until(one: TokenFetcher, done: Callable[[], bool]) -> None:
    def polled() -> bool:
        one.poll()
        return done()

    wait_until(polled)


def lines(caplog: pytest.LogCaptureFixture) -> set[str]:
    """The log lines, which must be printable and without secrets."""
    assert SECRET not in caplog.text and "eyJ" not in caplog.text
    texts = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert all(text.isprintable() for text in texts)
    return set(texts)


# -- the token


def test_client_credentials(server: TokenServer) -> None:
    one = fetcher(server.url)
    assert one.token() is None
    poll_until(one, lambda: one.token() is not None)
    form = {"grant_type": "client_credentials", "scope": "kafka"}
    assert server.requests == [Request(CLIENT, SECRET, form)]
    for _ in range(100):
        one.poll()
    assert len(server.requests) == 1, "the token is fresh"


def test_token_fetch_does_not_block(server: TokenServer) -> None:
    server.go_on.clear()
    one, began = fetcher(server.url), time.monotonic()
    one.poll()
    wait_until(lambda: bool(server.requests))
    for _ in range(100):
        one.poll()
    assert one.token() is None and len(server.requests) == 1 and time.monotonic() - began < 20
    server.go_on.set()
    poll_until(one, lambda: one.token() is not None)


def test_the_successor_comes_before_the_end(server: TokenServer) -> None:
    server.seconds = 2
    one = fetcher(server.url)
    found: set[str] = set()

    def two() -> bool:
        token = one.token()
        assert token is not None or not found, "no token is available in between"
        found.update({token.value} if token else ())
        return len(found) == 3

    poll_until(one, two)


def test_a_silent_server(server: TokenServer, caplog: pytest.LogCaptureFixture) -> None:
    server.go_on.clear()
    one = fetcher(server.url, sasl_login_read_timeout_ms="20")
    poll_until(one, lambda: len(server.requests) >= 2)
    assert lines(caplog) == {f"connections to other brokers: {URL}: timed out"}


FAULTS: list[tuple[int | bytes, str]] = [
    (401, "the server at 127.0.0.1 answers 401 (invalid_client)"),
    (503, "the server at 127.0.0.1 answers 503 (invalid_client)"),
    (b"<html>", "the answer has no access_token"),
    (b'{"access_token": "secret"}', "the token is no JWT"),
]


@pytest.mark.parametrize(("fault", "why"), FAULTS)
def test_a_failure_is_one_line(
    server: TokenServer, caplog: pytest.LogCaptureFixture, fault: int | bytes, why: str
) -> None:
    server.fault = fault
    one = fetcher(server.url)
    poll_until(one, lambda: len(server.requests) >= 4)
    assert lines(caplog) == {f"connections to other brokers: {URL}: {why}"}
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1
    server.fault = None
    poll_until(one, lambda: one.token() is not None)


def test_a_lasting_refusal_waits_for_the_longest_pause(server: TokenServer) -> None:
    server.fault = 401
    one = fetcher(server.url, sasl_login_retry_backoff_max_ms="3600000")
    poll_until(one, lambda: bool(server.requests) and not one._fetch.under_way)
    server.fault = None
    for _ in range(100):
        one.poll()
        time.sleep(0.001)
    assert len(server.requests) == 1


def test_the_former_token_stays_while_the_server_fails(server: TokenServer, caplog: pytest.LogCaptureFixture) -> None:
    server.seconds = 3
    one = fetcher(server.url)
    poll_until(one, lambda: one.token() is not None)
    server.fault = 503
    poll_until(one, lambda: len(server.requests) > 3)
    assert one.token() is not None
    poll_until(one, lambda: one.token() is None)
    assert len(lines(caplog)) == 1


def test_one_line_for_all_processes(server: TokenServer, caplog: pytest.LogCaptureFixture) -> None:
    server.fault = 503
    seen: list[str] = []
    found = login_settings(settings(server.url), "INTERNAL", "OAUTHBEARER")
    assert found is not None
    one = TokenFetcher(found, lambda text, now, period_s: bool(seen.append(text)))
    poll_until(one, lambda: len(server.requests) >= 2)
    assert len(seen) == 1 and lines(caplog) == set()


def test_a_server_that_redirects_gets_no_secret_elsewhere(
    server: TokenServer, caplog: pytest.LogCaptureFixture
) -> None:
    other = TokenServer()
    try:
        server.fault, server.location = 302, other.url
        one = fetcher(server.url)
        poll_until(one, lambda: len(server.requests) >= 2)
        assert other.requests == []
        (line,) = lines(caplog)
        assert "redirects a request that has secrets" in line
    finally:
        other.close()


def test_refused_connection_to_the_token_server(server: TokenServer, caplog: pytest.LogCaptureFixture) -> None:
    one = fetcher("http://127.0.0.1:1/token")
    poll_until(one, lambda: bool(lines(caplog)))
    assert lines(caplog) == {
        f"connections to other brokers: {URL}: cannot connect to the server at 127.0.0.1: Connection refused"
    }


def test_a_file(tmp_path: Path, server: TokenServer, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "token"
    one = fetcher(path.as_uri())
    with pytest.raises(ValueError, match=rf"{URL}: .*No such file"):
        token_fetcher.check(one.settings)
    path.write_text(server.token() + "\n")
    token_fetcher.check(one.settings)
    poll_until(one, lambda: one.token() is not None)
    assert server.requests == []


# -- TLS by the options of the JAAS entry


def test_the_server_s_certificate(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ca = certificates.new_ca(NOW)
    pair = certificates.issue(ca, "issuer", ["127.0.0.1"], NOW, 9)
    server = TokenServer(listener.load(listener_settings(inline(pair, ca)), NOW.timestamp()).server)
    try:
        trust = private(tmp_path / "ca.pem", ca.certificate_pem)
        one = fetcher(server.url, f'ssl.truststore.type=PEM ssl.truststore.location="{trust}"')
        poll_until(one, lambda: one.token() is not None)
        # As in Kafka, the trust store of the broker's own listeners does not apply to this server.
        more = {"ssl.truststore.type": "PEM", "ssl.truststore.location": trust}
        other = fetcher(server.url, **more)
        poll_until(other, lambda: bool(lines(caplog)))
        (line,) = lines(caplog)
        assert "certificate is refused" in line and other.token() is None
    finally:
        server.close()


def test_a_wrong_trust_store_is_said_at_the_start() -> None:
    one = fetcher("https://127.0.0.1:1/token", "ssl.truststore.type=PEM ssl.truststore.location='/no/ca.pem'")
    with pytest.raises(ValueError, match=rf"^{JAAS}: ssl.truststore.location: /no/ca.pem does not exist"):
        token_fetcher.check(one.settings)


# -- links


class World:
    """Another broker that accepts the server's tokens, and links to it."""

    def __init__(self, clock: PlayedClock) -> None:
        keys = Jwks()
        keys.store(jwks(RSA), 0)
        validator = SignedTokens(Expected(), keys)
        sasl = SaslListener({"OAUTHBEARER": lambda: OAuthBearerServer(validator)}, lambda version, error: b"", {})
        self.broker = SecureBroker(None, sasl, lambda: time.time_ns() // 1_000_000)
        self._clock = clock
        self._made: list[SecureBroker | Desk] = [self.broker]

    def connect(self, given: dict[str, str]) -> tuple[Desk, LinkSecurity]:
        security = LinkSecurity("INTERNAL", "SASL_PLAINTEXT", given, "broker-1", 1)
        desk = Desk(30_000, self._clock, security)
        desk.connect(*self.broker.address)
        self._made.insert(0, desk)
        return desk, security

    def close(self) -> None:
        for one in self._made:
            one.close()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    clock = PlayedClock()
    monkeypatch.setattr(connection, "_now_ms", clock.now_ms)
    made = World(clock)
    yield made
    made.close()


def test_a_link_waits_for_its_token(world: World, server: TokenServer, caplog: pytest.LogCaptureFixture) -> None:
    server.fault = 503
    desk, _ = world.connect(settings(server.url))
    desk.send(b"a")
    desk.turn_until(lambda: len(server.requests) > 3, "some tries")
    assert world.broker.connections == 0, "the link connects without a token"
    server.fault = None
    desk.turn_until(lambda: desk.peer.idle, "the answer")
    assert world.broker.authentications == 1
    assert len(lines(caplog)) == 1


def test_a_dynamic_config(world: World, server: TokenServer) -> None:
    """A new token endpoint is requested at once; other changes cause no request."""
    desk, security = world.connect(settings(server.url))
    other = TokenServer()

    def follow(**configs: str) -> None:
        texts = {f"listener.name.internal.{name.replace('_', '.')}": text for name, text in configs.items()}
        security.follow(Snapshot(raw_snapshot(1, "c", 1, [], {}, {"1": texts})))

    def send_on_a_new_connection() -> None:
        world.broker.hang_up()
        desk.send(b"a")
        desk.turn_until(lambda: desk.peer.idle, "the answer")

    try:
        send_on_a_new_connection()
        follow(connections_max_reauth_ms="1000")
        send_on_a_new_connection()
        assert len(server.requests) == 1
        follow(sasl_oauthbearer_token_endpoint_url=other.url)
        send_on_a_new_connection()
        assert (len(server.requests), len(other.requests)) == (1, 1)
    finally:
        other.close()


def test_the_settings_are_checked_without_the_server(server: TokenServer) -> None:
    def security(given: dict[str, str]) -> LinkSecurity:
        return LinkSecurity("INTERNAL", "SASL_PLAINTEXT", given)

    security(settings("http://127.0.0.1:1/token")).check()
    assert server.requests == []
    with pytest.raises(ValueError, match=f"^{URL}: must be the file:"):
        security(settings("ftp://x")).check()
    with pytest.raises(ValueError, match=r"^listener.name.internal.oauthbearer.sasl.jaas.config: extension_"):
        security(settings(server.url, "extension_auth=x")).check()
