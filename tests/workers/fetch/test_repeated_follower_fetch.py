"""A follower's repeated fetch has the same answers and effects as the decoded request.

Two brokers get the same requests; one of them caches none.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.cluster.replication.throttles import LEADER
from odradek.ipc import replicas, roles, slots
from odradek.ipc.replicas import IN, OUT
from odradek.protocol import errors
from odradek.storage.log import read
from odradek.storage.segment.epochs import EpochCache
from odradek.workers.fetch import follower_progress
from odradek.workers.fetch.follower_fetch import FollowerFetch

from ...clients.raw import batches, calls
from ..inprocess import Bench
from ..inprocess import bench as make
from ..leading import lead, part, publish
from .compared_brokers import FOLLOWER, LONG_WAIT, Pair, Side, at, stop_ticks


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    (tmp_path / "short").mkdir()
    (tmp_path / "long").mkdir()
    with make(tmp_path / "short") as short, make(tmp_path / "long") as long:
        yield Pair(short, long)


@pytest.mark.parametrize("version", [7, 9, 11, 12, 13, 15, 17])
def test_follower_at_log_end_is_served_without_the_general_read(
    pair: Pair, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.follow(version=version)
    monkeypatch.setattr(FollowerFetch, "_read", lambda self: 1 / 0)
    side = pair.short
    for offset in range(3, 8):
        side.produce()
        assert (len(side.answers()), side.bench.slot("t").state().hw) == (1, offset)
        side.ask(at(offset + 1))
        assert side.waiting
        assert side.bench.slot("t").state().hw == offset + 1
    assert side.remembered == 8


def test_missing_records_are_sent_at_once(pair: Pair) -> None:
    pair.follow()
    pair.produce()
    for size in (10, 30_000, 10):
        pair.produce(size)
    for offset in (4, 7):
        pair.ask(at(offset))
    assert pair.short.remembered == 5
    assert pair.short.waiting


def test_followers_share_one_answer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    sides = [Side(bench, True), Side(bench, True)]
    sides[0].make_topic()
    sides[1].broker = 2
    stop_ticks(bench)
    reads: list[Any] = []
    real = read.end_of_log
    monkeypatch.setattr(read, "end_of_log", lambda *a: reads.append(a) or real(*a))
    for side in sides:
        side.ask(part(0), wait_ms=0)
        side.answers()
    for offset in range(3):
        for side in sides:
            side.ask(at(offset))
        reads.clear()
        sides[0].produce()
        assert all(len(side.answers()) == 1 for side in sides)
    assert len(reads) == 1


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        {"leader_epoch": 1, "led_since": 1},
        {"leader_epoch": 1, "state": slots.FOLLOWER, "led_since": -1},
        {"state": slots.OFFLINE},
        {"state": slots.RECOVERING},
        {"state": slots.DELETING, "incarnation": 99_000},
        {"log_start": 4, "leo": 4},
        {"leo": 1, "hw": 1},
        {"latest_epoch": 1},
        {"hw": 2},
        {"log_start": 2},
        {"unstable": 1},
    ],
)
def test_change_between_requests_or_during_a_wait_is_answered_alike(
    pair: Pair, change: dict[str, int], waits: bool
) -> None:
    pair.follow()
    pair.do(lambda side: EpochCache([(0, 0), (1, 2)]).write(side.bench.root / "t-0"))
    if not waits:
        pair.end_wait()
    pair.publish(**change)
    for offset in (3, 3, 2, 4):
        pair.end_wait()
        pair.ask(at(offset))


def test_former_epoch_is_fenced(pair: Pair) -> None:
    """The request has the bytes of one before the leader's epoch began."""
    pair.follow()
    pair.produce()
    pair.publish(leader_epoch=1, led_since=1)
    (answer,) = pair.ask(at(4))
    assert errors.FENCED_LEADER_EPOCH.to_bytes(2, "big") in answer
    assert pair.short.bench.slot("t").state().hw == 3


@pytest.mark.parametrize("rows", [[2], []])
def test_removed_follower_does_not_move_the_high_watermark(pair: Pair, rows: list[int]) -> None:
    pair.follow()
    pair.do(lambda side: replicas.set_followers(side.bench.slot("t"), rows, rows, 0, rows))
    pair.produce()
    for offset in (4, 3):
        pair.ask(at(offset))
    assert pair.short.bench.slot("t").state().hw == 3


def test_removed_follower_is_answered_at_once(pair: Pair) -> None:
    """Another follower has been answered at the same offset since."""
    pair.follow()
    pair.end_wait()
    for side in pair.both:
        replicas.set_followers(side.bench.slot("t"), [2], [2], 0, [2])
        publish(side.bench, hw_quorum=2)
        other = Side(side.bench, True)
        other.broker = 2
        for _ in range(3):
            other.ask(at(3))
            side.bench.worker.purgatory.answer_all()
            other.answers()
        assert other.remembered == 1
    pair.ask(at(3))
    assert not pair.short.waiting


def test_progress_of_a_follower_counts_when_it_joins_the_isr(pair: Pair) -> None:
    pair.follow()
    for to in (OUT, IN):
        pair.do(lambda side, to=to: replicas.set_isr_status(side.bench.slot("t"), {FOLLOWER: to}))  # type: ignore[misc]  # a default in a lambda
        pair.produce()
        leo = pair.short.bench.slot("t").state().leo
        pair.ask(at(leo))
    assert pair.short.bench.slot("t").state().hw == 5


@pytest.mark.parametrize(
    "asked",
    [
        at(3, last_epoch=1), at(3, last_epoch=-1), at(3, epoch=1), at(3, epoch=-1), at(3, log_start=1),
        at(9), at(-1), at(1 << 62), at(0, 1), at(7, 2),
    ],
)  # fmt: skip
def test_different_request_is_decoded(pair: Pair, asked: Any) -> None:
    pair.follow(0, 1)
    pair.end_wait()
    for one in (asked, at(3), asked, asked, at(3)):
        pair.ask(one)
        pair.end_wait()
    pair.ask()
    pair.ask(at(3), forget=[])


@pytest.mark.parametrize("epoch", [0, 1, 99, -1])
def test_wrong_session_epoch_is_refused(pair: Pair, epoch: int) -> None:
    pair.follow()
    pair.produce()
    for _ in range(2):
        assert pair.ask(at(4), epoch=epoch, wait_ms=0)
    if epoch > 0:
        assert pair.short.bench.slot("t").state().hw == 3, "a request with a wrong epoch records no progress"


def test_removed_session_is_not_found(pair: Pair) -> None:
    pair.follow()
    pair.produce()
    pair.do(lambda side: side.bench.worker.sessions._sessions.clear())
    (answer,) = pair.ask(at(4))
    assert errors.FETCH_SESSION_ID_NOT_FOUND.to_bytes(2, "big") in answer
    assert pair.short.bench.slot("t").state().hw == 3


@pytest.mark.parametrize("change", [{"forget": [("t", [0])]}, {"replica": 2}])
def test_session_changed_on_another_connection_is_answered_alike(pair: Pair, change: dict[str, Any]) -> None:
    pair.follow(0, 1, version=12)
    pair.end_wait()
    for side in pair.both:
        own, side.client, broker = side.client, side.bench.connect(), side.broker
        side.broker = change.get("replica", broker)
        side.ask(at(0, 1), forget=change.get("forget", []), wait_ms=0)
        side.answers()
        side.client, side.broker = own, broker
    pair.produce()
    for offset in (3, 4):
        pair.ask(at(offset))
        pair.end_wait()


def test_unsent_changes_come_with_next_answer(pair: Pair) -> None:
    pair.follow(0, 1)
    pair.end_wait()
    pair.do(lambda side: lead(side.bench, [FOLLOWER, 2], [FOLLOWER, 2], index=1))
    pair.produce(10, 1)
    pair.ask(at(1, 1))
    for offset in (3, 3):
        pair.end_wait()
        pair.ask(at(offset))
    pair.do(lambda side: publish(side.bench, "t", 1, hw=1))
    assert pair.short.waiting
    (answer,) = pair.produce()
    assert b"partition_index=0" in answer
    assert b"partition_index=1" in answer


def test_changes_of_other_partitions_are_included(pair: Pair) -> None:
    pair.follow(0, 1, 2)
    assert pair.produce(10, 1)
    pair.ask(at(3))
    pair.produce(10, 2)
    pair.produce()
    pair.ask(at(1, 1))
    for offset in (4, 4):
        pair.ask(at(offset))
    pair.do(lambda side: publish(side.bench, "t", 2, state=slots.OFFLINE))
    pair.same()
    pair.ask(at(4))
    assert pair.short.remembered > 3


def test_served_partition_moves_to_the_end(pair: Pair) -> None:
    pair.follow(0, 1)
    for side in pair.both:
        (session,) = side.bench.worker.sessions._sessions.values()
        session.follower_partitions.move_to_end(next(key for key in session.parts if key[1] == 1))
        side.produce()
        assert [index for _, index in session.follower_partitions._partitions] == [1, 0]


def test_new_throttle_is_enforced(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.follow()
    second = time.monotonic_ns() // 1_000_000_000

    def throttle(side: Side) -> None:
        monkeypatch.setitem(side.bench.values, LEADER.rate, 1)
        replicas.set_isr_status(side.bench.slot("t"), {FOLLOWER: OUT})
        for at_s in range(second, second + 20):
            side.bench.shared.traffic.add(LEADER.roles[-1], at_s, 1_000_000)
        side.bench.configure("t", leader_replication_throttled_replicas="*")

    pair.do(throttle)
    pair.produce()
    pair.end_wait()
    for _ in range(3):
        assert not any(b"xxxxxxxxxx" in answer for answer in pair.ask(at(3), wait_ms=1) + pair.end_wait())


def test_recreated_topic_is_fetched_from_its_start(pair: Pair) -> None:
    pair.follow(version=12)

    pair.do(Side.make_topic)
    pair.same()
    pair.end_wait()
    for offset in (3, 0, 0):
        pair.ask(at(offset))
        pair.end_wait()
    pair.produce()
    assert any(b"x" * 10 in answer for answer in pair.ask(at(0)))


def test_held_lock_delays_progress_but_not_the_answer(pair: Pair) -> None:
    pair.follow()
    pair.produce()
    side = pair.short
    with side.bench.held("t"):
        side.ask(at(4))
        assert (side.waiting, side.remembered, side.bench.slot("t").state().hw) == (True, 4, 3)
    side.bench.turn(5)
    assert side.bench.slot("t").state().hw == 4


def test_idle_partitions_record_progress_periodically(pair: Pair) -> None:
    pair.follow(0, 1)
    pair.end_wait()
    for side in pair.both:
        next(iter(side.bench.worker.sessions._sessions.values())).follower_partitions._refreshed -= 15
        slot = side.bench.slot("t", 1)
        slot.words[replicas.find(slot, FOLLOWER) + 4] = 5
    pair.ask(at(3))
    for side in pair.both:
        (row, *_) = replicas.read(side.bench.slot("t", 1))
        assert row.caught_up_ms > 5


def test_new_high_watermark_is_sent_soon_and_once(pair: Pair, later: Callable[[float], None]) -> None:
    pair.follow()
    side = pair.short
    assert (side.waiting, side.bench.slot("t").state().hw) == (True, 3)
    side.bench.worker.followers.tick()
    assert side.waiting, "records may come at any moment"
    later(follower_progress.PROGRESS_DELAY_S)
    pair.do(lambda one: one.bench.worker.followers.tick())
    (answer,) = pair.same()
    assert (3).to_bytes(8, "big") * 2 in answer
    pair.ask(at(3))
    later(follower_progress.PROGRESS_DELAY_S)
    pair.do(lambda one: one.bench.worker.followers.tick())
    assert side.waiting, "the follower has the high watermark"


def test_steady_records_carry_the_high_watermark(pair: Pair, later: Callable[[float], None]) -> None:
    pair.follow()
    side = pair.short
    for offset in range(4, 7):
        later(follower_progress.PROGRESS_DELAY_S)
        side.produce()
        assert len(side.answers()) == 1
        side.ask(at(offset))
        side.bench.worker.followers.tick()
        assert side.waiting


def test_follower_that_disconnects_is_removed(pair: Pair, later: Callable[[float], None]) -> None:
    pair.follow()
    side = pair.short
    side.client.sock.close()
    side.bench.turn(3)
    later(follower_progress.PROGRESS_DELAY_S)
    side.bench.worker.followers.tick()
    assert (len(side.bench.worker.purgatory), side.bench.worker.followers._scheduled) == (0, {})


def test_draining_worker_answers_followers(pair: Pair) -> None:
    pair.follow()
    pair.do(lambda side: setattr(side.bench.worker, "draining", True))
    assert pair.end_wait()
    assert pair.ask(at(3))


def test_waiting_follower_is_woken_by_records_only(pair: Pair) -> None:
    pair.follow()
    slot, consumer = pair.short.bench.slot("t"), pair.short.bench.connect()
    assert slot.waiters(slots.ANYTHING) == []
    assert slot.waiters() == [roles.worker_role(0)]
    pair.short.bench.worker.purgatory.on_wakeup()
    assert slot.waiters(slots.ANYTHING) == []
    consumer.send(consumer.frame(calls.fetch_request("t", 3, wait_ms=LONG_WAIT)))
    pair.short.bench.turn(3)
    assert slot.waiters(slots.ANYTHING) == [roles.worker_role(0)]
    pair.short.bench.worker.purgatory.on_wakeup()
    assert slot.waiters(slots.ANYTHING) == [roles.worker_role(0)]


def test_high_watermark_alone_wakes_no_follower(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    side, other = Side(bench, True), roles.worker_role(1)
    side.make_topic()
    slot = bench.slot("t")
    rung: list[int] = []
    monkeypatch.setattr(bench.worker.catalog.log, "ring", rung.append)
    slot.wait(other, slots.GROWTH)
    side.producer.call(calls.produce_request("t", batches.batch([b"x"]), acks=1))
    assert rung == [other], "the log has grown"
    slot.wait(other, slots.GROWTH)
    side.ask(part(1), wait_ms=0)
    assert (slot.state().hw, rung) == (1, [other])
    slot.wait(other, slots.ANYTHING)
    side.producer.call(calls.produce_request("t", batches.batch([b"x"]), acks=1))
    slot.wait(other, slots.ANYTHING)
    side.ask(part(2), wait_ms=0, epoch=0)
    assert (slot.state().hw, rung) == (2, [other] * 3), "a consumer waits for the high watermark"


@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(5, 12))])
def test_random_sequences_are_answered_alike(pair: Pair, seed: int) -> None:
    chance = random.Random(seed)
    version = chance.choice([7, 12, 13, 15])
    pair.follow(*chance.choice([(0,), (0, 1, 2)]), version=version)
    pair.do(lambda side: EpochCache([(0, 0), (1, 2)]).write(side.bench.root / "t-0"))
    for _ in range(60):
        what = chance.randrange(9)
        if what < 3:
            pair.produce(chance.choice([1, 300, 20_000]), chance.choice([0, 0, 0, 1]))
        elif what == 3:
            pair.publish(**_changed(chance.randrange(7), pair.short.bench.slot("t").state()))
        elif what == 4:
            row = {FOLLOWER: chance.choice([OUT, IN, IN])}
            pair.do(lambda side, to=row: replicas.set_isr_status(side.bench.slot("t"), to))  # type: ignore[misc]  # a default in a lambda
        else:
            pair.end_wait()
            offset = pair.short.bench.slot("t").state().leo - chance.choice([0, 0, 0, 0, 1, 2, -1])
            wait_ms = chance.choice([LONG_WAIT, LONG_WAIT, 0])
            pair.ask(*([at(offset)] if chance.randrange(6) else []), wait_ms=wait_ms)
    assert pair.short.remembered > 5


def _changed(which: int, state: slots.SlotState) -> dict[str, int]:
    epoch = 1 - state.leader_epoch
    return [
        {"hw": max(state.log_start, state.hw - 1)},
        {"hw": state.leo},
        {"unstable": max(state.log_start, state.leo - 1)},
        {"unstable": -1},
        {"log_start": min(state.hw, state.log_start + 1)},
        {"leader_epoch": epoch, "led_since": epoch, "latest_epoch": epoch},
        {"leader_epoch": 0, "led_since": 0, "latest_epoch": 0},
    ][which]
