"""The group state machine: states, sessions, leaving, and bounds on what one client can store in a group."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.groups import group as group_module
from odradek.groups.events import LeavingMember
from odradek.groups.group import MOST_SUBSCRIBED, TRANSITIONS, State, subscription_topics
from odradek.groups.member import Member
from odradek.protocol.errors import Error

from ..harness.effort import lines
from .rebalances import DELAY, SESSION, state
from .world import RANGE, World


def test_every_state_can_be_reached_and_left() -> None:
    reachable = set().union(*TRANSITIONS.values())
    assert reachable == set(TRANSITIONS) == set(State)
    assert all(State.DEAD in after for after in TRANSITIONS.values())


# -- sessions and leaving ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("member_id", "instance_id", "generation", "group", "error"),
    [
        (None, None, 1, "", Error.INVALID_GROUP_ID),
        (None, None, 1, "none", Error.UNKNOWN_MEMBER_ID),
        ("who", None, 1, "g", Error.UNKNOWN_MEMBER_ID),
        (None, "i", 1, "g", Error.UNKNOWN_MEMBER_ID),
        (None, None, 0, "g", Error.ILLEGAL_GENERATION),
        (None, None, 1, "g", Error.NONE),
    ],
)
def test_heartbeat_of_a_wrong_member_or_generation_is_refused(
    member_id: str, instance_id: str, generation: int, group: str, error: Error
) -> None:
    world = World()
    (leader,) = world.stable(1)
    assert world.beat(member_id or leader, generation, instance_id, group) is error


def test_session_expires_without_heartbeats() -> None:
    world = World()
    leader, other = world.stable(2)
    for _ in range(5):
        world.wait(SESSION - 1)
        assert world.beat(leader, 1) is world.beat(other, 1) is Error.NONE
    world.wait(SESSION - 1)
    world.beat(leader, 1)
    world.wait(1)
    assert world.beat(leader, 1) is Error.REBALANCE_IN_PROGRESS
    assert world.beat(other, 1) is Error.UNKNOWN_MEMBER_ID


def test_group_without_members_is_stored_as_empty() -> None:
    world = World()
    world.stable(2)
    world.wait(SESSION)
    assert state(world) is State.EMPTY
    assert state(world.restarted()) is State.EMPTY


def test_leaving_members_rebalance_or_empty_the_group() -> None:
    world = World()
    leader, other = world.stable(2)
    assert world.leave("who") is world.leave("", "i") is world.leave("x", group="none") is Error.UNKNOWN_MEMBER_ID
    assert world.leave("x", group="") is Error.INVALID_GROUP_ID
    assert world.leave(other) is Error.NONE
    assert state(world) is State.PREPARING
    assert world.leave(leader) is Error.NONE
    assert state(world) is State.EMPTY


def test_many_members_leave_at_once() -> None:
    world = World()
    ids = world.stable(3)
    result = world.groups.leave("g", [LeavingMember(ids[1]), LeavingMember("who"), LeavingMember(ids[2])], world.now)
    assert [error for _, error in result.members] == [Error.NONE, Error.UNKNOWN_MEMBER_ID, Error.NONE]


def test_unload_compares_only_hashes_of_other_groups() -> None:
    """A broker loses many partitions at once, and serves no requests meanwhile: a group's hash is cached."""

    def effort(partitions: int) -> int:
        world = World(partitions=partitions)
        for n in range(40):
            world.commit(n, group=f"{n}" * 100)
        return lines(lambda: [world.groups.unload(partition) for partition in range(partitions)])

    assert effort(40) < 10 * effort(1)


# -- limits on the data of one client ---------------------------------------------------------------------------
def test_unsupported_protocols_are_dropped() -> None:
    world = World()
    (member,) = world.stable(1)
    for number in range(5):
        token = world.join(member, protocols=(*RANGE, (f"other-{number}", b"")))
        world.spread([world.answer(token).member_id], world.answer(token).generation)
    assert set(world.group()._support) == {"range", "other-4"}


def test_too_large_subscription_is_not_decoded() -> None:
    world = World()
    count = MOST_SUBSCRIBED + 1
    world.join(protocols=(("range", struct.pack(">hi", 0, count) + bytes(2 * count)),))
    world.wait(2 * DELAY)
    assert world.group().subscribed is None
    assert subscription_topics(struct.pack(">hi", 0, 2) + bytes(4), 2) == ["", ""]
    with pytest.raises(struct.error):
        subscription_topics(struct.pack(">hi", 0, 2) + bytes(4), 1)


def test_subscriptions_of_a_group_have_a_common_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_module, "MOST_SUBSCRIBED", 3)
    world = World()
    world.stable(3)
    assert world.group().subscribed == frozenset({"t"})
    world = World()
    world.stable(4)
    assert world.group().subscribed is None


class Counted(dict[str, Member]):
    """Members; `looks` counts the iterations over them."""

    looks = 0

    def __iter__(self) -> Iterator[str]:
        self.looks += 1
        return super().__iter__()

    def values(self) -> Any:
        self.looks += 1
        return super().values()


@pytest.mark.parametrize("count", [10, 100])
def test_leave_of_all_members_iterates_a_few_times(count: int) -> None:
    """The oldest member leaves first: each is then the leader, and leaves a hole that a search would pass again."""
    world = World(initial_delay_ms=0)
    world.stable(count)
    group = world.group()
    group.members = members = Counted(group.members)
    result = world.groups.leave("g", [LeavingMember(name) for name in list(dict.keys(members))], world.now)
    world.settle()
    assert {error for _, error in result.members} == {Error.NONE}
    assert (group.state, group.leader) == (State.EMPTY, None)
    assert members.looks < 10
