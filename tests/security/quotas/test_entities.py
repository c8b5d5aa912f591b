"""Quota entities, their znodes, and the quota that applies to a client."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.security.quotas.entities import Entity, change_of, entity_of, parse_path, path_of
from odradek.security.quotas.keys import to_text, values_of
from odradek.security.quotas.resolution import AddressQuotas, ClientQuota, ClientQuotas

NAMES = st.none() | st.text(st.characters(blacklist_categories=["Cs"]), min_size=1)


@given(NAMES, NAMES)
def test_entity_paths_round_trip(user: str | None, client: str | None) -> None:
    pairs = ("user", user), ("client-id", client)
    for entity in (pairs[:1], pairs[1:], pairs, (("ip", user),)):
        assert parse_path(path_of(entity)) == parse_path(change_of(entity)) == entity


def test_entity_paths_equal_kafkas() -> None:
    assert path_of((("user", "CN=a b"), ("client-id", None))) == "/config/users/CN%3Da%20b/clients/<default>"
    assert path_of((("client-id", "<default>"),)) == "/config/clients/%3Cdefault%3E"
    assert path_of((("ip", None),)) == "/config/ips/<default>"


@pytest.mark.parametrize(
    "path", ["/config/topics/t", "users", "users/a/clients", "clients/a/users/b", "ips/a/ips/b", "users/%4"]
)
def test_malformed_entity_paths_are_refused(path: str) -> None:
    with pytest.raises(ValueError):
        parse_path(path)


def test_entity_pairs_are_ordered() -> None:
    assert entity_of([("client-id", "c"), ("user", "a"), ("user", "b")]) == (("user", "b"), ("client-id", "c"))


def test_quota_values_are_written_and_read() -> None:
    assert [to_text("producer_byte_rate", value) for value in (1024.0, 2.0**63)] == ["1024", str(2**63 - 1)]
    assert [to_text("request_percentage", value) for value in (200.0, 12.5, float("inf"))] == [
        "200.0",
        "12.5",
        "Infinity",
    ]
    stored = {
        "producer_byte_rate": "1024",
        "request_percentage": "x",
        "SCRAM-SHA-256": "salt=…",
        "connection_creation_rate": "5",
    }
    assert values_of((("user", "alice"),), stored) == {"producer_byte_rate": 1024.0}
    assert values_of((("ip", None),), stored) == {"connection_creation_rate": 5.0}


def test_clients_that_share_a_quota_have_the_same_tags() -> None:
    quotas = {
        (("user", "alice"),): {"k": 1.0},
        (("user", None), ("client-id", None)): {"k": 2.0},
        (("client-id", "c"),): {"k": 3.0},
    }
    found = ClientQuotas(quotas, "k")
    assert found.find("alice", "c") == found.find("alice", "d") == ClientQuota(("alice", ""), 1.0)
    assert found.find("bob", "c") == ClientQuota(("bob", "c"), 2.0)
    assert ClientQuotas(quotas, "other").find("alice", "c") is None


def test_quota_of_a_client_id_is_shared_by_all_users() -> None:
    found = ClientQuotas({(("client-id", "c"),): {"k": 3.0}}, "k")
    assert found.find("alice", "c") == found.find("bob", "c") == ClientQuota(("", "c"), 3.0)
    assert found.find("bob", "") is None


def test_quota_of_an_address_overrides_the_default() -> None:
    quotas: dict[Entity, dict[str, float]] = {(("ip", None),): {"k": 5.0}, (("ip", "10.0.0.1"),): {"k": 1.0}}
    found = AddressQuotas(quotas, "k")
    assert [found.find(address) for address in ("10.0.0.1", "10.0.0.2")] == [1.0, 5.0]
    assert AddressQuotas({}, "k").find("10.0.0.1") is None


@pytest.mark.parametrize(
    ("entity", "client"),
    [
        ("2001:DB8:0:0:0:0:0:1", "2001:db8::1"),
        ("::1", "::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::1"),
        ("::1.2.3.4", "::102:304"),
    ],
)
def test_notation_of_an_address_does_not_matter(entity: str, client: str) -> None:
    """Kafka compares InetAddresses."""
    quotas: dict[Entity, dict[str, float]] = {(("ip", entity),): {"k": 1.0}, (("ip", None),): {"k": 5.0}}
    assert AddressQuotas(quotas, "k").find(client) == 1.0
    assert AddressQuotas(quotas, "k").find("2001:db8::2") == 5.0


@pytest.mark.parametrize("text", ["NaN", "nan", "Infinity", "-Infinity", "1e400"])
def test_rate_that_is_no_number_is_ignored(text: str) -> None:
    """Another program may have written it; a worker could not compute with it."""
    assert values_of((("user", "alice"),), {"producer_byte_rate": text}) == {}
    assert values_of((("ip", None),), {"connection_creation_rate": text}) == {}


def test_percentage_may_be_infinite_as_in_java() -> None:
    entity = (("user", "alice"),)
    assert values_of(entity, {"request_percentage": to_text("request_percentage", float("inf"))}) == {
        "request_percentage": float("inf")
    }
    assert values_of(entity, {"request_percentage": "NaN"}) == {}
