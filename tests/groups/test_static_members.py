"""Static members (KIP-345)."""

from __future__ import annotations

import pytest

from odradek.groups.group import State
from odradek.protocol.errors import Error

from .rebalances import DELAY, REBALANCE, ROUND_ROBIN, state
from .world import RANGE, World


# -- static members (KIP-345) -----------------------------------------------------------------------------------
def static_pair(world: World) -> tuple[str, str]:
    """A stable group of static members i0, i1; their member ids, the leader's first."""
    tokens = [world.join(instance_id=f"i{n}") for n in range(2)]
    world.wait(3 * DELAY)
    ids = [world.answer(token).member_id for token in tokens]
    world.spread(ids, 1)
    return ids[0], ids[1]


def test_returning_static_member_fences_its_former_id() -> None:
    world = World()
    leader, other = static_pair(world)
    result = world.joined(instance_id="i1", can_skip_assignment=True)
    assert (result.error, result.generation, result.leader, result.members) == (Error.NONE, 1, leader, ())
    assert result.member_id != other and result.member_id.startswith("i1-")
    assert world.beat(other, 1, "i1") is Error.FENCED_INSTANCE_ID
    assert world.answer(world.sync(other, 1, instance_id="i1")).error is Error.FENCED_INSTANCE_ID
    assert world.joined(other, instance_id="i1").error is Error.FENCED_INSTANCE_ID
    assert world.leave(other, "i1") is Error.FENCED_INSTANCE_ID
    assert world.answer(world.commit(member_id=other, instance_id="i1", generation=1)) == {
        ("t", 0): Error.FENCED_INSTANCE_ID
    }
    assert world.answer(world.sync(result.member_id, 1)).assignment == other.encode()
    assert world.restarted().beat(result.member_id, 1, "i1") is Error.NONE


@pytest.mark.parametrize("can_skip", [True, False])
def test_returning_static_leader_leads_but_does_not_assign(can_skip: bool) -> None:
    world = World()
    old_leader, _ = static_pair(world)
    result = world.joined(instance_id="i0", can_skip_assignment=can_skip)
    if can_skip:
        assert result.leader == result.member_id and result.skip_assignment and len(result.members) == 2
    else:  # the answer must not name it as leader: its assignment would be ignored
        assert result.leader == old_leader != result.member_id and not result.members
    assert world.group().leader == result.member_id


def test_returning_static_member_that_changes_the_protocol_rebalances() -> None:
    world = World()
    token = world.join(instance_id="i0", protocols=RANGE + ROUND_ROBIN)
    world.wait(DELAY)
    world.spread([world.answer(token).member_id], 1)
    token = world.join(instance_id="i0", protocols=ROUND_ROBIN + RANGE)
    assert world.answer(token).generation == 2 and world.answer(token).protocol == "roundrobin"


def test_static_member_that_returns_during_the_assignment_rebalances() -> None:
    world = World()
    tokens = [world.join(instance_id=f"i{n}") for n in range(2)]
    world.wait(3 * DELAY)
    waiting = world.sync(world.answer(tokens[1]).member_id, 1)
    world.join(instance_id="i1")
    assert world.answer(waiting).error is Error.FENCED_INSTANCE_ID
    assert state(world) is State.PREPARING


def test_static_join_that_is_not_stored_changes_nothing() -> None:
    world = World()
    leader, other = static_pair(world)
    world.log.error = Error.NOT_ENOUGH_REPLICAS
    result = world.joined(instance_id="i1")
    assert (result.error, result.member_id, result.leader) == (Error.COORDINATOR_NOT_AVAILABLE, "", leader)
    assert world.beat(other, 1, "i1") is Error.NONE


def test_static_member_gets_new_session_after_long_join() -> None:
    """The wait for the log does not count towards its session."""
    world = World()
    world.stable(1, instance_id="i", session_timeout_ms=6_000)
    world.log.busy = True
    token = world.join(instance_id="i", session_timeout_ms=6_000)
    world.wait(4_000)
    world.log.busy, world.log.lag = False, 1
    world.writer.write(world.now)
    world.wait(4_000)
    world.log.lag = 0
    world.settle()
    assert world.answer(token).error is Error.NONE and len(world.group().members) == 1
    world.wait(6_000)
    assert world.group().state is State.EMPTY


def test_concurrent_static_joins_get_own_answers() -> None:
    """Each join has its own member id, which must be in the log before it is used."""
    world = World()
    world.stable(1, instance_id="i")
    world.log.lag = 1
    first, second = world.join(instance_id="i"), world.join(instance_id="i")
    assert world.answer(first).error is Error.FENCED_INSTANCE_ID
    world.log.lag = 2
    world.settle()
    world.log.lag = 1
    world.settle()
    assert world.answer(second) is None
    world.wait(5_000)
    world.writer.check(world.now)
    world.settle()
    assert world.answer(second).error is Error.REBALANCE_IN_PROGRESS
    world.log.lag = 0
    assert world.answer(world.join(instance_id="i")).error is Error.NONE


def test_second_static_join_fences_the_first() -> None:
    world = World()
    first = world.join(instance_id="i0")
    second = world.join(instance_id="i0")
    assert world.answer(first).error is Error.FENCED_INSTANCE_ID
    world.wait(2 * DELAY)
    assert world.answer(second).error is Error.NONE


def test_static_members_stay_after_missed_rebalance() -> None:
    """As long as their sessions last; a dynamic member would be removed."""
    world = World()
    leader, other = static_pair(world)
    newcomer = world.join()
    rejoined = world.join(leader, instance_id="i0")
    for _ in range(REBALANCE // 5_000):
        assert world.beat(other, 1, "i1") is Error.REBALANCE_IN_PROGRESS
        world.wait(5_000)
    assert [world.answer(token).generation for token in (newcomer, rejoined)] == [2, 2]
    assert set(world.group().members) > {leader, other}


def test_static_member_is_removed_by_instance_id() -> None:
    world = World()
    static_pair(world)
    assert world.leave("", "i1") is Error.NONE
    assert state(world) is State.PREPARING
