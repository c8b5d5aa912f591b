"""Copies are limited by `follower.replication.throttled.rate`."""

from __future__ import annotations

import pytest

from odradek.cluster.replication import throttles

from .leading import LEADER, OWN, Jump, Maker, PlayedLeader, caught_up, throttle


def test_lagging_follower_is_throttled(follow: Maker, leader: PlayedLeader, jump: Jump) -> None:
    """A batch exceeds the rate for ten seconds; the partition is not fetched until the throttle is removed."""
    follower = follow(count=2, follower_replication_throttled_rate=100, replica_fetch_max_bytes=1)
    throttle(follower, f"0:{OWN}", [LEADER])
    leader.append(value=b"x" * 2000)
    leader.append(value=b"x" * 2000)
    leader.append(1, count=3)
    follower.turn_until(caught_up(follower, leader, 1), "the log end of the other partition")
    for _ in range(3):
        jump(throttles.PAUSE_MS)
        leader.append(1)
        follower.turn_until(caught_up(follower, leader, 1), "the next record of the other partition")
    assert (follower.state(0).leo, leader.log(0).end) == (1, 2)
    assert not any(part.partition == 0 for request in leader.requests[-2:] for part in request.parts)
    throttle(follower, "", [LEADER])
    follower.turn_until(caught_up(follower, leader, 0), "the log end, without a throttle")


@pytest.mark.parametrize("isr", [[LEADER, OWN], [LEADER]])
def test_follower_in_sync_is_not_throttled(follow: Maker, leader: PlayedLeader, isr: list[int]) -> None:
    """In the ISR, or with all records up to the high watermark."""
    follower = follow(follower_replication_throttled_rate=100)
    throttle(follower, "*", isr)
    leader.append(value=b"x" * 2000)
    follower.turn_until(caught_up(follower, leader), "the leader's log end")
    for _ in range(3):
        leader.append(value=b"x" * 2000)
        follower.turn_until(caught_up(follower, leader), "the leader's log end, however much that is", seconds=8)


def test_a_throttle_of_other_brokers(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow(follower_replication_throttled_rate=100, replica_fetch_max_bytes=1)
    throttle(follower, f"0:{LEADER}", [LEADER])
    for _ in range(3):
        leader.append(value=b"x" * 2000)
    follower.turn_until(caught_up(follower, leader), "the leader's log end", seconds=8)
