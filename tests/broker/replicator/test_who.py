"""The choice of leaders to fetch from, while leaders and assignments change."""

from __future__ import annotations

import pytest

from odradek.broker.replicator import replicator
from odradek.ipc import roles, slots
from odradek.ipc.doorbell import Ringer

from .leading import LEADER, LONG_POLL, OWN, TOPIC_ID, Maker, PlayedLeader, caught_up

KEY = (TOPIC_ID, 0)


def test_follows_only_others(follow: Maker, leader: PlayedLeader) -> None:
    """Not partitions that this broker leads, without a leader, with a dead leader, or without a replica here."""
    follower = follow(count=5)
    for index, led_by in enumerate((OWN, -1, 9, LEADER, LEADER)):
        follower.led_by[index] = led_by
    follower.change(3, state=slots.OFFLINE)
    follower.publish()
    for _ in range(3):
        leader.append(4)
        follower.turn_until(caught_up(follower, leader, 4), "the log end of the one that it follows")
    assert {part.partition for request in leader.requests for part in request.parts} == {4}


def test_a_new_leader_is_followed_at_once_when_rung(
    follow: Maker, leader: PlayedLeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicator, "LOOK_MS", 3_600_000)
    other = PlayedLeader()
    other.log().epoch = 1
    other.append(count=5)
    follower = follow(leaders={LEADER: leader.address, 2: other.address})
    follower.turn_until(lambda: len(leader.requests) >= 2, "the delayed fetch")
    follower.lead(0, 2, 1)
    Ringer(follower.run_dir).ring(roles.REPLICATOR)
    follower.turn_until(caught_up(follower, other), "the new leader's log end")
    assert other.requests[0].parts[0].leader_epoch == 1
    assert follower.count_of("connections") == 1
    other.close()


def test_a_leader_that_moves_to_another_address(follow: Maker, leader: PlayedLeader) -> None:
    other = PlayedLeader()
    other.append(count=5)
    follower = follow()
    follower.turn_until(lambda: len(leader.requests) >= 2, "the delayed fetch")
    follower.leaders[LEADER] = other.address
    follower.publish()
    follower.turn_until(caught_up(follower, other), "the log end at the new address")
    other.close()


def test_an_answer_to_a_former_epoch_is_dropped(
    follow: Maker, leader: PlayedLeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slot changes during the fetch, unnoticed by the replicator."""
    monkeypatch.setattr(replicator, "LOOK_MS", 3_600_000)
    follower = follow(**LONG_POLL)
    follower.turn_until(lambda: len(leader.requests) >= 2, "the delayed fetch")
    follower.change(leader_epoch=1)
    leader.append()
    follower.turn_until(lambda: len(leader.requests) > 2 and leader.requests[2].parts, "a fetch in the new epoch")
    assert follower.state().leo == 0
    assert leader.requests[2].parts[0][2:4] == (1, 0)
    leader.log().epoch = 1
    follower.turn_until(caught_up(follower, leader), "the log end")


def test_a_partition_that_this_broker_leads_now_is_left_alone(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow(count=2)
    follower.turn_until(lambda: len(leader.requests) >= 2, "the delayed fetch")
    follower.change(0, state=slots.LEADER)
    leader.append(0)
    leader.append(1)
    follower.turn_until(caught_up(follower, leader, 1), "the other's log end")
    assert follower.state(0).leo == 0
    follower.turn_until(
        lambda: KEY in [key for request in leader.requests for key in request.forgotten], "its oblivion"
    )


def test_a_deleted_topic(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow(count=2)
    follower.turn_until(lambda: len(leader.requests) >= 2, "the delayed fetch")
    follower.shared.slots[0].update(state=slots.DELETING)
    for _ in range(3):
        leader.append(0)
        leader.append(1)
        follower.turn_until(caught_up(follower, leader, 1), "the log end of another partition")
    assert follower.shared.slots[0].state().leo == 0
    follower.count = 0
    follower.publish()
    follower.turn_until(lambda: follower.count_of("connections") == 0, "the connection's end")


def test_a_partition_that_recovers_later(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow(count=2)
    follower.change(0, state=slots.RECOVERING)
    for _ in range(3):
        leader.append(0)
        leader.append(1)
        follower.turn_until(caught_up(follower, leader, 1), "the log end of another partition")
    assert {part.partition for request in leader.requests for part in request.parts} == {1}
    follower.change(0, state=slots.FOLLOWER)
    follower.turn_until(caught_up(follower, leader, 0), "the log end")
