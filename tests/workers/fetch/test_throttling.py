"""A throttle delays out-of-sync followers only; what it costs where there is none."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from odradek.cluster.replication.throttles import LEADER
from odradek.ipc import replicas, roles
from odradek.ipc.replicas import IN, JOINING, OUT

from ...clients.raw import calls
from ..inprocess import Bench, Client
from ..leading import Follower, lead, part, produce
from .follower_requests import InSession, values_in

BIG = b"x" * 50_000
RATE = 1000  # so that one such record is too much for longer than any test takes
WORKERS = LEADER.roles


@pytest.fixture
def throttled(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Topic t is, of the brokers 0, which leads, and 1; u is not."""
    monkeypatch.setitem(bench.values, LEADER.rate, RATE)
    bench.topic("u")
    bench.configure("t", leader_replication_throttled_replicas="0:0,0:1")
    yield bench


def sent(bench: Bench) -> int:
    """Bytes of throttled replicas, whenever they were sent."""
    now = time.monotonic_ns() // 1_000_000_000
    return sum(bench.shared.traffic.total(WORKERS, number) for number in range(now - 20, now + 1))


def fill(client: Client, *values: bytes, topic: str = "t") -> None:
    for value in values:
        client.send(produce(client, [value], acks=1, topic=topic))
        client.answers(1)


def too_much(bench: Bench, worker: int = WORKERS[-1]) -> None:
    """A worker has sent more than is allowed."""
    bench.shared.traffic.add(worker, time.monotonic_ns() // 1_000_000_000, 1_000_000)


def test_who_is_not_in_sync_gets_nothing_once_it_was_too_much(throttled: Bench, client: Client) -> None:
    lead(throttled, [1], [])
    fill(client, BIG, b"more")
    follower = InSession(throttled, 1)
    whole = values_in(follower.open([part(0)])[0])[0]
    assert whole == BIG and sent(throttled) > len(BIG)
    fill(client, b"later")
    before = sent(throttled)
    follower.ask([part(2)])
    told = follower.answer()
    assert (told[0].high_watermark, values_in(told[0])) == (3, [])
    follower.ask([])
    assert follower.answer() == {}, "it looks again long before its own time is up"
    assert sent(throttled) == before


@pytest.mark.parametrize(("standing", "gets"), [(OUT, []), (JOINING, [b"a"]), (IN, [b"a"])])
def test_who_is_waited_for_is_not_held_back(throttled: Bench, client: Client, standing: int, gets: list[bytes]) -> None:
    slot = lead(throttled, [1], [1])
    replicas.set_isr_status(slot, {1: standing})
    fill(client, b"a")
    too_much(throttled)
    before = sent(throttled)
    assert values_in(Follower(throttled, 1).fetch(0)) == gets
    assert (sent(throttled) > before) == bool(gets), "what they get counts"


def test_consumers_and_other_topics_are_free(throttled: Bench, client: Client) -> None:
    lead(throttled, [1], [])
    lead(throttled, [1], [], topic="u")
    fill(client, b"a")
    fill(client, b"b", topic="u")
    too_much(throttled)
    before = sent(throttled)
    assert values_in(InSession(throttled, 1, "u").open([part(0)])[0]) == [b"b"]
    slot = throttled.slot("t")
    slot.update(hw=1)
    assert values_in(client.call(calls.fetch_request("t", 0)).responses[0].partitions[0]) == [b"a"]
    assert sent(throttled) == before


def test_the_high_watermark_is_told_all_the_same(throttled: Bench, client: Client) -> None:
    slot = lead(throttled, [1], [])
    fill(client, b"a")
    slot.update(hw=1)
    too_much(throttled)
    found = Follower(throttled, 1).fetch(0)
    assert (found.error_code, found.high_watermark, values_in(found)) == (0, 1, [])


def test_all_is_well_again_as_soon_as_the_throttle_is_gone(throttled: Bench, client: Client) -> None:
    lead(throttled, [1], [])
    fill(client, b"a")
    follower = InSession(throttled, 1)
    too_much(throttled)
    assert not values_in(follower.open([part(0)])[0])
    follower.ask([])
    assert follower.answered() is None
    throttled.configure("t")
    assert values_in(follower.answer()[0]) == [b"a"]


@pytest.mark.parametrize("who", ["0:1", "1:0"])
def test_a_throttle_of_others(throttled: Bench, client: Client, who: str) -> None:
    """Of what this broker does not lead, or of another partition."""
    throttled.configure("t", leader_replication_throttled_replicas=who)
    lead(throttled, [1], [])
    fill(client, b"a")
    too_much(throttled)
    assert values_in(Follower(throttled, 1).fetch(0)) == [b"a"]


def test_without_a_throttle_nothing_is_checked(bench: Bench, client: Client) -> None:
    lead(bench, [1], [])
    fill(client, b"a")
    too_much(bench)
    assert values_in(Follower(bench, 1).fetch(0)) == [b"a"]
    assert bench.worker.followers.throttling.get() is None
    assert bench.shared.traffic.total(range(roles.FIRST_WORKER, roles.FIRST_WORKER + 1), 0) == 0
