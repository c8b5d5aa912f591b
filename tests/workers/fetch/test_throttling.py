"""A replication throttle delays only out-of-sync followers, and costs nothing where there is none."""

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
RATE = 1000  # one such record exceeds the rate for longer than any test takes
WORKERS = LEADER.roles


@pytest.fixture
def throttled(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Topic t is throttled on brokers 0, which leads, and 1; topic u is not."""
    monkeypatch.setitem(bench.values, LEADER.rate, RATE)
    bench.topic("u")
    bench.configure("t", leader_replication_throttled_replicas="0:0,0:1")
    yield bench


def sent(bench: Bench) -> int:
    """Bytes sent to throttled replicas in the last 20 seconds."""
    now = time.monotonic_ns() // 1_000_000_000
    return sum(bench.shared.traffic.total(WORKERS, number) for number in range(now - 20, now + 1))


def fill(client: Client, *values: bytes, topic: str = "t") -> None:
    for value in values:
        client.send(produce(client, [value], acks=1, topic=topic))
        client.answers(1)


def exceed_rate(bench: Bench, worker: int = WORKERS[-1]) -> None:
    """Record more bytes of a worker than the rate allows."""
    bench.shared.traffic.add(worker, time.monotonic_ns() // 1_000_000_000, 1_000_000)


def test_out_of_sync_follower_gets_no_records_above_the_rate(throttled: Bench, client: Client) -> None:
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
    assert follower.answer() == {}, "a throttled fetch is answered long before its max wait"
    assert sent(throttled) == before


@pytest.mark.parametrize(("standing", "gets"), [(OUT, []), (JOINING, [b"a"]), (IN, [b"a"])])
def test_follower_that_the_high_watermark_waits_for_is_not_throttled(
    throttled: Bench, client: Client, standing: int, gets: list[bytes]
) -> None:
    slot = lead(throttled, [1], [1])
    replicas.set_isr_status(slot, {1: standing})
    fill(client, b"a")
    exceed_rate(throttled)
    before = sent(throttled)
    assert values_in(Follower(throttled, 1).fetch(0)) == gets
    assert (sent(throttled) > before) == bool(gets), "its bytes count towards the rate"


def test_consumers_and_other_topics_are_not_throttled(throttled: Bench, client: Client) -> None:
    lead(throttled, [1], [])
    lead(throttled, [1], [], topic="u")
    fill(client, b"a")
    fill(client, b"b", topic="u")
    exceed_rate(throttled)
    before = sent(throttled)
    assert values_in(InSession(throttled, 1, "u").open([part(0)])[0]) == [b"b"]
    slot = throttled.slot("t")
    slot.update(hw=1)
    assert values_in(client.call(calls.fetch_request("t", 0)).responses[0].partitions[0]) == [b"a"]
    assert sent(throttled) == before


def test_throttled_follower_gets_the_high_watermark(throttled: Bench, client: Client) -> None:
    slot = lead(throttled, [1], [])
    fill(client, b"a")
    slot.update(hw=1)
    exceed_rate(throttled)
    found = Follower(throttled, 1).fetch(0)
    assert (found.error_code, found.high_watermark, values_in(found)) == (0, 1, [])


def test_removed_throttle_completes_a_waiting_fetch(throttled: Bench, client: Client) -> None:
    lead(throttled, [1], [])
    fill(client, b"a")
    follower = InSession(throttled, 1)
    exceed_rate(throttled)
    assert not values_in(follower.open([part(0)])[0])
    follower.ask([])
    assert follower.answered() is None
    throttled.configure("t")
    assert values_in(follower.answer()[0]) == [b"a"]


@pytest.mark.parametrize("who", ["0:1", "1:0"])
def test_throttle_of_another_replica_or_partition_does_not_apply(throttled: Bench, client: Client, who: str) -> None:
    """The throttle is of a replica that does not lead, or of another partition."""
    throttled.configure("t", leader_replication_throttled_replicas=who)
    lead(throttled, [1], [])
    fill(client, b"a")
    exceed_rate(throttled)
    assert values_in(Follower(throttled, 1).fetch(0)) == [b"a"]


def test_without_a_throttle_nothing_is_checked(bench: Bench, client: Client) -> None:
    lead(bench, [1], [])
    fill(client, b"a")
    exceed_rate(bench)
    assert values_in(Follower(bench, 1).fetch(0)) == [b"a"]
    assert bench.worker.followers.throttling.get() is None
    assert bench.shared.traffic.total(range(roles.FIRST_WORKER, roles.FIRST_WORKER + 1), 0) == 0
