"""The login of a request: what a header says, which passwords are right, how many may be tried, who is bounded."""

from __future__ import annotations

import base64
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.exporter.access import basic
from odradek.broker.exporter.access.attempts import MOST, MOST_OF_ONE, Attempts
from odradek.broker.exporter.access.basic import Login
from odradek.broker.exporter.access.networks import network, next_to_go
from odradek.broker.exporter.access.passwords import Passwords
from odradek.security.sasl import scram_keys
from odradek.security.sasl.password import Password
from odradek.security.sasl.plain import PlainServer
from odradek.security.sasl.sasl_settings import Credentials
from odradek.security.sasl.scram_keys import ScramCredential, ScramMechanism

SHA = ScramMechanism.SCRAM_SHA_256
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0:"), min_size=1)
SECRETS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


def header(text: str | bytes) -> str:
    data = text if isinstance(text, bytes) else text.encode()
    return f"Basic {base64.b64encode(data).decode()}"


@given(NAMES, SECRETS)
def test_a_user_and_a_password_of_any_language_are_read(user: str, password: str) -> None:
    assert basic.parse(header(f"{user}:{password}")) == Login(user, Password(password))


@pytest.mark.parametrize(
    "wrong",
    [
        "", "Basic", "Basic !", "Basic YQ", "Bearer YTpi", header("alice"), header(":secret"), header("alice:"),
        header("a\0b:c"), header("a:b\0c"), header(b"\xff:x"), "Basic " + "A" * 5000,
    ],
)  # fmt: skip
def test_another_header_is_no_login(wrong: str) -> None:
    assert basic.parse(wrong) is None


@given(st.text())
def test_no_header_fails(text: str) -> None:
    found = basic.parse(f"Basic {text}")
    assert found is None or found.user


def made(password: str = "right", iterations: int = 4096) -> ScramCredential:
    return scram_keys.derive(SHA, Password(password), iterations)


def users(credential: ScramCredential | None, plain: dict[str, str] | None = None) -> Passwords:
    """carol has a credential of SCRAM-SHA-256, others a password of PLAIN."""
    live = Credentials(lambda mechanism, user: credential if (mechanism, user) == (SHA, "carol") else None)
    server = None if plain is None else PlainServer({name: Password(text) for name, text in plain.items()})
    return Passwords({"PLAIN": 1, SHA.value: 1}, server, live)


def test_a_password_is_right_for_its_user_alone() -> None:
    found = users(made(), {"alice": "right", "zoë": "pässwörd"})
    right = [("carol", "right"), ("alice", "right"), ("zoë", "pässwörd")]
    wrong = [("carol", "Right"), ("bob", "right"), ("alice", "pässwörd"), ("zoë", "right"), ("carol", "right ")]
    assert [found.match(Login(user, Password(text))) for user, text in right] == [True] * 3
    assert [found.match(Login(user, Password(text))) for user, text in wrong] == [False] * 5


def test_without_plain_its_users_are_unknown() -> None:
    assert not users(None).match(Login("alice", Password("right")))


@pytest.mark.parametrize("iterations", [1, 4095, 16385, 1 << 31])
def test_a_credential_does_not_decide_how_long_a_check_takes(iterations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same derivation for it as for a user that does not exist; and it lets no user in."""
    credential = ScramCredential(b"salt", made().stored_key, b"", iterations)
    asked = derivations(monkeypatch)
    assert not users(credential).match(Login("carol", Password("right")))
    assert not users(credential).match(Login("nobody", Password("right")))
    assert asked == [4096, 4096]


def derivations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The iterations of each derivation from now on."""
    asked: list[int] = []
    salted = scram_keys.salted

    def counted(*words: Any) -> bytes:
        asked.append(words[3])
        return salted(*words)

    monkeypatch.setattr(scram_keys, "salted", counted)
    return asked


def test_a_user_of_plain_costs_as_much_as_any(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = derivations(monkeypatch)
    assert users(None, {"alice": "right"}).match(Login("alice", Password("right")))
    assert asked == [4096]


HOSTS = st.sampled_from(["10.0.0.1", "10.0.0.2", "::1"] + [f"10.1.0.{number}" for number in range(20)])


@given(st.lists(st.tuples(st.booleans(), HOSTS), max_size=200))
def test_attempts_are_bounded_for_each_address_and_for_all(steps: list[tuple[bool, str]]) -> None:
    attempts, under_way = Attempts(), Counter[str]()
    for begins, host in steps:
        if begins:
            has_room = under_way[host] < MOST_OF_ONE and under_way.total() < MOST
            assert attempts.begin(host) == has_room
            under_way[host] += has_room
        elif under_way[host]:
            attempts.end(host)
            under_way[host] -= 1


def test_the_addresses_of_one_ipv6_network_are_one_sender() -> None:
    attempts = Attempts()
    assert all(attempts.begin(f"2001:db8::{number:x}") for number in range(MOST_OF_ONE))
    assert not attempts.begin("2001:db8::ffff:1") and attempts.begin("2001:db8:0:1::1")
    attempts.end("2001:db8::aaaa")
    assert attempts.begin("2001:db8::bbbb%eth0")


@pytest.mark.parametrize(
    ("host", "sender"),
    [
        ("10.0.0.1", "10.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("2001:db8::5", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"), ("", ""), ("unix", "unix"),
    ],
)  # fmt: skip
def test_a_sender_is_an_address_or_a_network_of_ipv6(host: str, sender: str) -> None:
    assert network(host) == sender


def test_the_oldest_of_the_sender_that_has_most_goes() -> None:
    assert next_to_go({1: "a", 2: "b", 3: "c", 4: "b"}) == 2
    assert next_to_go({1: "a", 2: "b", 3: "c"}) == 1


def test_one_address_leaves_room_for_others() -> None:
    attempts = Attempts()
    assert [attempts.begin("10.0.0.1") for _ in range(MOST_OF_ONE + 1)].count(False) == 1
    assert attempts.begin("10.0.0.2")
