"""Pipelined fetches, sent before the append of the former records; and appends that wait for the lock."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.interbroker import connection
from odradek.ipc.locks import PartitionLocks
from odradek.storage.log import append_as_follower
from odradek.storage.segment.epochs import EpochCache

from .leading import LEADER, Maker, PlayedLeader, caught_up, throttle


def offsets(leader: PlayedLeader) -> list[int]:
    """The fetched offsets, in order."""
    return [part.offset for request in leader.requests for part in request.parts]


@pytest.mark.parametrize("hw", [2, 1])
def test_next_fetch_is_sent_at_once_below_the_high_watermark(
    follow: Maker, leader: PlayedLeader, monkeypatch: pytest.MonkeyPatch, hw: int
) -> None:
    """The next fetch is in flight during an append, except above the high watermark."""
    real, under_way = append_as_follower.append, list[bool]()

    def append(partition: Any, *arguments: Any) -> int:
        (fetcher,) = follower.replicator._leaders.values()
        under_way.append(fetcher.link._busy)
        return real(partition, *arguments)

    monkeypatch.setattr(append_as_follower, "append", append)
    for _ in range(3):
        leader.append()
    leader.log().hw = hw
    follower = follow(replica_fetch_max_bytes=1)
    follower.turn_until(lambda: len(offsets(leader)) == 4, "a fetch from the log end")
    assert under_way[0] == (hw == 2)
    assert offsets(leader) == [0, 1, 2, 3]
    assert follower.content() == leader.log().content()
    assert follower.count_of("errors") == 0


def test_leader_gets_the_real_log_end_after_a_pipelined_fetch(follow: Maker, leader: PlayedLeader) -> None:
    """The records are corrupt, which the append finds after the next fetch was sent."""
    for _ in range(4):
        leader.append()
    first, end, sound = leader.log().batches[1]
    leader.log().batches[1] = (first, end, sound[:-1] + b"?")
    follower = follow(replica_fetch_max_bytes=1)
    follower.turn_until(lambda: follower.count_of("errors"), "the damage")
    assert follower.state().leo == 1
    follower.turn_until(lambda: 2 in offsets(leader), "what had left ahead of the log to arrive")
    follower.turn_until(lambda: offsets(leader)[-1] == 1, "a fetch of the same records")
    assert follower.state().leo == 1, "records after the corrupt ones were appended"
    leader.log().batches[1] = (first, end, sound)
    follower.turn_until(caught_up(follower, leader), "the log end")
    assert follower.content() == leader.log().content()


def test_locked_partition_with_a_pipelined_fetch(follow: Maker, leader: PlayedLeader) -> None:
    for _ in range(5):
        leader.append()
    follower = follow(replica_fetch_max_bytes=1)
    other = PartitionLocks(follower.run_dir / "partition.lock")
    assert other.try_lock(0)
    follower.turn_until(
        lambda: follower.count_of("lock_waits") > 3 and len(offsets(leader)) > 1,
        "the lock to be met, and a fetch beyond",
    )
    assert offsets(leader) == [0, 1]
    assert follower.state().leo == 0
    other.unlock(0)
    other.close()
    follower.turn_until(caught_up(follower, leader), "the log end")
    assert follower.content() == leader.log().content()
    assert follower.count_of("errors") == 0


def test_throttled_partition_is_not_fetched_before_it_is_counted(follow: Maker, leader: PlayedLeader) -> None:
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
    """The received records are appended all the same."""
    broken = list[int]()

    def send(self: connection.Link) -> None:
        if offsets(leader) == [0] and not broken:
            broken.append(1)
            self._lose(OSError(32, "Broken pipe"))
        else:
            real(self)

    real = connection.Link._send
    monkeypatch.setattr(connection.Link, "_send", send)
    for _ in range(3):
        leader.append()
    follower = follow(replica_fetch_max_bytes=1)
    follower.turn_until(caught_up(follower, leader), "the log end")
    assert broken
    assert offsets(leader)[:2] == [0, 1], "the second fetch must use a new connection"
    assert leader.connections == 2
    assert follower.content() == leader.log().content()


def test_records_of_a_locked_partition_are_kept_for_later(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow(count=2)
    follower.turn_until(lambda: len(leader.requests) >= 2, "the delayed fetch")
    other = PartitionLocks(follower.run_dir / "partition.lock")
    assert other.try_lock(0)
    leader.append(0, count=2)
    follower.turn_until(lambda: follower.count_of("lock_waits"), "the lock to be met")
    for _ in range(3):
        leader.append(1, count=3, value=b"another")
        follower.turn_until(lambda: follower.state(1).leo == leader.log(1).end, "the other's log end")
    assert follower.state(0).leo == 0
    held = [request for request in leader.requests if request.max_wait_ms < 100]
    assert held, "the next fetch must be delayed only briefly"
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


def test_records_kept_for_a_former_epoch_are_dropped(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow()
    follower.turn_until(lambda: len(leader.requests) >= 2, "the delayed fetch")
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
