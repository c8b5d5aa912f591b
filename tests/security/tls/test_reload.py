"""A certificate is replaced while a listener runs; an invalid one leaves the old one in force."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.commands.tls import certificates
from odradek.broker.commands.tls.certificates import Pair
from odradek.security.tls import listener
from odradek.security.tls.reload import Rejected, Reloaded, Reloader, stats_of
from odradek.security.tls.settings import TlsError, TlsSettings, listener_settings

from .conftest import HOSTS, NOW, NOW_S, private

Make = Callable[..., Reloader]


@pytest.fixture
def make(in_files: dict[str, Any]) -> Make:
    def reloader(inter_broker: bool = False, **changes: Any) -> Reloader:
        texts = in_files | {f"ssl.{name.replace('_', '.')}": value for name, value in changes.items()}
        settings = listener_settings(texts)
        first = listener.load(settings, NOW_S)
        return Reloader(first, stats_of(settings), listener.load, inter_broker=inter_broker)

    return reloader


def polled(reloader: Reloader, times: int = 2) -> list[Any]:
    """The outcomes of some polls, without polls that find no change."""
    settings = reloader.listener.settings
    return [found for _ in range(times) if (found := reloader.poll(NOW_S, stats_of(settings)))]


def put(reloader: Reloader, pair: Pair) -> None:
    private(Path(reloader.listener.settings.keystore_location or ""), pair.key_pem + pair.certificate_pem)


def test_a_new_file_is_loaded_once(make: Make, ca: Pair) -> None:
    reloader = make()
    old = reloader.listener
    assert polled(reloader) == []
    new = certificates.issue(ca, "broker1", HOSTS, NOW, 9)
    put(reloader, new)
    (outcome,) = polled(reloader, 5)
    assert isinstance(outcome, Reloaded) and outcome.listener is reloader.listener is not old
    assert reloader.listener.keys.chain[0] == new.certificate


def test_file_is_loaded_only_once_it_stops_changing(make: Make, ca: Pair) -> None:
    reloader = make()
    path = Path(reloader.listener.settings.keystore_location or "")
    new = certificates.issue(ca, "broker1", HOSTS, NOW, 9)
    for content in (new.key_pem, new.key_pem + new.certificate_pem):
        path.write_bytes(content)
        assert polled(reloader, 1) == []
    assert len(polled(reloader, 1)) == 1


def test_broken_file_is_reported_once_and_the_old_certificate_stays(make: Make, ca: Pair) -> None:
    reloader = make()
    old = reloader.listener
    path = Path(reloader.listener.settings.keystore_location or "")
    private(path, b"x")
    (outcome,) = polled(reloader, 5)
    assert isinstance(outcome, Rejected) and outcome.line.startswith("ssl.keystore.location: must hold one private key")
    assert outcome.line.endswith("the old certificate stays in force") and reloader.listener is old
    path.unlink()
    (outcome,) = polled(reloader, 5)
    assert "does not exist" in outcome.line
    put(reloader, certificates.issue(ca, "broker1", HOSTS, NOW, 9))
    assert isinstance(polled(reloader)[0], Reloaded)


def test_swapped_symbolic_link_is_reloaded(make: Make, ca: Pair, tmp_path: Path) -> None:
    """The kubelet renames a new symbolic link over `..data`."""
    first, second = tmp_path / "..1", tmp_path / "..2"
    for folder in (first, second):
        folder.mkdir()
        pair = certificates.issue(ca, "broker1", HOSTS, NOW, 9)
        private(folder / "tls.pem", pair.key_pem + pair.certificate_pem)
    data = tmp_path / "..data"
    data.symlink_to(first.name)
    (tmp_path / "tls.pem").symlink_to("..data/tls.pem")
    reloader = make(keystore_location=str(tmp_path / "tls.pem"))
    assert polled(reloader) == []
    new = tmp_path / "..new"
    new.symlink_to(second.name)
    new.rename(data)
    assert isinstance(polled(reloader)[0], Reloaded)


def test_changed_trust_store_is_reloaded(make: Make, ca: Pair) -> None:
    reloader = make()
    other = certificates.new_ca(NOW, "Another CA")
    path = reloader.listener.settings.truststore_location or ""
    private(Path(path), ca.certificate_pem + other.certificate_pem)
    polled(reloader)
    assert reloader.listener.trusted == (ca.certificate, other.certificate)


@pytest.mark.parametrize(
    ("name", "hosts", "allowed", "line"),
    [
        ("broker2", HOSTS, {}, "the new certificate is of CN=broker2, the old one of CN=broker1"),
        ("broker2", HOSTS, {"allow_dn_changes": "true"}, ""),
        ("BROKER1", HOSTS, {}, ""),
        ("broker1", HOSTS[:1], {}, "the new certificate lacks the names IPAddress:10.0.0.1 of the old one"),
        ("broker1", HOSTS[:1], {"allow_san_changes": "true"}, ""),
        ("broker1", [*HOSTS, "broker3"], {}, ""),
    ],
)
def test_new_certificate_must_keep_its_names(
    make: Make, ca: Pair, name: str, hosts: list[str], allowed: dict[str, Any], line: str
) -> None:
    reloader = make(**allowed)
    put(reloader, certificates.issue(ca, name, hosts, NOW, 9))
    (outcome,) = polled(reloader)
    assert line in outcome.line if line else isinstance(outcome, Reloaded)


def test_certificate_that_other_brokers_do_not_trust_is_rejected(make: Make) -> None:
    """Brokers with the new certificate and brokers with the old one must trust each other."""
    stranger = certificates.new_ca(NOW, "Another CA")
    new = certificates.issue(stranger, "broker1", HOSTS, NOW, 9)
    for inter_broker in (False, True):
        reloader = make(inter_broker)
        put(reloader, new)
        assert isinstance(polled(reloader)[0], Rejected if inter_broker else Reloaded)
        put(reloader, certificates.issue(stranger, "broker1", HOSTS, NOW, 9))


def test_changed_settings_are_loaded_and_watched(
    make: Make, server: Pair, ca: Pair, in_files: dict[str, Any], tmp_path: Path
) -> None:
    reloader = make()
    moved = private(tmp_path / "moved.pem", Path(in_files["ssl.keystore.location"]).read_bytes())
    settings = listener_settings(in_files | {"ssl.keystore.location": moved})
    assert isinstance(reloader.change(settings, NOW_S, stats_of(settings)), Reloaded)
    assert polled(reloader) == [] and reloader.listener.settings is settings
    none = listener_settings({"ssl.keystore.type": "PEM"})
    assert isinstance(reloader.change(none, NOW_S, stats_of(none)), Rejected)
    os.unlink(moved)
    assert "does not exist" in polled(reloader)[0].line


def test_a_trust_store_cannot_be_added(make: Make, in_files: dict[str, Any]) -> None:
    reloader = make(truststore_location=None)
    with pytest.raises(TlsError, match="restart the broker"):
        reloader.check(listener_settings(in_files), NOW_S)


def test_poll_loads_with_the_settings_and_the_time(in_files: dict[str, Any]) -> None:
    asked: list[tuple[TlsSettings, float]] = []
    settings = listener_settings(in_files)
    first = listener.load(settings, NOW_S)
    reloader = Reloader(first, {}, lambda *words: asked.append(words) or first)
    assert len([reloader.poll(7.0, stats_of(settings)) for _ in range(2)]) == 2
    assert asked == [(settings, 7.0)]
