"""A follower's remembered Fetch answers, tells and leaves what the whole request would.

Two brokers are treated alike; one of them remembers nothing.
"""

from __future__ import annotations

import random
import time
import uuid
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
from ...harness.wire import decode_response
from ..inprocess import Bench
from ..inprocess import bench as make
from ..leading import lead, part, publish, request

LONG_WAIT = 60_000
FOLLOWER = 1


class _Side:
    """A broker, and its follower in a session; `memory`: whether the follower's requests are remembered."""

    def __init__(self, bench: Bench, memory: bool) -> None:
        self.bench, self.memory = bench, memory
        self.producer, self.client = bench.connect(), bench.connect()
        self.session = self.epoch = self.remembered = 0
        self.broker, self.version = FOLLOWER, 13
        self._asked: Any = None

    def make_topic(self) -> None:
        """Partitions led in epoch 0, of which the follower is in sync."""
        self.bench.topic("t", 3)
        for index in range(3):
            EpochCache([(0, 0)]).write(self.bench.root / f"t-{index}")
            lead(self.bench, [FOLLOWER, 2], [FOLLOWER], index=index)
            publish(self.bench, "t", index, epoch_noted=0)

    def produce(self, size: int = 10, index: int = 0) -> None:
        asked = calls.produce_request("t", batches.batch([b"x" * size], timestamp=1000), acks=1, partition=index)
        self.producer.call(asked)
        self.bench.turn(3)

    def ask(self, *parts: Any, wait_ms: int = LONG_WAIT, epoch: int | None = None, **options: Any) -> None:
        topic: Any = uuid.UUID(bytes=self.bench.id_of("t")) if self.version >= 13 else "t"
        self._asked = asked = request(
            self.broker, list(parts), topic=topic, version=self.version, wait_ms=wait_ms, session=self.session,
            session_epoch=self.epoch if epoch is None else epoch, **options,
        )  # fmt: skip
        connection = self.bench.connection(self.client)
        if not self.memory:
            connection.repeated = None
        former = connection.repeated
        self.client.send(self.client.frame(asked))
        self.bench.turn(3)
        self.remembered += former is not None and former is connection.repeated

    def answers(self) -> list[bytes]:
        """Whatever came, without correlation and session ids, and the topic's id; partitions in their order."""
        found = []
        for frame in self.client.frames():
            at = 11 if self.version >= 12 else 10
            session = int.from_bytes(frame[at : at + 4], "big")
            self.session, self.epoch = session or self.session, self.epoch + 1
            found.append(self._in_order(frame[4:at] + frame[at + 4 :], decode_response(self._asked, frame)))
        return found

    def _in_order(self, content: bytes, decoded: Any) -> bytes:
        """The long way may have found a partition before another, and tell of it first."""
        parts = [part for topic in decoded.responses for part in topic.partitions]
        if len(parts) > 1:
            return b"".join(repr(part).encode() for part in sorted(parts, key=lambda part: part.partition_index))
        return content.replace(self.bench.id_of("t"), b"-" * 16)

    @property
    def waiting(self) -> bool:
        return bool(self.bench.connection(self.client).waits)

    def state(self) -> Any:
        """The session, how far the followers are known to be, and what that has led to."""
        session = self.bench.worker.sessions._sessions.get(self.session)
        kept = session and [
            session.epoch,
            sorted(part[1:] for part in session.parts.values()),
            sorted((index, told) for (_, index), told in session.last_sent.items()),
        ]
        rows = [
            [
                (r.broker, r.isr_status, r.leo, r.log_start, r.seen_leo)
                for r in replicas.read(self.bench.slot("t", index))
            ]
            for index in range(3)
        ]
        return kept, rows, [self.bench.slot("t", index).state().hw for index in range(3)], self.waiting


class _Pair:
    def __init__(self, short: Bench, long: Bench) -> None:
        self.short, self.long = _Side(short, True), _Side(long, False)
        self.both = (self.short, self.long)
        self.do(_Side.make_topic)
        for side in self.both:
            _without_ticks(side.bench)

    def do(self, what: Callable[[_Side], Any]) -> None:
        for side in self.both:
            what(side)
            side.bench.turn(3)

    def same(self) -> list[bytes]:
        short, long = self.short.answers(), self.long.answers()
        assert short == long
        assert self.short.state() == self.long.state()
        return short

    def ask(self, *parts: Any, **options: Any) -> list[bytes]:
        self.do(lambda side: side.ask(*parts, **options))
        return self.same()

    def produce(self, *more: Any) -> list[bytes]:
        self.do(lambda side: side.produce(*more))
        return self.same()

    def publish(self, **changes: int) -> list[bytes]:
        self.do(lambda side: publish(side.bench, **changes))
        return self.same()

    def end_wait(self) -> list[bytes]:
        self.do(lambda side: side.bench.worker.purgatory.answer_all())
        return self.same()

    def follow(self, *indexes: int, version: int = 13) -> None:
        """Open the session, and have it at the log's end of partition 0 by remembered requests."""
        for side in self.both:
            side.version = version
        assert self.ask(*(part(0, index) for index in indexes or (0,)), wait_ms=0)
        for offset in range(3):
            self.ask(_at(offset))
            assert self.produce()
        self.ask(_at(3))
        assert self.short.remembered == 3 and not self.long.remembered


def _without_ticks(bench: Bench) -> None:
    """A tick would tell a follower the high watermark 50 ms after its request: before another one's, or the records."""
    bench.worker._next_tick = float("inf")


def _at(offset: int, index: int = 0, **options: int) -> Any:
    return part(offset, index, **{"epoch": 0, "last_epoch": 0, **options})


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[_Pair]:
    (tmp_path / "short").mkdir()
    (tmp_path / "long").mkdir()
    with make(tmp_path / "short") as short, make(tmp_path / "long") as long:
        yield _Pair(short, long)


@pytest.mark.parametrize("version", [7, 9, 11, 12, 13, 15, 17])
def test_a_follower_at_the_end_of_the_log(pair: _Pair, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.follow(version=version)
    monkeypatch.setattr(FollowerFetch, "_read", lambda self: 1 / 0)
    side = pair.short
    for offset in range(3, 8):
        side.produce()
        assert (len(side.answers()), side.bench.slot("t").state().hw) == (1, offset)
        side.ask(_at(offset + 1))
        assert side.waiting
        assert side.bench.slot("t").state().hw == offset + 1
    assert side.remembered == 8


def test_what_is_behind_is_sent_at_once(pair: _Pair) -> None:
    pair.follow()
    pair.produce()
    for size in (10, 30_000, 10):
        pair.produce(size)
    for offset in (4, 7):
        pair.ask(_at(offset))
    assert pair.short.remembered == 5
    assert pair.short.waiting


def test_the_answer_is_one_for_all_followers(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    sides = [_Side(bench, True), _Side(bench, True)]
    sides[0].make_topic()
    sides[1].broker = 2
    _without_ticks(bench)
    reads: list[Any] = []
    real = read.end_of_log
    monkeypatch.setattr(read, "end_of_log", lambda *a: reads.append(a) or real(*a))
    for side in sides:
        side.ask(part(0), wait_ms=0)
        side.answers()
    for offset in range(3):
        for side in sides:
            side.ask(_at(offset))
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
        {"epoch_noted": 1},
        {"hw": 2},
        {"log_start": 2},
        {"unstable": 1},
    ],
)
def test_a_change_between_two_requests_or_while_one_waits(pair: _Pair, change: dict[str, int], waits: bool) -> None:
    pair.follow()
    pair.do(lambda side: EpochCache([(0, 0), (1, 2)]).write(side.bench.root / "t-0"))
    if not waits:
        pair.end_wait()
    pair.publish(**change)
    for offset in (3, 3, 2, 4):
        pair.end_wait()
        pair.ask(_at(offset))


def test_a_former_epoch_is_fenced_and_changes_nothing(pair: _Pair) -> None:
    """It was asked with the same bytes before the leader's epoch began."""
    pair.follow()
    pair.produce()
    pair.publish(leader_epoch=1, led_since=1)
    (answer,) = pair.ask(_at(4))
    assert errors.FENCED_LEADER_EPOCH.to_bytes(2, "big") in answer
    assert pair.short.bench.slot("t").state().hw == 3


@pytest.mark.parametrize("rows", [[2], []])
def test_who_is_a_follower_no_longer(pair: _Pair, rows: list[int]) -> None:
    pair.follow()
    pair.do(lambda side: replicas.set_followers(side.bench.slot("t"), rows, rows, 0, rows))
    pair.produce()
    for offset in (4, 3):
        pair.ask(_at(offset))
    assert pair.short.bench.slot("t").state().hw == 3


def test_who_is_a_follower_no_longer_is_told_at_once(pair: _Pair) -> None:
    """Another has been answered from the same place since."""
    pair.follow()
    pair.end_wait()
    for side in pair.both:
        replicas.set_followers(side.bench.slot("t"), [2], [2], 0, [2])
        publish(side.bench, hw_quorum=2)
        other = _Side(side.bench, True)
        other.broker = 2
        for _ in range(3):
            other.ask(_at(3))
            side.bench.worker.purgatory.answer_all()
            other.answers()
        assert other.remembered == 1
    pair.ask(_at(3))
    assert not pair.short.waiting


def test_who_is_out_of_sync_and_joins(pair: _Pair) -> None:
    pair.follow()
    for to in (OUT, IN):
        pair.do(lambda side, to=to: replicas.set_isr_status(side.bench.slot("t"), {FOLLOWER: to}))  # type: ignore[misc]
        pair.produce()
        leo = pair.short.bench.slot("t").state().leo
        pair.ask(_at(leo))
    assert pair.short.bench.slot("t").state().hw == 5


@pytest.mark.parametrize(
    "asked",
    [
        _at(3, last_epoch=1), _at(3, last_epoch=-1), _at(3, epoch=1), _at(3, epoch=-1), _at(3, log_start=1),
        _at(9), _at(-1), _at(1 << 62), _at(0, 1), _at(7, 2),
    ],
)  # fmt: skip
def test_another_request(pair: _Pair, asked: Any) -> None:
    pair.follow(0, 1)
    pair.end_wait()
    for one in (asked, _at(3), asked, asked, _at(3)):
        pair.ask(one)
        pair.end_wait()
    pair.ask()
    pair.ask(_at(3), forget=[])


@pytest.mark.parametrize("epoch", [0, 1, 99, -1])
def test_another_session_epoch_than_the_next(pair: _Pair, epoch: int) -> None:
    pair.follow()
    pair.produce()
    for _ in range(2):
        assert pair.ask(_at(4), epoch=epoch, wait_ms=0)
    if epoch > 0:
        assert pair.short.bench.slot("t").state().hw == 3, "of who comes out of turn nothing is believed"


def test_a_session_that_is_gone(pair: _Pair) -> None:
    pair.follow()
    pair.produce()
    pair.do(lambda side: side.bench.worker.sessions._sessions.clear())
    (answer,) = pair.ask(_at(4))
    assert errors.FETCH_SESSION_ID_NOT_FOUND.to_bytes(2, "big") in answer
    assert pair.short.bench.slot("t").state().hw == 3


@pytest.mark.parametrize("change", [{"forget": [("t", [0])]}, {"replica": 2}])
def test_another_connection_has_changed_the_session(pair: _Pair, change: dict[str, Any]) -> None:
    pair.follow(0, 1, version=12)
    pair.end_wait()
    for side in pair.both:
        own, side.client, broker = side.client, side.bench.connect(), side.broker
        side.broker = change.get("replica", broker)
        side.ask(_at(0, 1), forget=change.get("forget", []), wait_ms=0)
        side.answers()
        side.client, side.broker = own, broker
    pair.produce()
    for offset in (3, 4):
        pair.ask(_at(offset))
        pair.end_wait()


def test_what_was_found_but_not_told_comes_along(pair: _Pair) -> None:
    pair.follow(0, 1)
    pair.end_wait()
    pair.do(lambda side: lead(side.bench, [FOLLOWER, 2], [FOLLOWER, 2], index=1))
    pair.produce(10, 1)
    pair.ask(_at(1, 1))
    for offset in (3, 3):
        pair.end_wait()
        pair.ask(_at(offset))
    pair.do(lambda side: publish(side.bench, "t", 1, hw=1))
    assert pair.short.waiting
    (answer,) = pair.produce()
    assert b"partition_index=0" in answer
    assert b"partition_index=1" in answer


def test_news_of_other_partitions_come_along(pair: _Pair) -> None:
    pair.follow(0, 1, 2)
    assert pair.produce(10, 1)
    pair.ask(_at(3))
    pair.produce(10, 2)
    pair.produce()
    pair.ask(_at(1, 1))
    for offset in (4, 4):
        pair.ask(_at(offset))
    pair.do(lambda side: publish(side.bench, "t", 2, state=slots.OFFLINE))
    pair.same()
    pair.ask(_at(4))
    assert pair.short.remembered > 3


def test_who_is_served_goes_to_the_back_of_the_line(pair: _Pair) -> None:
    pair.follow(0, 1)
    for side in pair.both:
        (session,) = side.bench.worker.sessions._sessions.values()
        session.follower_partitions.move_to_end(next(key for key in session.parts if key[1] == 1))
        side.produce()
        assert [index for _, index in session.follower_partitions._partitions] == [1, 0]


def test_a_throttle_that_comes_into_force(pair: _Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.follow()
    second = time.monotonic_ns() // 1_000_000_000

    def throttle(side: _Side) -> None:
        monkeypatch.setitem(side.bench.values, LEADER.rate, 1)
        replicas.set_isr_status(side.bench.slot("t"), {FOLLOWER: OUT})
        for at in range(second, second + 20):
            side.bench.shared.traffic.add(LEADER.roles[-1], at, 1_000_000)
        side.bench.configure("t", leader_replication_throttled_replicas="*")

    pair.do(throttle)
    pair.produce()
    pair.end_wait()
    for _ in range(3):
        assert not any(b"xxxxxxxxxx" in answer for answer in pair.ask(_at(3), wait_ms=1) + pair.end_wait())


def test_a_topic_made_anew(pair: _Pair) -> None:
    pair.follow(version=12)

    pair.do(_Side.make_topic)
    pair.same()
    pair.end_wait()
    for offset in (3, 0, 0):
        pair.ask(_at(offset))
        pair.end_wait()
    pair.produce()
    assert any(b"x" * 10 in answer for answer in pair.ask(_at(0)))


def test_while_the_lock_is_taken_progress_waits_and_the_answer_does_not(pair: _Pair) -> None:
    pair.follow()
    pair.produce()
    side = pair.short
    with side.bench.held("t"):
        side.ask(_at(4))
        assert (side.waiting, side.remembered, side.bench.slot("t").state().hw) == (True, 4, 3)
    side.bench.turn(5)
    assert side.bench.slot("t").state().hw == 4


def test_idle_partitions_record_progress_periodically(pair: _Pair) -> None:
    pair.follow(0, 1)
    pair.end_wait()
    for side in pair.both:
        next(iter(side.bench.worker.sessions._sessions.values())).follower_partitions._refreshed -= 15
        slot = side.bench.slot("t", 1)
        slot.words[replicas.find(slot, FOLLOWER) + 4] = 5
    pair.ask(_at(3))
    for side in pair.both:
        (row, *_) = replicas.read(side.bench.slot("t", 1))
        assert row.caught_up_ms > 5


def test_a_fresh_high_watermark_is_told_soon_and_once(pair: _Pair, later: Callable[[float], None]) -> None:
    pair.follow()
    side = pair.short
    assert (side.waiting, side.bench.slot("t").state().hw) == (True, 3)
    side.bench.worker.followers.tick()
    assert side.waiting, "records may come any moment"
    later(follower_progress.PROGRESS_DELAY_S)
    pair.do(lambda one: one.bench.worker.followers.tick())
    (answer,) = pair.same()
    assert (3).to_bytes(8, "big") * 2 in answer
    pair.ask(_at(3))
    later(follower_progress.PROGRESS_DELAY_S)
    pair.do(lambda one: one.bench.worker.followers.tick())
    assert side.waiting, "it knows"


def test_where_records_keep_coming_nothing_is_told_without_them(pair: _Pair, later: Callable[[float], None]) -> None:
    pair.follow()
    side = pair.short
    for offset in range(4, 7):
        later(follower_progress.PROGRESS_DELAY_S)
        side.produce()
        assert len(side.answers()) == 1
        side.ask(_at(offset))
        side.bench.worker.followers.tick()
        assert side.waiting


def test_its_client_goes(pair: _Pair, later: Callable[[float], None]) -> None:
    pair.follow()
    side = pair.short
    side.client.sock.close()
    side.bench.turn(3)
    later(follower_progress.PROGRESS_DELAY_S)
    side.bench.worker.followers.tick()
    assert (len(side.bench.worker.purgatory), side.bench.worker.followers._scheduled) == (0, {})


def test_the_worker_drains(pair: _Pair) -> None:
    pair.follow()
    pair.do(lambda side: setattr(side.bench.worker, "draining", True))
    assert pair.end_wait()
    assert pair.ask(_at(3))


def test_what_a_waiting_follower_is_rung_for(pair: _Pair) -> None:
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


def test_the_high_watermark_alone_rings_no_waiting_follower(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    side, other = _Side(bench, True), roles.worker_role(1)
    side.make_topic()
    slot = bench.slot("t")
    rung: list[int] = []
    monkeypatch.setattr(bench.worker.catalog.log, "ring", rung.append)
    slot.wait(other, slots.GROWTH)
    side.producer.call(calls.produce_request("t", batches.batch([b"x"]), acks=1))
    assert rung == [other], "there is more"
    slot.wait(other, slots.GROWTH)
    side.ask(part(1), wait_ms=0)
    assert (slot.state().hw, rung) == (1, [other])
    slot.wait(other, slots.ANYTHING)
    side.producer.call(calls.produce_request("t", batches.batch([b"x"]), acks=1))
    slot.wait(other, slots.ANYTHING)
    side.ask(part(2), wait_ms=0, epoch=0)
    assert (slot.state().hw, rung) == (2, [other] * 3), "a consumer waits for it"


@pytest.mark.parametrize("seed", range(12))
def test_any_sequence(pair: _Pair, seed: int) -> None:
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
            pair.do(lambda side, to=row: replicas.set_isr_status(side.bench.slot("t"), to))  # type: ignore[misc]
        else:
            pair.end_wait()
            offset = pair.short.bench.slot("t").state().leo - chance.choice([0, 0, 0, 0, 1, 2, -1])
            wait_ms = chance.choice([LONG_WAIT, LONG_WAIT, 0])
            pair.ask(*([_at(offset)] if chance.randrange(6) else []), wait_ms=wait_ms)
    assert pair.short.remembered > 5


def _changed(which: int, state: slots.SlotState) -> dict[str, int]:
    epoch = 1 - state.leader_epoch
    return [
        {"hw": max(state.log_start, state.hw - 1)},
        {"hw": state.leo},
        {"unstable": max(state.log_start, state.leo - 1)},
        {"unstable": -1},
        {"log_start": min(state.hw, state.log_start + 1)},
        {"leader_epoch": epoch, "led_since": epoch, "epoch_noted": epoch},
        {"leader_epoch": 0, "led_since": 0, "epoch_noted": 0},
    ][which]
