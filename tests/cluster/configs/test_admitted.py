"""Addresses that count as brokers': registered ones, this machine's loopback, and networks in the setting."""

from __future__ import annotations

import pytest

from odradek.cluster.configs import admitted
from odradek.cluster.configs.admitted import ALLOWED, NOBODY, Admitted
from odradek.cluster.configs.configdef import ConfigError, parse
from odradek.cluster.metadata.snapshot import Snapshot, raw_snapshot


@pytest.mark.parametrize(
    ("host", "takes"),
    [("10.0.0.1", True), ("10.0.0.2", False), ("127.0.0.1", False), ("::1", False), ("", False), ("name", False)],
)
def test_only_registered_addresses_are_admitted(host: str, takes: bool) -> None:
    assert Admitted("INTERNAL", ["10.0.0.1"]).allows("INTERNAL", host) is takes
    assert not Admitted("INTERNAL", ["10.0.0.1"]).allows("PLAINTEXT", host), "another listener"
    assert not NOBODY.allows("INTERNAL", host)


@pytest.mark.parametrize("own", ["127.0.0.1", "127.0.1.1", "::1"])
def test_broker_on_this_machine_is_admitted_from_loopback(own: str) -> None:
    """The kernel gives a connection to 127.0.1.1, Debian's address of the host's name, the source 127.0.0.1."""
    one = Admitted("PLAINTEXT", [own])
    assert one.allows("PLAINTEXT", "127.0.0.1")
    assert one.allows("PLAINTEXT", "::1")
    assert not one.allows("PLAINTEXT", "127.0.0.2")


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("10.0.0.0/8", "10.9.8.7", "11.0.0.1"),
        ("10.0.0.7/8, fd00::/8", "fd00::1", "fe80::1"),
        ("192.168.1.5", "192.168.1.5", "192.168.1.6"),
        ("*", "203.0.113.9", "no address"),
    ],
)
def test_allowed_networks_are_admitted(text: str, inside: str, outside: str) -> None:
    one = Admitted("PLAINTEXT", [], admitted.parse_allowed(text))
    assert one.allows("PLAINTEXT", inside)
    assert not one.allows("PLAINTEXT", outside)
    assert parse(ALLOWED, text) == text


@pytest.mark.parametrize("text", ["host.example", "10.0.0.0/99", "10.0.0.1;10.0.0.2"])
def test_invalid_network_is_refused_at_start(text: str) -> None:
    with pytest.raises(ConfigError, match=ALLOWED):
        parse(ALLOWED, text)


def test_broker_is_admitted_only_on_its_listener() -> None:
    one = Admitted("NEW", ["10.0.0.1", "10.0.0.2"], ["10.1.0.0/16"], {"OLD": ["10.0.0.2"]})
    assert one.allows("OLD", "10.0.0.2") and one.allows("NEW", "10.0.0.2")
    for host in ("10.0.0.1", "10.1.0.1", "127.0.0.1"):
        assert not one.allows("OLD", host)
    assert not one.allows("CLIENTS", "10.0.0.2")


def test_workers_read_admitted_addresses_from_metadata() -> None:
    one = Admitted("PLAINTEXT", ["10.0.0.1"], ["10.1.0.0/16"], {"OLD": ["10.0.0.2"]})
    found = Snapshot.parse(Snapshot(raw_snapshot(1, "c", 0, [], {}, {}, one)).encode())
    assert found.admitted.raw == one.raw
    assert not Snapshot.empty().admitted.allows("PLAINTEXT", "10.0.0.1")
