"""Connections to other brokers get new keys at runtime: by dynamic configs, or by changed files."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.broker.commands.tls import certificates
from odradek.broker.commands.tls.certificates import Pair
from odradek.broker.interbroker import connection, link_security
from odradek.broker.interbroker.link_security import LinkSecurity
from odradek.cluster.metadata.snapshot import Snapshot, raw_snapshot
from odradek.security.tls import listener
from odradek.security.tls.settings import listener_settings

from ...security.tls.conftest import inline, private
from .secure_broker import SecureBroker
from .test_peers import Desk, PlayedClock
from .test_secure_links import NAMES, answered

NOW = datetime.datetime.now(datetime.UTC)
KEY, TRUST = "ssl.keystore.location", "ssl.truststore.location"
OWN = "listener.name.internal."


def issue(ca: Pair, name: str = "broker", names: list[str] = NAMES) -> Pair:
    return certificates.issue(ca, name, names, NOW, 90)


def store(path: Path, pair: Pair) -> str:
    return private(path, pair.key_pem + pair.certificate_pem)


@pytest.fixture(scope="module")
def ca() -> Pair:
    return certificates.new_ca(NOW)


@pytest.fixture(scope="module")
def other_ca() -> Pair:
    return certificates.new_ca(NOW, "Other CA")


@pytest.fixture
def settings(tmp_path: Path, ca: Pair) -> dict[str, str]:
    """Settings with the files broker.pem and ca.pem."""
    return {
        "ssl.keystore.type": "PEM", KEY: store(tmp_path / "broker.pem", issue(ca)),
        "ssl.truststore.type": "PEM", TRUST: private(tmp_path / "ca.pem", ca.certificate_pem),
    }  # fmt: skip


@pytest.fixture
def security(settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> LinkSecurity:
    """Each `poll` checks the files."""
    monkeypatch.setattr(link_security, "POLL_S", 0.0)
    return LinkSecurity("INTERNAL", "SSL", settings, "broker-1", 1)


class Other:
    """Another broker that requires a certificate, and the connection to it."""

    def __init__(self, pair: Pair, trusted: bytes, security: LinkSecurity, clock: PlayedClock) -> None:
        self.broker = SecureBroker(None, None, clock.now_ms)
        self.take(pair, trusted)
        self.desk = Desk(30_000, clock, security)
        self.desk.connect(*self.broker.address)

    def take(self, pair: Pair, trusted: bytes) -> None:
        """New connections use this certificate."""
        given = inline(pair, pair) | {"ssl.truststore.certificates": trusted.decode(), "ssl.client.auth": "required"}
        self.broker.tls = listener.load(listener_settings(given), NOW.timestamp()).server

    def serial(self) -> int:
        """The serial number of the certificate that the broker gets on a new connection."""
        self.broker.hang_up()
        answered(self.desk, b"a")
        return int(self.broker.certificates[-1]["serialNumber"], 16)

    def close(self) -> None:
        self.desk.close()
        self.broker.close()


Connect = Callable[..., Other]


@pytest.fixture
def connect(ca: Pair, security: LinkSecurity, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    clock, made = PlayedClock(), []
    monkeypatch.setattr(connection, "_now_ms", clock.now_ms)

    def connect(trusted: bytes = ca.certificate_pem, pair: Pair | None = None) -> Other:
        made.append(Other(pair or issue(ca), trusted, security, clock))
        return made[-1]

    yield connect
    for one in made:
        one.close()


def dynamic(broker: str = "1", **configs: str) -> Snapshot:
    texts = {name.replace("__", ".").replace("_", "."): text for name, text in configs.items()}
    return Snapshot(raw_snapshot(1, "c", 1, [], {}, {broker: texts}))


def changed(security: LinkSecurity, **configs: str) -> None:
    security.follow(dynamic(**configs))


def polled(security: LinkSecurity) -> None:
    """Poll twice: the second poll loads a change."""
    security.poll()
    security.poll()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Log lines about the settings, without those about lost connections."""
    texts = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    return [text for text in texts if not text.startswith("broker 7 at ")]


# -- valid changes


@pytest.mark.parametrize("name", ["ssl_keystore_location", "listener_name_internal_ssl_keystore_location"])
@pytest.mark.parametrize("broker", ["1", ""])
def test_a_dynamic_config(
    connect: Connect, security: LinkSecurity, ca: Pair, tmp_path: Path, name: str, broker: str
) -> None:
    other, new = connect(), issue(ca)
    assert other.serial() != new.certificate.serial_number
    path = store(tmp_path / "new.pem", new)
    security.follow(dynamic(broker, **{name: path}))
    assert other.serial() == new.certificate.serial_number
    security.follow(dynamic("1"))
    assert other.serial() != new.certificate.serial_number, "the file's setting is not restored"


def test_another_brokers_config_is_not_taken(
    connect: Connect, security: LinkSecurity, ca: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other, new = connect(), issue(ca)
    security.follow(dynamic("2", ssl_keystore_location=store(tmp_path / "new.pem", new)))
    assert other.serial() != new.certificate.serial_number
    assert lines(caplog) == []


@pytest.mark.parametrize("in_files", [True, False])
def test_a_ca_is_rolled(
    connect: Connect, security: LinkSecurity, ca: Pair, other_ca: Pair, tmp_path: Path, in_files: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Both CAs are trusted, then each side gets a new certificate, then the old CA goes; no connection is lost."""
    both, new = ca.certificate_pem + other_ca.certificate_pem, issue(other_ca)
    other = connect(both)
    other.serial()

    def put(step: int, keys: Pair | None, trusted: bytes) -> None:
        folder = tmp_path if in_files else tmp_path / str(step)
        folder.mkdir(exist_ok=True)
        configs = {"ssl_truststore_location": private(folder / "ca.pem", trusted)}
        if keys is not None:
            configs["ssl_keystore_location"] = store(folder / "broker.pem", keys)
        if in_files:
            polled(security)
        else:
            changed(security, **configs)

    connections = other.broker.connections
    put(1, None, both)
    other.take(issue(other_ca), both)
    put(2, new, both)
    put(3, new, other_ca.certificate_pem)
    answered(other.desk, b"b")
    assert other.broker.connections == connections, "the connection was lost"
    other.take(issue(other_ca), other_ca.certificate_pem)
    assert other.serial() == new.certificate.serial_number
    assert lines(caplog) == []


def test_a_start_takes_the_settings_of_now(
    connect: Connect, security: LinkSecurity, other_ca: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A process starts after dynamic configs replaced a CA: server.properties still has the former CA."""
    new = issue(other_ca)
    other = connect(other_ca.certificate_pem, issue(other_ca))
    changed(
        security,
        ssl_keystore_location=store(tmp_path / "new.pem", new),
        ssl_truststore_location=private(tmp_path / "new-ca.pem", other_ca.certificate_pem),
    )
    assert other.serial() == new.certificate.serial_number
    assert lines(caplog) == []


# -- invalid changes


def test_invalid_settings_leave_the_former_in_force(
    connect: Connect, security: LinkSecurity, ca: Pair, other_ca: Pair, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    other = connect()
    first, broken = other.serial(), private(tmp_path / "broken.pem", b"x")
    for configs, part in (
        ({"ssl_keystore_location": broken}, "ssl.keystore.location: must hold one private key"),
        ({"ssl_keystore_location": str(tmp_path / "none")}, "none does not exist"),
        ({"ssl_keystore_location": store(tmp_path / "a.pem", issue(ca, "else"))}, "ssl.allow.dn.changes=true"),
        ({"ssl_keystore_location": store(tmp_path / "b.pem", issue(ca, names=["x"]))}, "ssl.allow.san.changes=true"),
        ({"ssl_keystore_location": store(tmp_path / "c.pem", issue(other_ca))}, "cannot connect to each other"),
        ({"listener_name_internal_ssl_enabled_protocols": "TLSv1.1"}, "ssl.enabled.protocols: TLSv1.1 is broken"),
    ):
        caplog.clear()
        for _ in range(3):
            changed(security, **configs)
            polled(security)
        (line,) = lines(caplog)
        assert line.startswith("connections to other brokers: ") and part in line, line
        assert line.endswith("; the former settings stay in force") and line.isprintable(), line
        assert other.serial() == first
    caplog.clear()
    changed(security)
    assert other.serial() == first and lines(caplog) == []


def test_unrelated_configs_repeat_no_warning(
    connect: Connect, security: LinkSecurity, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    connect().serial()
    for size in range(3):
        changed(security, ssl_keystore_location=str(tmp_path / "none"), message_max_bytes=str(1000 + size))
    assert len(lines(caplog)) == 1


def test_refused_settings_are_taken_once_their_file_is_there(
    connect: Connect, security: LinkSecurity, ca: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other, new, path = connect(), issue(ca), tmp_path / "late.pem"
    first = other.serial()
    changed(security, ssl_keystore_location=str(path))
    polled(security)
    assert other.serial() == first
    store(path, new)
    polled(security)
    assert other.serial() == new.certificate.serial_number
    assert len(lines(caplog)) == 1


def test_a_broken_file_leaves_the_former_in_force(
    connect: Connect, security: LinkSecurity, settings: dict[str, str], ca: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    other = connect()
    first, path = other.serial(), Path(settings[KEY])
    private(path, b"x")
    for _ in range(3):
        polled(security)
        assert other.serial() == first
    (line,) = lines(caplog)
    assert KEY in line and "stays in force" in line
    new = issue(ca)
    store(path, new)
    polled(security)
    assert other.serial() == new.certificate.serial_number


def test_a_change_is_checked_before_it_is_stored(security: LinkSecurity, settings: dict[str, str], ca: Pair) -> None:
    """AlterConfigs runs the check and refuses a wrong change."""
    security.check_change(settings)
    folder = Path(settings[KEY]).parent
    with pytest.raises(ValueError, match=r"ssl.keystore.location: .*ssl.allow.dn.changes=true"):
        security.check_change(settings | {KEY: store(folder / "else.pem", issue(ca, "else"))})
    security.check_change(settings | {OWN + KEY: store(folder / "next.pem", issue(ca))})
