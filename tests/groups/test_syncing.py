"""The leader's assignment, and the part that each member gets."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.groups.group import State
from odradek.protocol.errors import Error

from .rebalances import DELAY, REBALANCE, state
from .world import World


# -- syncing ----------------------------------------------------------------------------------------------------
def test_members_get_their_part_once_assignment_is_in_the_log() -> None:
    world = World()
    tokens = [world.join(), world.join()]
    world.wait(2 * DELAY)
    leader, other = (world.answer(token).member_id for token in tokens)
    follower = world.sync(other, 1, protocol_type="consumer", protocol="range")
    assert world.answer(follower) is None
    world.log.lag = 1
    first = world.sync(leader, 1, assignments={leader: b"L", other: b"O"})
    assert world.answer(first) is None and state(world) is State.COMPLETING
    world.log.lag = 0
    world.settle()
    assert world.answer(first).assignment == b"L"
    result = world.answer(follower)
    assert (result.error, result.assignment, result.protocol) == (Error.NONE, b"O", "range")
    assert world.answer(world.sync(other, 1)).assignment == b"O"


def test_unassigned_members_get_an_empty_part() -> None:
    world = World()
    tokens = [world.join(), world.join()]
    world.wait(2 * DELAY)
    leader, other = (world.answer(token).member_id for token in tokens)
    follower = world.sync(other, 1)
    world.sync(leader, 1, assignments={leader: b"L"})
    assert world.answer(follower).assignment == b""


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group": ""}, Error.INVALID_GROUP_ID),
        ({"group": "none"}, Error.UNKNOWN_MEMBER_ID),
        ({"member_id": "who"}, Error.UNKNOWN_MEMBER_ID),
        ({"generation": 2}, Error.ILLEGAL_GENERATION),
        ({"instance_id": "i"}, Error.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol": "roundrobin"}, Error.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_invalid_sync_is_refused(fields: dict[str, Any], error: Error) -> None:
    world = World()
    (leader,) = world.stable(1)
    result = world.answer(world.sync(**{"member_id": leader, "generation": 1, **fields}))
    assert result.error is error


def test_sync_during_a_rebalance_is_refused() -> None:
    world = World()
    _, other = world.stable(2)
    world.join()
    assert world.answer(world.sync(other, 1)).error is Error.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (Error.NOT_ENOUGH_REPLICAS, Error.COORDINATOR_NOT_AVAILABLE),
        (Error.KAFKA_STORAGE_ERROR, Error.NOT_COORDINATOR),
        (Error.MESSAGE_TOO_LARGE, Error.UNKNOWN_SERVER_ERROR),
    ],
)
def test_assignment_that_cannot_be_stored_fails_and_rebalances(failure: Error, told: Error) -> None:
    world = World()
    token = world.join()
    world.wait(DELAY)
    leader = world.answer(token).member_id
    world.log.error = failure
    assert world.answer(world.sync(leader, 1, assignments={leader: b"L"})).error is told
    assert state(world) is State.PREPARING


def test_assignment_fails_if_the_high_watermark_does_not_pass_it_in_time() -> None:
    world = World()
    token = world.join()
    world.wait(DELAY)
    leader = world.answer(token).member_id
    world.log.lag = 1
    waiting = world.sync(leader, 1, assignments={leader: b"L"})
    world.wait(5_000)
    assert world.answer(waiting).error is Error.REBALANCE_IN_PROGRESS


def test_members_that_never_sync_are_removed() -> None:
    world = World()
    tokens = [world.join(), world.join()]
    world.wait(2 * DELAY)
    leader, other = (world.answer(token).member_id for token in tokens)
    world.sync(leader, 1, assignments={})
    for _ in range(REBALANCE // 5_000):
        world.beat(other, 1)
        world.beat(leader, 1)
        world.wait(5_000)
    assert world.beat(other, 1) is Error.UNKNOWN_MEMBER_ID
    assert world.beat(leader, 1) is Error.REBALANCE_IN_PROGRESS
