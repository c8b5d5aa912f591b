"""Which connection of a coordinator is its newest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from odradek.broker.coordinator_links import NewestConnections, client_id


def test_connections_follow_each_other() -> None:
    newest = NewestConnections()
    first, second = client_id(1), client_id(1)
    assert newest.admits(first)
    assert newest.admits(second)
    assert not newest.admits(first)
    assert newest.admits(second)


def test_brokers_and_other_clients_do_not_concern_each_other() -> None:
    newest = NewestConnections()
    assert newest.admits("odradek-coordinator/1/b/20")
    assert newest.admits("odradek-coordinator/2/b/10")
    for client in (None, "", "broker-1-txn-marker-sender", "odradek-coordinator/1/b/x", "odradek-coordinator/1//-5"):
        assert newest.admits(client)
    assert newest.admits("odradek-coordinator/1/c/10"), "its host has booted since"
    assert not newest.admits("odradek-coordinator/1/c/9")


@given(st.lists(st.integers(0, 9), max_size=30))
def test_none_is_admitted_after_a_later_one(times: list[int]) -> None:
    newest, latest = NewestConnections(), 0
    for since in times:
        assert newest.admits(f"odradek-coordinator/1/b/{since}") == (since >= latest)
        latest = max(latest, since)
