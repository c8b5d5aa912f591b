"""What a listener's security does with settings that change while it runs."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from odradek.ipc.notices import Notices
from odradek.security.sasl.sasl_settings import Credentials
from odradek.workers.authentication.listener_security import SAME_S, ListenerSecurity

from ...security.tls.conftest import certificates_in
from ..inprocess import Bench
from .conftest import Connect

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
        {"ssl.enabled.protocols": "SSLv3"},
        {"sasl.enabled.mechanisms": "GSSAPI"},
        {"listener.name.sasl_ssl.plain.sasl.jaas.config": "nonsense"},
        {"connections.max.reauth.ms": "soon"},
    ],
)
def test_a_wrong_change_is_one_line(
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
    assert (security.tls, security.sasl) == before or "sasl" not in str(change)
    assert security.tls is before[0]
    follow(security, {**originals, **change})
    assert len(caplog.messages) == 1, "it is said once"
    follow(security, {**originals, "connections.max.reauth.ms": "7"})
    assert security.sasl is not None
    assert security.sasl.max_reauth_ms == {"PLAIN": 7}


def test_a_listener_that_cannot_be_secured_takes_no_connection(
    bench: Bench, connect: Connect, originals: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """It never falls back to plain, and says so once."""
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


def test_dynamic_configs_are_followed(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A wrong one must not end the worker."""
    bench.configure_brokers(ssl_client_auth="perhaps")
    bench.turn(2)
    assert "ssl.client.auth" in caplog.text
    bench.configure_brokers()
    bench.turn(2)


def test_what_no_connection_has_need_not_go_with_what_comes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A worker that starts after a CA was rolled by dynamic configs, where server.properties has the former CA."""
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


def test_a_certificate_that_expires_soon_is_said_once_a_day(
    tmp_path: Path, originals: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """By one of the processes, and not at a start: then the supervisor has said it."""
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
    days = 29 + round(tls.expires_s % DAY_S / DAY_S)  # it expires in the morning, or in the evening
    said = [line.rpartition(": ")[0].rpartition(" in ")[2] for line in caplog.messages[:2]]
    assert said == [f"{days} days", f"{days - 1} days"]
    assert 34 <= len(caplog.messages) <= 35
    assert "expired on" in caplog.messages[-1] and all("ssl.keystore" in line for line in caplog.messages)


def test_a_change_is_said_by_the_first_process(
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
