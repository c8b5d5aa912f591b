"""The replicator over real shared memory, slots, logs and sockets; its leaders are played (leading.py)."""

from __future__ import annotations

import logging
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from odradek.broker import link, replicator
from odradek.broker.supervisor import STOP_ORDER, helpers
from odradek.cluster import following, throttles
from odradek.ipc import roles, slots
from odradek.ipc.doorbell import Ringer
from odradek.ipc.locks import PartitionLocks
from odradek.protocol import errors
from odradek.storage import follow as follow_storage
from odradek.storage.epochs import EpochCache

from .leading import LEADER, OWN, TOPIC_ID, Follower, PlayedLeader

KEY = (TOPIC_ID, 0)
Maker = Callable[..., Follower]


@pytest.fixture
def leader() -> Iterator[PlayedLeader]:
    played = PlayedLeader()
    yield played
    played.close()


@pytest.fixture
def follow(tmp_path: Path, leader: PlayedLeader) -> Iterator[Maker]:
    """Makes one follower of `leader`, unless told of others."""
    made: list[Follower] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    wakeup = signal.set_wakeup_fd(-1)

    def make(count: int = 1, leaders: dict[int, tuple[str, int]] | None = None, **settings: object) -> Follower:
        for index in range(count):
            leader.log(index)
        made.append(Follower(tmp_path, leaders or {LEADER: leader.address}, count, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()
    made.clear()
    signal.set_wakeup_fd(wakeup)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def caught_up(follower: Follower, leader: PlayedLeader, *indexes: int) -> Callable[[], bool]:
    return lambda: all(
        (follower.state(index).leo, follower.state(index).hw) == (leader.log(index).end,) * 2
        for index in indexes or [0]
    )


# -- throttles


def throttle(follower: Follower, text: str, isr: list[int]) -> None:
    follower.isr, follower.topic_config = isr, {throttles.FOLLOWER.replicas: text}
    follower.publish()


def test_who_is_behind_copies_no_faster_than_is_allowed(follow: Maker, leader: PlayedLeader) -> None:
    """A batch, which is too much for ten seconds; then nothing is asked of that partition, until the throttle goes."""
    follower = follow(count=2, follower_replication_throttled_rate=100, replica_fetch_max_bytes=1)
    throttle(follower, f"0:{OWN}", [LEADER])
    leader.append(value=b"x" * 2000)
    leader.append(value=b"x" * 2000)
    leader.append(1, count=3)
    follower.turn_until(caught_up(follower, leader, 1), "the log end of the other partition")
    follower.turn_for(0.5)
    assert (follower.state(0).leo, leader.log(0).end) == (1, 2)
    assert not any(part.partition == 0 for request in leader.requests[-2:] for part in request.parts)
    leader.append(1)
    follower.turn_until(caught_up(follower, leader, 1), "the next record of the other partition")
    throttle(follower, "", [LEADER])
    follower.turn_until(caught_up(follower, leader, 0), "the log end, without a throttle")


@pytest.mark.parametrize("isr", [[LEADER, OWN], [LEADER]])
def test_who_keeps_up_is_not_held_back(follow: Maker, leader: PlayedLeader, isr: list[int]) -> None:
    """In the ISR, or with all up to the high watermark."""
    follower = follow(follower_replication_throttled_rate=100)
    throttle(follower, "*", isr)
    leader.append(value=b"x" * 2000)
    follower.turn_until(caught_up(follower, leader), "the leader's log end")
    for _ in range(3):
        leader.append(value=b"x" * 2000)
        follower.turn_until(caught_up(follower, leader), "the leader's log end, however much that is", seconds=3)


def test_a_throttle_of_other_brokers(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow(follower_replication_throttled_rate=100, replica_fetch_max_bytes=1)
    throttle(follower, f"0:{LEADER}", [LEADER])
    for _ in range(3):
        leader.append(value=b"x" * 2000)
    follower.turn_until(caught_up(follower, leader), "the leader's log end", seconds=3)


# -- copying


def test_copies_a_log_byte_by_byte(follow: Maker, leader: PlayedLeader) -> None:
    for count in (3, 1, 10):
        leader.append(count=count)
    follower = follow()
    follower.turn_until(caught_up(follower, leader), "the leader's log end")
    leader.append(count=2)
    follower.turn_until(caught_up(follower, leader), "the leader's next batch")
    assert follower.content() == leader.log().content()
    assert follower.state().leo == 16
    assert (follower.count_of("messages_in"), follower.count_of("bytes_in")) == (16, len(follower.content()))
    assert follower.count_of("appends") == 2
    follower.turn_until(lambda: follower.count_of("fetch_requests") == len(leader.requests) == 3, "the parked fetch")
    assert follower.count_of("connections") == leader.connections == 1


def test_asks_with_its_log_end_and_last_epoch(follow: Maker, leader: PlayedLeader) -> None:
    leader.log().epoch = 2
    leader.append(epoch=1)
    leader.append(epoch=2)
    follower = follow()
    follower.lead(0, LEADER, 2)
    follower.turn_until(lambda: len(leader.requests) >= 3, "a second fetch")
    first, second, third = ([part[2:6] for part in request.parts] for request in leader.requests[:3])
    assert first == [(2, 0, -1, 0)]
    assert second == [(2, 2, 2, 0)]
    assert third == [], "what the leader knows already is not said again"
    assert leader.requests[0].replica == OWN
    assert [request.session_epoch for request in leader.requests[:3]] == [0, 1, 2]
    follower.lead(0, LEADER, 3)
    follower.turn_until(lambda: leader.requests[-1].parts and len(leader.requests) > 3, "a fetch in the next epoch")
    assert leader.requests[-1].parts[0][2:6] == (3, 2, 2, 0), "its checkpoint tells the epoch of the last record"


def test_records_are_on_their_way_within_the_turn(follow: Maker, leader: PlayedLeader) -> None:
    """A parked fetch is answered, appended, and the next one is there, without another turn of the loop."""
    follower = follow()
    follower.turn_until(lambda: len(leader.requests) == 2, "the parked fetch")
    leader.append()
    while not caught_up(follower, leader)():
        follower.replicator.turn(1000)
    deadline = time.monotonic() + 10
    while len(leader.requests) < 3 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert [part.offset for part in leader.requests[2].parts] == [1]


def test_many_partitions_share_a_connection(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow(count=40)
    for index in range(40):
        for _ in range(index % 4):
            leader.append(index)
    follower.turn_until(caught_up(follower, leader, *range(40)), "all log ends")
    for index in range(40):
        assert follower.content(index) == leader.log(index).content()
    assert leader.connections == 1


def test_fetchers_spread_the_partitions(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow(count=9, num_replica_fetchers=3)
    follower.turn_until(lambda: len(leader.first_epochs) == 3, "three connections")
    asked = [{part.partition for part in request.parts} for request in leader.requests if not request.session_epoch]
    assert sorted(map(len, asked)) == [3, 3, 3]
    assert set().union(*asked) == set(range(9))
    assert leader.connections == 3


def test_two_leaders(follow: Maker, leader: PlayedLeader) -> None:
    other = PlayedLeader()
    other.log(1).epoch = 1
    other.append(1, count=5)
    leader.append(0, count=3)
    follower = follow(count=2, leaders={LEADER: leader.address, 2: other.address})
    follower.lead(1, 2, 1)
    follower.turn_until(lambda: (follower.state(0).leo, follower.state(1).leo) == (3, 5), "both log ends")
    other.close()


def test_an_answer_larger_than_usual(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow(replica_fetch_response_max_bytes=1000, replica_fetch_max_bytes=1000)
    leader.append(value=b"y" * (3 << 20))
    leader.append()
    follower.turn_until(caught_up(follower, leader), "a batch of 3 MiB")
    assert follower.content() == leader.log().content()


def test_an_idle_fetch_names_no_partition_and_takes_no_lock(
    follow: Maker, leader: PlayedLeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = follow(count=300, replica_fetch_wait_max_ms=20)
    follower.turn_until(lambda: len(leader.requests) > 2, "the session")
    locked: list[int] = []
    monkeypatch.setattr("odradek.storage.partition.Partition.acquire", lambda self: locked.append(self.index))
    before = len(leader.requests)
    follower.turn_until(lambda: len(leader.requests) > before + 10, "idle fetches")
    assert all(not request.parts and not request.forgotten for request in leader.requests[before:])
    assert locked == []


def test_the_high_watermark_follows_the_leaders(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow()
    leader.log().hw = 0
    leader.append(count=4)
    follower.turn_until(lambda: follower.state().leo == 4, "the records")
    assert follower.state().hw == 0
    for told, expected in ((2, 2), (100, 4), (3, 4)):
        leader.log().hw = told
        leader.changed()
        before = len(leader.requests)
        follower.turn_until(lambda before=before: len(leader.requests) >= before + 2, "the next fetch")  # type: ignore[misc]
        assert follower.state().hw == expected


def test_the_log_start_follows_the_leaders(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow()
    leader.append(count=4)
    follower.turn_until(caught_up(follower, leader), "the records")
    with leader.lock:
        leader.log().start = 4
    leader.append()
    follower.turn_until(lambda: follower.state().log_start == 4, "the log start")
    with leader.lock:
        leader.log().start = 5
    leader.changed()
    follower.turn_until(lambda: follower.state().log_start == 5, "the log start without records")
    follower.turn_until(
        lambda: [part.log_start for request in leader.requests for part in request.parts][-1] == 5, "a fetch that tells"
    )


# -- who is followed


def test_follows_only_others(follow: Maker, leader: PlayedLeader) -> None:
    """Not what it leads itself, what nobody leads, what a dead broker leads, nor what is not a follower here."""
    follower = follow(count=5)
    for index, led_by in enumerate((OWN, -1, 9, LEADER, LEADER)):
        follower.led_by[index] = led_by
    follower.change(3, state=slots.OFFLINE)
    follower.publish()
    follower.turn_until(lambda: leader.requests, "a fetch")
    follower.turn_for(0.3)
    assert {part.partition for request in leader.requests for part in request.parts} == {4}


def test_a_new_leader_is_followed_at_once_when_rung(follow: Maker, leader: PlayedLeader) -> None:
    other = PlayedLeader()
    other.log().epoch = 1
    other.append(count=5)
    follower = follow(leaders={LEADER: leader.address, 2: other.address})
    follower.turn_until(lambda: len(leader.requests) == 2, "the parked fetch")
    follower.lead(0, 2, 1)
    Ringer(follower.run_dir).ring(roles.REPLICATOR)
    began = time.monotonic()
    follower.turn_until(caught_up(follower, other), "the new leader's log end")
    assert time.monotonic() - began < 5
    assert other.requests[0].parts[0].leader_epoch == 1
    assert follower.count_of("connections") == 1
    other.close()


def test_a_leader_that_moves_to_another_address(follow: Maker, leader: PlayedLeader) -> None:
    other = PlayedLeader()
    other.append(count=5)
    follower = follow()
    follower.turn_until(lambda: len(leader.requests) == 2, "the parked fetch")
    follower.leaders[LEADER] = other.address
    follower.publish()
    follower.turn_until(caught_up(follower, other), "the log end at the new address")
    other.close()


def test_an_answer_to_a_former_epoch_is_dropped(
    follow: Maker, leader: PlayedLeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slot moves on while the answer is under way, and the replicator has not noticed."""
    monkeypatch.setattr(replicator, "LOOK_MS", 3_600_000)
    follower = follow()
    follower.turn_until(lambda: len(leader.requests) == 2, "the parked fetch")
    follower.change(leader_epoch=1)
    leader.append()
    follower.turn_until(lambda: len(leader.requests) > 2 and leader.requests[2].parts, "a fetch in the new epoch")
    assert follower.state().leo == 0
    assert leader.requests[2].parts[0][2:4] == (1, 0)
    leader.log().epoch = 1
    follower.turn_until(caught_up(follower, leader), "the log end")


def test_a_partition_that_this_broker_leads_now_is_left_alone(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow(count=2)
    follower.turn_until(lambda: len(leader.requests) == 2, "the parked fetch")
    follower.change(0, state=slots.LEADER)
    leader.append(0)
    leader.append(1)
    follower.turn_until(caught_up(follower, leader, 1), "the other's log end")
    assert follower.state(0).leo == 0
    follower.turn_until(
        lambda: KEY in [key for request in leader.requests for key in request.forgotten], "its oblivion"
    )


def test_a_deleted_topic(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow()
    follower.turn_until(lambda: len(leader.requests) == 2, "the parked fetch")
    follower.shared.slots[0].update(state=slots.DELETING)
    leader.append()
    follower.turn_for(0.5)
    assert follower.shared.slots[0].state().leo == 0
    follower.count = 0
    follower.publish()
    follower.turn_until(lambda: follower.count_of("connections") == 0, "the connection's end")


def test_a_partition_that_recovers_later(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow()
    follower.change(state=slots.RECOVERING)
    leader.append()
    follower.turn_for(0.1)
    assert not leader.requests
    follower.change(state=slots.FOLLOWER)
    follower.turn_until(caught_up(follower, leader), "the log end")


# -- the next fetch before the records are in the log


def offsets(leader: PlayedLeader) -> list[int]:
    """Those that have been asked for, in order."""
    return [part.offset for request in leader.requests for part in request.parts]


@pytest.mark.parametrize("hw", [2, 1])
def test_what_lies_below_the_high_watermark_is_asked_beyond_at_once(
    follow: Maker, leader: PlayedLeader, monkeypatch: pytest.MonkeyPatch, hw: int
) -> None:
    """A fetch of the records behind it is under way while one is appended; not of those that nobody else may have."""
    real, under_way = follow_storage.append, list[int]()

    def append(partition: Any, *arguments: Any) -> int:
        deadline = time.monotonic() + (0.1 if hw == 1 else 10)
        while len(offsets(leader)) < 2 and time.monotonic() < deadline:
            time.sleep(0.001)
        under_way.append(offsets(leader)[-1])
        return real(partition, *arguments)

    monkeypatch.setattr(follow_storage, "append", append)
    for _ in range(3):
        leader.append()
    leader.log().hw = hw
    follower = follow(replica_fetch_max_bytes=1)
    follower.turn_until(lambda: len(offsets(leader)) == 4, "a fetch from the log end")
    assert under_way[0] == (1 if hw == 2 else 0)
    assert offsets(leader) == [0, 1, 2, 3]
    assert follower.content() == leader.log().content()
    assert follower.count_of("errors") == 0


def test_the_leader_hears_the_truth_after_a_fetch_that_was_ahead_of_it(follow: Maker, leader: PlayedLeader) -> None:
    """The records are corrupt: it is known only when the next fetch has left."""
    for _ in range(4):
        leader.append()
    first, end, sound = leader.log().batches[1]
    leader.log().batches[1] = (first, end, sound[:-1] + b"?")
    follower = follow(replica_fetch_max_bytes=1)
    follower.turn_until(lambda: follower.count_of("errors"), "the damage")
    assert follower.state().leo == 1
    follower.turn_until(lambda: 2 in offsets(leader), "what had left ahead of the log to arrive")
    follower.turn_until(lambda: offsets(leader)[-1] == 1, "a fetch of the same records")
    assert follower.state().leo == 1, "what came behind them was not used"
    leader.log().batches[1] = (first, end, sound)
    follower.turn_until(caught_up(follower, leader), "the log end")
    assert follower.content() == leader.log().content()


def test_a_locked_partition_that_was_asked_beyond(follow: Maker, leader: PlayedLeader) -> None:
    for _ in range(5):
        leader.append()
    follower = follow(replica_fetch_max_bytes=1)
    other = PartitionLocks(follower.run_dir / "partition.lock")
    assert other.try_lock(0)
    follower.turn_until(lambda: follower.count_of("lock_waits") > 3, "the lock to be met")
    assert offsets(leader) == [0, 1]
    assert follower.state().leo == 0
    other.unlock(0)
    other.close()
    follower.turn_until(caught_up(follower, leader), "the log end")
    assert follower.content() == leader.log().content()
    assert follower.count_of("errors") == 0


def test_who_is_throttled_asks_for_nothing_before_it_has_counted(follow: Maker, leader: PlayedLeader) -> None:
    for _ in range(3):
        leader.append()
    follower = follow(replica_fetch_max_bytes=1, follower_replication_throttled_rate=1 << 30)
    throttle(follower, "*", [LEADER])
    other = PartitionLocks(follower.run_dir / "partition.lock")
    assert other.try_lock(0)
    follower.turn_until(lambda: follower.count_of("lock_waits") > 3, "the lock to be met")
    assert offsets(leader) == [0]
    other.unlock(0)
    other.close()


def test_a_connection_that_breaks_under_a_fetch_ahead(
    follow: Maker, leader: PlayedLeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records in hand are used all the same."""
    broken = list[int]()

    def send(self: link.Link) -> None:
        if offsets(leader) == [0] and not broken:
            broken.append(1)
            self._lose(OSError(32, "Broken pipe"))
        else:
            real(self)

    real = link.Link._send
    monkeypatch.setattr(link.Link, "_send", send)
    for _ in range(3):
        leader.append()
    follower = follow(replica_fetch_max_bytes=1)
    follower.turn_until(caught_up(follower, leader), "the log end")
    assert broken
    assert offsets(leader)[:2] == [0, 1], "the second over another connection"
    assert leader.connections == 2
    assert follower.content() == leader.log().content()


# -- somebody has the lock


def test_what_is_locked_is_kept_while_the_others_go_on(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow(count=2)
    follower.turn_until(lambda: len(leader.requests) == 2, "the parked fetch")
    other = PartitionLocks(follower.run_dir / "partition.lock")
    assert other.try_lock(0)
    leader.append(0, count=2)
    follower.turn_until(lambda: follower.count_of("lock_waits"), "the lock to be met")
    for _ in range(3):
        leader.append(1, count=3, value=b"another")
        follower.turn_until(lambda: follower.state(1).leo == leader.log(1).end, "the other's log end")
    assert follower.state(0).leo == 0
    held = [request for request in leader.requests if request.max_wait_ms < 100]
    assert held, "the leader is asked again soon"
    sent = sum(1 for request in leader.requests for part in request.parts if part.partition == 0)
    other.unlock(0)
    other.close()
    follower.turn_until(caught_up(follower, leader, 0, 1), "what was kept")
    follower.turn_until(
        lambda: sum(1 for request in leader.requests for part in request.parts if part.partition == 0) > sent,
        "a fetch behind what was kept",
    )
    assert follower.content(0) == leader.log(0).content()
    assert follower.count_of("errors") == 0
    assert all(part.offset in (0, 2) for request in leader.requests for part in request.parts if part.partition == 0)


def test_what_is_kept_for_a_former_epoch_is_dropped(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow()
    follower.turn_until(lambda: len(leader.requests) == 2, "the parked fetch")
    other = PartitionLocks(follower.run_dir / "partition.lock")
    assert other.try_lock(0)
    leader.append(count=2)
    follower.turn_until(lambda: follower.count_of("lock_waits"), "the lock to be met")
    slot = follower.shared.slots[0]
    slot.publish(slot.state()._replace(leader_epoch=1))
    other.unlock(0)
    other.close()
    with leader.lock:
        leader.log().epoch = 1
        leader.log().batches.clear()
        leader.log().epochs = EpochCache()
    leader.append(count=1, value=b"another")
    follower.turn_until(caught_up(follower, leader), "the log end")
    assert follower.content() == leader.log().content()


# -- logs that differ


def test_a_log_that_has_diverged_is_cut_where_it_has(follow: Maker, leader: PlayedLeader) -> None:
    """Three batches of epoch 0 in common, then two of each one's own; the former leader's were never committed."""
    for _ in range(3):
        leader.append(epoch=0)
    leader.log().hw = 3
    for _ in range(2):
        leader.append(epoch=1, value=b"never committed")
    leader.log().epoch = 1
    follower = follow()
    follower.lead(0, LEADER, 1)
    follower.turn_until(lambda: follower.state().leo == 5, "the log end")
    with leader.lock:
        log = leader.log()
        del log.batches[3:]
        log.epochs, log.epoch = EpochCache([(0, 0)]), 2
        log.append(count=3, value=b"the truth")
        log.hw = -1
    follower.lead(0, LEADER, 2)
    follower.turn_until(caught_up(follower, leader), "the new leader's log end")
    assert follower.content() == leader.log().content()
    assert [tuple(one) for one in EpochCache.read(follower.partition().directory).entries] == [(0, 0), (2, 3)]
    assert not leader.sought


def test_a_cut_below_the_high_watermark_is_told(
    follow: Maker, leader: PlayedLeader, caplog: pytest.LogCaptureFixture
) -> None:
    leader.append(count=1)
    leader.append(count=4, epoch=1)
    leader.log().epoch = 1
    follower = follow()
    follower.lead(0, LEADER, 1)
    follower.turn_until(caught_up(follower, leader), "the log end")
    with leader.lock:
        log = leader.log()
        del log.batches[1:]
        log.epochs, log.epoch = EpochCache([(0, 0)]), 2
        log.append(count=1, value=b"an unclean leader's")
    follower.lead(0, LEADER, 2)
    follower.turn_until(lambda: follower.content() == leader.log().content(), "the new leader's log")
    assert (follower.state().leo, follower.state().hw) == (2, 2)
    assert "t-0: truncated to offset 1, below the high watermark 5" in caplog.text


def test_a_log_beyond_the_leaders_is_cut(follow: Maker, leader: PlayedLeader) -> None:
    """The same epoch, fewer records, and no epochs: a leader that lost its disk's last writes."""
    for _ in range(5):
        leader.append()
    follower = follow()
    follower.turn_until(caught_up(follower, leader), "the log end")
    with leader.lock:
        leader.log().epoch = 1
        del leader.log().batches[2:]
    follower.lead(0, LEADER, 1)
    follower.turn_until(lambda: follower.content() == leader.log().content(), "the leader's log")
    assert follower.state().leo == 2
    leader.append()
    follower.turn_until(caught_up(follower, leader), "the next batch")


def test_a_log_that_ends_before_the_leaders_begins_anew(
    follow: Maker, leader: PlayedLeader, caplog: pytest.LogCaptureFixture
) -> None:
    leader.append(count=5)
    follower = follow()
    follower.turn_until(caught_up(follower, leader), "the log end")
    with leader.lock:
        log = leader.log()
        log.append(count=100)
        log.append(count=7)
        log.start = 105
        del log.batches[:2]
        log.error = errors.NOT_LEADER_OR_FOLLOWER
    follower.turn_until(lambda: KEY in leader.requests[-1].forgotten or not leader.requests[-1].parts, "a pause")
    leader.log().error = 0
    follower.turn_until(lambda: follower.state().leo == 112, "the log end")
    assert follower.state().log_start == 105
    assert follower.content() == leader.log().content()


def test_out_of_range_is_asked_about(follow: Maker, leader: PlayedLeader) -> None:
    """Its epoch tells the leader nothing: the log is empty, but does not begin where the leader's does."""
    with leader.lock:
        leader.log().start = 50
    leader.append(count=3)
    follower = follow()
    follower.turn_until(caught_up(follower, leader), "the log end")
    assert leader.sought == [-1, -2]
    assert (follower.state().log_start, follower.state().leo) == (50, 53)


# -- errors


@pytest.mark.parametrize("error", [errors.NOT_LEADER_OR_FOLLOWER, errors.UNKNOWN_TOPIC_ID, errors.KAFKA_STORAGE_ERROR])
def test_a_part_in_error_is_left_out_for_a_while(
    follow: Maker, leader: PlayedLeader, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    monkeypatch.setattr(following, "FIRST_LEAVE_MS", 200)
    follower = follow(count=2)
    leader.log(0).error = error
    leader.append(0)
    leader.append(1)
    began = time.monotonic()
    follower.turn_until(caught_up(follower, leader, 1), "the other's log end")
    assert follower.state(0).leo == 0
    leader.log(0).error = 0
    follower.turn_until(caught_up(follower, leader, 0), "the log end")
    assert time.monotonic() - began >= 0.2
    assert leader.connections == 1


def test_new_metadata_end_the_pause(follow: Maker, leader: PlayedLeader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "FIRST_LEAVE_MS", 3_600_000)
    follower = follow(replica_fetch_backoff_ms=3_600_000)
    leader.log().error = errors.NOT_LEADER_OR_FOLLOWER
    leader.append()
    follower.turn_until(lambda: leader.requests, "a fetch")
    follower.turn_for(0.1)
    leader.log().error = 0
    follower.publish()
    follower.turn_until(caught_up(follower, leader), "the log end")


def test_corrupt_records_are_not_appended(
    follow: Maker, leader: PlayedLeader, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        leader.append()
    first, end, sound = leader.log().batches[1]
    leader.log().batches[1] = (first, end, sound[:-1] + b"?")
    follower = follow()
    follower.turn_until(lambda: follower.count_of("errors") == 2, "two attempts")
    assert follower.state().leo == 1, "what is before the damage"
    assert "again in 200 ms" in caplog.text
    assert "again in 400 ms" in caplog.text
    leader.log().batches[1] = (first, end, sound)
    follower.turn_until(caught_up(follower, leader), "the log end")
    assert follower.content() == leader.log().content()
    leader.append()
    first, end, sound = leader.log().batches[3]
    leader.log().batches[3] = (first, end, sound[:-1] + b"?")
    leader.changed()
    follower.turn_until(lambda: follower.count_of("errors") > 2, "another attempt")
    assert caplog.text.count("again in 200 ms") == 2, "the first time in a row"


def test_a_session_that_the_leader_forgets(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow()
    follower.turn_until(lambda: len(leader.requests) == 2, "the parked fetch")
    for error in (errors.FETCH_SESSION_ID_NOT_FOUND, errors.INVALID_FETCH_SESSION_EPOCH):
        leader.session_error = error
        leader.append()
        follower.turn_until(caught_up(follower, leader), "the log end")
        leader.append()
        follower.turn_until(caught_up(follower, leader), "the log end after it")
    assert sum(not request.session_epoch for request in leader.requests) == 3
    assert leader.connections == 1


# -- the connection


def test_a_lost_connection_comes_again(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow()
    follower.turn_until(lambda: len(leader.requests) == 2, "the parked fetch")
    for number in range(2, 5):
        leader.append()
        leader.hang_up()
        follower.turn_until(lambda number=number: leader.connections == number, "another connection")  # type: ignore[misc]
        follower.turn_until(caught_up(follower, leader), "the log end")
    assert follower.content() == leader.log().content()
    assert set(leader.first_epochs) == {0}, "sessions begin anew"


def test_new_metadata_end_the_wait_for_a_connection(
    follow: Maker, leader: PlayedLeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "AGAIN_MS", 3_600_000)
    monkeypatch.setattr(link, "LONGEST_MS", 3_600_000)
    follower = follow()
    follower.turn_until(lambda: len(leader.requests) == 2, "the parked fetch")
    leader.append()
    leader.hang_up()
    follower.turn_until(lambda: follower.count_of("errors") == 1, "the loss")
    follower.turn_for(0.3)
    assert leader.connections == 1
    follower.publish()
    follower.turn_until(caught_up(follower, leader), "the log end")


def test_a_leader_that_is_not_there_yet(follow: Maker, leader: PlayedLeader, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        address = nobody.getsockname()[:2]
    follower = follow(leaders={LEADER: address})
    follower.turn_for(0.5)
    assert caplog.text.count("Connection refused") == 1, "said once"
    assert 3 <= follower.count_of("errors") <= 8, "20 + 40 + 80 + … ms"
    follower.leaders[LEADER] = leader.address
    leader.append()
    follower.publish()
    follower.turn_until(caught_up(follower, leader), "the log end")


def test_a_host_by_name(follow: Maker, leader: PlayedLeader) -> None:
    leader.append()
    follower = follow(leaders={LEADER: ("localhost", leader.address[1])})
    follower.turn_until(caught_up(follower, leader), "the log end")


def test_a_host_that_has_no_address(follow: Maker, leader: PlayedLeader, caplog: pytest.LogCaptureFixture) -> None:
    follower = follow(leaders={LEADER: ("no.such.host.invalid", 1)})
    follower.turn_until(lambda: "leader 1 at no.such.host.invalid:1: " in caplog.text, "the reason in the log")


def test_a_leader_that_does_not_answer(follow: Maker, leader: PlayedLeader, caplog: pytest.LogCaptureFixture) -> None:
    leader.silent = True
    leader.append()
    follower = follow(replica_socket_timeout_ms=100, replica_fetch_wait_max_ms=50)
    follower.turn_until(lambda: leader.connections == 2, "another connection")
    assert "no answer within 100 ms" in caplog.text
    leader.silent = False
    follower.turn_until(caught_up(follower, leader), "the log end")


def _short(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame) - 10) + frame[4:-6]


MANGLED: dict[str, Callable[[bytes], bytes]] = {
    "cut short": _short,
    "too long": lambda frame: struct.pack(">i", len(frame)) + frame[4:] + b"\0" * 4,
    "another's answer": lambda frame: frame[:4] + b"\0\0\0\x63" + frame[8:],
    "huge": lambda frame: b"\x7f\xff\xff\xff" + frame[4:],
    "negative": lambda frame: b"\xff\xff\xff\xff" + frame[4:],
    "empty": lambda frame: bytes(4),
    "two": lambda frame: frame + frame,
    "garbage": lambda frame: struct.pack(">i", 1000) + b"\xff" * 1000,
}


@pytest.mark.parametrize("how", MANGLED)
def test_a_malformed_answer_closes_the_connection(
    follow: Maker, leader: PlayedLeader, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    caplog.set_level(logging.WARNING)
    leader.mangle = MANGLED[how]
    leader.append()
    follower = follow()
    follower.turn_until(lambda: leader.connections >= 3, "another connection")
    assert len(caplog.records) == 1, "one line"
    leader.mangle = lambda frame: frame
    follower.turn_until(caught_up(follower, leader), "the log end")
    assert follower.content() == leader.log().content()


def test_answers_in_small_pieces(follow: Maker, leader: PlayedLeader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link.Frame, "room", property(lambda self: _frame_room(self)[:3]))
    for _ in range(3):
        leader.append(count=2)
    follower = follow()
    follower.turn_until(caught_up(follower, leader), "the log end")
    assert follower.content() == leader.log().content()


_frame_room = link.Frame.room.fget  # type: ignore[attr-defined]


def test_a_large_buffer_is_given_back() -> None:
    frame = link.Frame(link.Limits(1 << 20, 2 << 20, 1000, -1))

    def receive(size: int) -> int:
        data = struct.pack(">i", size) + bytes(size)
        while data:
            room = len(frame.room)
            frame.room[: len(data[:room])] = data[:room]
            frame.take(len(data[:room]))
            data = data[room:]
        assert frame.whole
        used = len(frame._buffer)
        frame.clear()
        return used

    assert receive(100) == link.SMALL
    assert receive(link.SMALL) == 1 << 20
    assert [receive(100) for _ in range(link.SMALL_IN_A_ROW)] == [1 << 20] * link.SMALL_IN_A_ROW
    assert receive(100) == link.SMALL
    assert receive(3 << 19) == (3 << 19) + 4
    assert receive(100) == link.SMALL


# -- the role


def test_only_a_cluster_has_one() -> None:
    assert roles.REPLICATOR not in helpers({"zookeeper.connect": None})
    assert roles.REPLICATOR not in helpers({"zookeeper.connect": ""})
    assert roles.REPLICATOR in helpers({"zookeeper.connect": "localhost:2181"})
    stages = [stage for stage, _ in STOP_ORDER]
    assert stages.index((roles.REPLICATOR,)) < stages.index((roles.JANITOR,))
    assert stages[stages.index((roles.REPLICATOR,)) - 1] != (roles.ACCEPTOR,)
