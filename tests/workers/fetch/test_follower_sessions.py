"""Fetch sessions of followers: only changed partitions are read and answered."""

from __future__ import annotations

import pytest

from odradek.ipc import replicas, slots
from odradek.protocol import errors
from odradek.workers.fetch import follower_fetch

from ..inprocess import Bench, Client
from ..leading import lead, part, produce, publish
from .follower_requests import InSession, fill, row_of, values_in, write_epochs


def test_incremental_answer_has_only_changes(bench: Bench, client: Client) -> None:
    bench.topic("many", 20)
    for index in range(20):
        lead(bench, [1], [1], topic="many", index=index)
    follower = InSession(bench, 1, "many")
    assert sorted(follower.open([part(0, n) for n in range(20)])) == list(range(20))
    follower.ask([])
    for index in (3, 17):
        client.send(produce(client, [b"x"], acks=1, topic="many", partition=index))
        client.answers(1)
    found = follower.answer()
    (first,) = found
    follower.ask([part(1, first)])
    (second,) = [n for n, p in follower.answer().items() if p.records]
    assert {first, second} == {3, 17}
    publish(bench, "many", 5, log_start=0, state=slots.FOLLOWER, led_since=-1)
    follower.ask([part(1, second)])
    found = follower.answer()
    assert {n: p.error_code for n, p in found.items() if p.error_code} == {5: errors.NOT_LEADER_OR_FOLLOWER}
    follower.ask([])  # the error is repeated until the partition is forgotten
    assert follower.answer()[5].error_code == errors.NOT_LEADER_OR_FOLLOWER
    follower.ask([], forget=[("many", [5])])
    bench.turn(5)
    assert 5 not in (follower.answered() or {})


def test_follower_with_lower_offset_gets_records_again(bench: Bench, client: Client) -> None:
    """The follower was at the log end and truncated its log; the leader has not changed."""
    lead(bench, [1], [1])
    fill(bench, client, 2)
    follower = InSession(bench, 1, wait_ms=0)
    follower.open([part(2)])
    follower.ask([])
    assert follower.answer() == {}
    follower.ask([part(1)])
    assert values_in(follower.answer()[0]) == [b"1"]


def test_records_beyond_the_limit_come_with_next_answer(bench: Bench, client: Client) -> None:
    bench.topic("many", 3)
    for index in range(3):
        lead(bench, [1], [1], topic="many", index=index)
        client.send(produce(client, [b"x" * 1000], acks=1, topic="many", partition=index))
        client.answers(1)
    follower = InSession(bench, 1, "many")
    follower.ask([part(0, n) for n in range(3)], max_bytes=1100)
    served = [n for n, p in follower.answer().items() if p.records]
    for _ in range(2):
        follower.ask([part(1, served[-1])], max_bytes=1100)
        served += [n for n, p in follower.answer().items() if p.records]
    assert served == [0, 1, 2]


def test_served_partition_moves_to_the_end(bench: Bench, client: Client) -> None:
    """A partition that always has more records does not starve the others."""
    bench.topic("many", 2)
    for index in range(2):
        lead(bench, [1], [1], topic="many", index=index)
    for index in (0, 0, 0, 1):
        client.send(produce(client, [b"x" * 1000], acks=1, topic="many", partition=index))
        client.answers(1)
    follower, served = InSession(bench, 1, "many"), []
    follower.ask([part(0, 0), part(0, 1)], max_bytes=1100)
    for _ in range(2):
        served += [n for n, p in follower.answer().items() if p.records]
        follower.ask([part(len(served), 0)], max_bytes=1100)
    assert served == [0, 1]


def test_a_session_also_reports_where_the_logs_diverge(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1], epoch=5)
    fill(bench, client, 10)
    write_epochs(bench, (1, 0), (5, 8))
    follower = InSession(bench, 1)
    follower.open([part(8, last_epoch=1)])
    follower.ask([part(8, last_epoch=5)])
    assert follower.answer()[0].high_watermark == 8
    follower.ask([part(9, last_epoch=1)])
    assert follower.answer()[0].diverging_epoch.end_offset == 8


def test_only_changed_partitions_are_read(bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.topic("many", 50)
    for index in range(50):
        lead(bench, [1], [1], topic="many", index=index)
    follower = InSession(bench, 1, "many")
    follower.open([part(0, n) for n in range(50)])
    looked: list[int] = []
    look = follower_fetch.FollowerPartitions._look_at
    monkeypatch.setattr(
        follower_fetch.FollowerPartitions,
        "_look_at",
        lambda self, followed, *more: (looked.append(followed.part.partition), look(self, followed, *more))[1],
    )
    follower.ask([])
    follower.ask([])
    assert looked == []
    client.send(produce(client, [b"x"], acks=1, topic="many", partition=7))
    bench.turn(5)
    assert set(looked) == {7}


def test_idle_partitions_record_progress_periodically(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    follower = InSession(bench, 1, wait_ms=0)
    follower.open([part(0)])
    slot = bench.slot("t")
    session = next(iter(bench.worker.sessions._sessions.values()))
    slot.words[replicas.find(slot, 1) + 4] = 5
    follower.ask([])
    follower.answer()
    assert row_of(bench, 1).caught_up_ms == 5
    session.follower_partitions._refreshed -= 15  # half of replica.lag.time.max.ms
    follower.ask([])
    follower.answer()
    assert row_of(bench, 1).caught_up_ms > 5


def test_a_recreated_topic_is_found(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    follower = InSession(bench, 1)
    follower.open([part(0)])
    follower.ask([])
    bench.topic("t")
    lead(bench, [1], [1])
    bench.turn(3)
    if follower.answered() is not None:
        follower.ask([])
    fill(bench, client)
    assert values_in(follower.answer()[0]) == [b"0"]
