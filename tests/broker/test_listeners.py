"""listeners and advertised.listeners."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker import listeners
from odradek.broker.listeners import Endpoint, ListenerError

PLAIN = {"PLAINTEXT": "PLAINTEXT", "A": "PLAINTEXT", "B": "PLAINTEXT", "SSL": "SSL", "IN": "SASL_SSL"}

GOOD = [
    ("PLAINTEXT://127.0.0.1:9092", [Endpoint("PLAINTEXT", "127.0.0.1", 9092)]),
    ("PLAINTEXT://:9092", [Endpoint("PLAINTEXT", "", 9092)]),
    ("plaintext://[::1]:0", [Endpoint("PLAINTEXT", "::1", 0)]),
    ("A://0.0.0.0:1, B://host.example:2", [Endpoint("A", "0.0.0.0", 1), Endpoint("B", "host.example", 2)]),
    ("A://127.0.0.1:1,B://[::1]:1", [Endpoint("A", "127.0.0.1", 1), Endpoint("B", "::1", 1)]),
    ("A://h:0,B://h:0", [Endpoint("A", "h", 0), Endpoint("B", "h", 0)]),
]


@pytest.mark.parametrize(("text", "expected"), GOOD)
def test_good(text: str, expected: list[Endpoint]) -> None:
    found = listeners.parse_endpoints("listeners", text)
    assert found == expected
    listeners.check_listeners(found, PLAIN)


BAD = [
    ("", "at least one"),
    ("localhost:9092", "NAME://host:port"),
    ("://localhost:9092", "NAME://host:port"),
    ("PLAINTEXT://localhost", "NAME://host:port"),
    ("PLAINTEXT://localhost:70000", "outside 0..65535"),
    ("PLAINTEXT://localhost:-1", "outside 0..65535"),
    ("A://h:1,A://h:2", "A appears more often"),
    ("A://h:1,B://g:1", "port 1 is used 2 times"),
    ("A://127.0.0.1:1,B://127.0.0.2:1", "port 1 is used 2 times"),
    ("A://127.0.0.1:1,B://[::1]:1,PLAINTEXT://h:1", "port 1 is used 3 times"),
    ("C://h:1", "add C:PLAINTEXT"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_bad(text: str, message: str) -> None:
    with pytest.raises(ListenerError, match=message):
        listeners.check_listeners(listeners.parse_endpoints("listeners", text), PLAIN)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("C://h:1", r"no listener C \(there are A\)"),
        ("A://0.0.0.0:1", "not an address that clients can connect to"),
        ("A://:1", "not an address that clients can connect to"),
    ],
)
def test_bad_advertised(text: str, message: str) -> None:
    with pytest.raises(ListenerError, match=message):
        listeners.check_advertised(listeners.parse_endpoints("advertised.listeners", text), [Endpoint("A", "h", 1)])


def test_default_advertised() -> None:
    mine = socket.gethostname()
    given_ = [Endpoint("A", "0.0.0.0", 1), Endpoint("B", "", 2), Endpoint("PLAINTEXT", "::1", 3)]
    assert listeners.default_advertised(given_) == [
        Endpoint("A", mine, 1),
        Endpoint("B", mine, 2),
        Endpoint("PLAINTEXT", "::1", 3),
    ]
    assert listeners.default_advertised(given_[:1], "public", 99) == [Endpoint("A", "public", 99)]


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("", False), ("0.0.0.0", False)],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert Endpoint("A", host, 1).is_loopback is loopback


@pytest.mark.parametrize("text", ["A", "A:NOPE", ":", "A:"])
def test_bad_protocol_map(text: str) -> None:
    with pytest.raises(ListenerError, match="NAME:PROTOCOL"):
        listeners.parse_protocol_map(text)


def test_protocol_map() -> None:
    assert listeners.parse_protocol_map("in:plaintext, OUT:SSL") == {"IN": "PLAINTEXT", "OUT": "SSL"}


_HOSTS = st.one_of(st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True), st.ip_addresses().map(str))


@given(st.from_regex(r"[A-Z][A-Z0-9_]{0,9}", fullmatch=True), _HOSTS, st.integers(0, 65535))
def test_text_and_back(name: str, host: str, port: int) -> None:
    endpoint = Endpoint(name, host, port)
    assert listeners.parse_endpoints("listeners", str(endpoint)) == [endpoint]
