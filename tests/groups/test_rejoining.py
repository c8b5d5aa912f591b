"""Members that rejoin, in time or too late."""

from __future__ import annotations

from odradek.groups.group import State
from odradek.protocol.errors import Error

from .rebalances import DELAY, REBALANCE, SESSION, state
from .world import RANGE, World


def test_rejoining_members_form_the_next_generation() -> None:
    world = World()
    leader, other = world.stable(2)
    token = world.join(leader)
    assert world.beat(other, 1) is Error.REBALANCE_IN_PROGRESS
    second = world.join(other)
    assert world.answer(token).generation == world.answer(second).generation == 2


def test_unchanged_follower_gets_current_generation() -> None:
    world = World()
    _, other = world.stable(2)
    result = world.joined(other)
    assert (result.error, result.generation, result.members) == (Error.NONE, 1, ())
    assert state(world) is State.STABLE


def test_follower_with_a_new_subscription_rebalances() -> None:
    world = World()
    _, other = world.stable(2)
    world.join(other, protocols=(("range", b"\x00\x00\x00\x00\x00\x01\x00\x01u"),))
    assert state(world) is State.PREPARING


def test_rejoin_while_completing_repeats_answer_or_rebalances() -> None:
    world = World()
    tokens = [world.join(), world.join()]
    world.wait(2 * DELAY)
    leader, other = (world.answer(token) for token in tokens)
    assert world.joined(leader.member_id) == leader
    waiting = world.sync(other.member_id, 1)
    world.join(other.member_id, protocols=(("range", b"new"),))
    assert world.answer(waiting).error is Error.REBALANCE_IN_PROGRESS
    assert state(world) is State.PREPARING


def test_a_second_join_of_the_same_member_supersedes_the_first() -> None:
    world = World()
    leader, _ = world.stable(2)
    first = world.join(leader)
    world.join(leader)
    assert world.answer(first).error is Error.REBALANCE_IN_PROGRESS


def test_late_members_are_removed() -> None:
    world = World()
    leader, other = world.stable(2)
    token = world.join(leader)
    for _ in range(REBALANCE // 5_000):
        world.beat(other, 1)
        world.wait(5_000)
    assert len(world.answer(token).members) == 1
    assert world.beat(other, 2) is Error.UNKNOWN_MEMBER_ID


def test_leader_that_does_not_rejoin_is_replaced() -> None:
    world = World()
    leader, other = world.stable(2)
    token = world.join(other, protocols=(("range", b"\x00\x00\x00\x00\x00\x00"),))
    world.wait(SESSION)
    assert world.answer(token).leader == other != leader


def test_new_member_that_waits_too_long_must_start_over() -> None:
    world = World()
    leader, other = world.stable(2, rebalance_timeout_ms=900_000)
    token = world.join(rebalance_timeout_ms=900_000)
    for _ in range(61):
        world.beat(leader, 1)
        world.beat(other, 1)
        world.wait(5_000)
    assert world.answer(token).error is Error.UNKNOWN_MEMBER_ID


# -- cooperative rebalancing ------------------------------------------------------------------------------------
def test_cooperative_rebalance_is_two_rebalances() -> None:
    cooperative = (("cooperative-sticky", RANGE[0][1]),)
    world = World()
    (leader,) = world.stable(1, protocols=cooperative)
    newcomer = world.join(protocols=cooperative)
    again = world.join(leader, protocols=cooperative)
    second = world.answer(newcomer).member_id
    world.spread([leader, second], 2)  # the leader revokes partitions, which no member has yet
    assert world.beat(second, 2) is Error.NONE
    third = world.join(leader, protocols=(("cooperative-sticky", RANGE[0][1] + b"\0\0\0\0"),))
    assert world.answer(again).generation == 2 and world.beat(second, 2) is Error.REBALANCE_IN_PROGRESS
    fourth = world.join(second, protocols=cooperative)
    assert world.answer(third).generation == world.answer(fourth).generation == 3
