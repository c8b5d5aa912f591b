"""The security of a listener whose settings change while it runs."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from odradek.ipc.notices import Notices
from odradek.security.sasl.mechanism import MechanismFailure
from odradek.security.sasl.sasl_settings import Credentials
from odradek.workers.authentication.listener_security import SAME_S, ListenerSecurity

from ...security.tls.conftest import certificates_in
from ..inprocess import Bench
from .conftest import ALICE, Connect

CREDENTIALS = Credentials(lambda mechanism, user: None)
NOW = 1_800_000_000.0
DAY_S = 86_400


def versions(version: int, error: int) -> bytes:
    return b""


def follow(security: ListenerSecurity, settings: dict[str, str]) -> None:
    security.follow(settings, NOW, CREDENTIALS, versions)


@pytest.mark.parametrize(
    "change",
    [
        {"ssl.client.auth": "perhaps"},
        {"ssl.keystore.location": "/no/such/file"},
        {"ssl.keystore.location": "/a\0path"},
        {"ssl.truststore.location": "/a\0path"},
        {"ssl.enabled.protocols": "SSLv3"},
        {"sasl.enabled.mechanisms": "GSSAPI"},
        {"listener.name.sasl_ssl.plain.sasl.jaas.config": "nonsense"},
        {"connections.max.reauth.ms": "soon"},
        {"sasl.oauthbearer.jwks.endpoint.url": "http://[::1", "sasl.enabled.mechanisms": "OAUTHBEARER"},
        {"sasl.oauthbearer.jwks.endpoint.url": "file:///a%00path", "sasl.enabled.mechanisms": "OAUTHBEARER"},
    ],
)
def test_invalid_change_is_logged_once_and_not_applied(
    originals: dict[str, str], change: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    security = ListenerSecurity("SASL_SSL", "SASL_SSL")
    security.load(originals, NOW, CREDENTIALS, versions)
    before = security.tls, security.sasl
    follow(security, {**originals, **change})
    (line,) = caplog.messages
    assert next(iter(change)) in line
    assert "in force" in line
    assert "secret-of" not in line
    assert security.tls is before[0] and (security.sasl is before[1] or next(iter(change)).startswith("ssl."))
    follow(security, {**originals, **change})
    assert len(caplog.messages) == 1, "the same change is logged once"
    follow(security, {**originals, "connections.max.reauth.ms": "7"})
    assert security.sasl is not None
    assert security.sasl.max_reauth_ms == {"PLAIN": 7}


def test_user_that_is_removed_is_out_also_where_tls_cannot_be_used(originals: dict[str, str]) -> None:
    security = ListenerSecurity("SASL_SSL", "SASL_SSL")
    security.load(originals, NOW, CREDENTIALS, versions)
    before = security.tls
    assert knows_alice(security)
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required user_bob=bob;"
    users = {"listener.name.sasl_ssl.plain.sasl.jaas.config": jaas}
    follow(security, {**originals, **users, "ssl.keystore.location": "/no/such/file"})
    assert security.tls is before and not knows_alice(security)


def knows_alice(security: ListenerSecurity) -> bool:
    assert security.sasl is not None
    server = security.sasl.mechanisms["PLAIN"]()
    try:
        server.evaluate(ALICE, 0)
    except MechanismFailure:
        return False
    return True


def test_listener_that_cannot_be_secured_takes_no_connection(
    bench: Bench, connect: Connect, originals: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """The listener never falls back to plaintext, and the fault is logged once."""
    caplog.set_level(logging.INFO)
    authentication = bench.worker.authentication
    assert authentication is not None
    bad = {**originals, "ssl.keystore.location": "/no/such/file", "sasl.enabled.mechanisms": "GSSAPI"}
    authentication._originals = authentication._settings = bad
    names = ("SSL", "SASL_SSL", "SASL_PLAINTEXT")
    authentication._listeners = {name: ListenerSecurity(name, name) for name in names}
    for security in authentication._listeners.values():
        security.try_to_load(bad, NOW, CREDENTIALS, versions)
        security.try_to_load(bad, NOW, CREDENTIALS, versions)
    for name in names * 5:
        client = bench.connect(listener=name)
        assert client.gone()
        assert client.frames() == []
    assert len(caplog.messages) == 3
    authentication._originals = authentication._settings = originals
    authentication._poll(NOW)
    assert caplog.text.count("takes connections again") == 3
    connect("SASL_SSL")


def test_invalid_dynamic_config_does_not_end_the_worker(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """The worker logs the setting's name and continues."""
    bench.configure_brokers(ssl_client_auth="perhaps")
    bench.turn(2)
    assert "ssl.client.auth" in caplog.text
    bench.configure_brokers()
    bench.turn(2)


def test_unused_certificate_may_be_replaced_by_one_of_another_ca(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker starts with the former CA of server.properties, after dynamic configs have replaced the CA."""
    versions_of: list[dict[str, str]] = []
    for name in ("old", "new"):
        folder = tmp_path / name
        folder.mkdir()
        keys, trusted = certificates_in(folder)
        stores = {"ssl.keystore.location": keys, "ssl.truststore.location": trusted}
        versions_of.append({"ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM", **stores})
    old, new = versions_of
    security = ListenerSecurity("INTERNAL", "SSL", between_brokers=True)
    security.load(old, time.time(), CREDENTIALS, versions)
    for settings, taken in ((new, True), (old, True), (new, False)):
        security.in_use = not taken
        security.follow(settings, time.time(), CREDENTIALS, versions)
        assert security.tls is not None
        assert (security.tls.settings.keystore_location == settings["ssl.keystore.location"]) == taken
    (line,) = caplog.messages
    assert "brokers cannot connect to each other" in line and "stays in force" in line


def test_certificate_that_expires_soon_is_logged_once_a_day(
    tmp_path: Path, originals: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """One of the processes logs it, but not at a start, when the supervisor has logged it."""
    notices = Notices(tmp_path)
    workers = [ListenerSecurity("SSL", "SSL", is_first=notices.is_first) for _ in range(2)]
    for worker in workers:
        worker.load(originals, NOW, CREDENTIALS, versions)
    tls = workers[0].tls
    assert tls is not None
    first = int((tls.expires_s - 40 * DAY_S) // DAY_S) * DAY_S
    for worker in workers:
        worker.poll(first)
    assert not caplog.messages
    for day in range(45):
        for hour in range(0, 24, 6):
            for worker in workers:
                worker.poll(first + day * DAY_S + hour * 3600)
    days = 29 + round(tls.expires_s % DAY_S / DAY_S)  # the hour of its expiry may round up
    said = [line.rpartition(": ")[0].rpartition(" in ")[2] for line in caplog.messages[:2]]
    assert said == [f"{days} days", f"{days - 1} days"]
    assert 34 <= len(caplog.messages) <= 35
    assert "expired on" in caplog.messages[-1] and all("ssl.keystore" in line for line in caplog.messages)


def test_only_the_first_process_logs_a_change(
    tmp_path: Path, originals: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    workers = [ListenerSecurity("SSL", "SSL", is_first=Notices(tmp_path).is_first) for _ in range(3)]
    for worker in workers:
        worker.load(originals, NOW, CREDENTIALS, versions)
    for worker in workers:
        follow(worker, {**originals, "ssl.keystore.location": "/no/such/file"})
    assert len(caplog.messages) == 1
    for later in (0, SAME_S + 1):
        worker = workers[later > 0]
        worker.follow({**originals, "ssl.client.auth": f"perhaps{later > 0}"}, NOW + later, CREDENTIALS, versions)
    assert len(caplog.messages) == 3
