"""Joining a group: the initial delay, pending members, protocols, full groups."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.groups.group import State
from odradek.protocol.errors import Error

from .rebalances import DELAY, ROUND_ROBIN, SESSION, state
from .world import RANGE, World


# -- joining ----------------------------------------------------------------------------------------------------
def test_first_member_leads_after_the_initial_delay() -> None:
    world = World()
    token = world.join()
    world.wait(DELAY - 1)
    assert world.answer(token) is None
    world.wait(1)
    result = world.answer(token)
    assert (result.error, result.generation, result.leader) == (Error.NONE, 1, result.member_id)
    assert result.members == ((result.member_id, None, RANGE[0][1]),)
    assert (result.protocol_type, result.protocol) == ("consumer", "range")


def test_initial_delay_grows_with_new_members_up_to_the_rebalance_timeout() -> None:
    world = World()
    tokens = [world.join(rebalance_timeout_ms=8_000)]
    for _ in range(2):
        world.wait(DELAY - 1)
        tokens.append(world.join(rebalance_timeout_ms=8_000))
        world.wait(1)
        assert world.answer(tokens[0]) is None
    world.wait(8_000 - 2 * DELAY - 1)
    tokens.append(world.join(rebalance_timeout_ms=8_000))
    assert world.answer(tokens[0]) is None
    world.wait(1)
    assert {world.answer(token).generation for token in tokens} == {1}


def test_initial_delay_of_zero_forms_the_group_at_once() -> None:
    world = World(initial_delay_ms=0)
    token = world.join()
    world.wait(0)
    assert world.answer(token).generation == 1


def test_only_the_leader_gets_the_list_of_members() -> None:
    world = World()
    tokens = [world.join(), world.join()]
    world.wait(2 * DELAY)
    leader, other = (world.answer(token) for token in tokens)
    assert len(leader.members) == 2
    assert other.members == () and other.leader == leader.member_id


def test_required_member_id_expires_if_it_is_not_used() -> None:
    world = World()
    result = world.joined(require_member_id=True)
    assert result.error is Error.MEMBER_ID_REQUIRED and result.member_id.startswith("c-")
    token = world.join(result.member_id)
    world.wait(DELAY)
    assert world.answer(token).error is Error.NONE
    unused = world.joined(require_member_id=True)
    world.wait(SESSION)
    assert world.joined(unused.member_id).error is Error.UNKNOWN_MEMBER_ID


def test_rebalance_waits_for_a_pending_member_until_it_expires() -> None:
    world = World()
    (leader,) = world.stable(1)
    world.joined(require_member_id=True)
    token = world.join(leader)
    assert world.answer(token) is None
    world.wait(SESSION)
    assert world.answer(token).generation == 2


def test_pending_member_cannot_join_as_a_static_one() -> None:
    """The instance would have two members; Kafka's coordinator fails with an IllegalStateException."""
    world = World()
    world.stable(1, instance_id="i")
    pending = world.joined(require_member_id=True)
    assert pending.error is Error.MEMBER_ID_REQUIRED
    told = world.joined(pending.member_id, instance_id="i")
    assert (told.error, told.member_id) == (Error.UNKNOWN_SERVER_ERROR, pending.member_id)
    assert world.groups.faults == 0 and len(world.group().members) == 1
    world.join(pending.member_id)
    assert len(world.group().members) == 2


def test_a_pending_member_may_leave() -> None:
    world = World()
    (leader,) = world.stable(1)
    pending = world.joined(require_member_id=True).member_id
    token = world.join(leader)
    assert world.leave(pending) is Error.NONE
    assert world.answer(token).generation == 2


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group": ""}, Error.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, Error.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, Error.INVALID_SESSION_TIMEOUT),
        ({"member_id": "who"}, Error.UNKNOWN_MEMBER_ID),
        ({"protocols": ROUND_ROBIN}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"group": "new", "protocols": ()}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"group": "new", "protocol_type": ""}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"group": "new", "member_id": "who"}, Error.UNKNOWN_MEMBER_ID),
    ],
)
def test_invalid_join_is_refused(fields: dict[str, Any], error: Error) -> None:
    world = World()
    world.stable(1)
    assert world.joined(**fields).error is error


def test_the_protocol_with_most_votes_among_the_common_ones_wins() -> None:
    world = World()
    both, other = RANGE + ROUND_ROBIN, ROUND_ROBIN + RANGE
    tokens = [world.join(protocols=both), world.join(protocols=other), world.join(protocols=other)]
    world.wait(4 * DELAY)
    assert {world.answer(token).protocol for token in tokens} == {"roundrobin"}


def test_duplicate_protocol_of_a_member_counts_once() -> None:
    """Counted twice, its support would exceed the member count: no member could vote, and no rebalance would end."""
    world = World(initial_delay_ms=0)
    twice = (("range", b"first"), ("sticky", b"s"), ("range", b"second"))
    result = world.answer(world.join(protocols=twice)) or world.wait(0)
    token = world.join(result.member_id, protocols=twice) if result else 1
    world.wait(0)
    group = world.group()
    assert group is not None and not world.groups.faults
    assert (group.protocol, state(world), token) == ("range", State.COMPLETING, token)
    assert [m.protocols for m in group.members.values()] == [(("range", b"first"), ("sticky", b"s"))]
    world.join(protocols=RANGE)
    assert not world.groups.faults


@pytest.mark.parametrize("name", ["x" * 32_767, "Ω" * 16_383, "\N{PILE OF POO}" * 8_191])
@pytest.mark.parametrize("field", ["instance_id", "client_id"])
def test_member_id_of_a_long_name_fits_a_string(name: str, field: str) -> None:
    world = World(initial_delay_ms=0)
    token = world.join(**{field: name})
    world.wait(0)
    result = world.answer(token)
    assert not result.error and name.startswith(result.member_id[:-37])
    assert 32_700 < len(result.member_id.encode()) <= 32_767
    world.sync(result.member_id, 1, instance_id=name if field == "instance_id" else None)
    assert state(world) is State.STABLE and not world.groups.faults


def test_refused_request_creates_no_group() -> None:
    world = World(max_metadata=10)
    assert world.joined(protocols=()).error is Error.INCONSISTENT_GROUP_PROTOCOL
    assert world.answer(world.commit(metadata="x" * 11)) == {("t", 0): Error.OFFSET_METADATA_TOO_LARGE}
    assert world.answer(world.commit(metadata="\N{PILE OF POO}" * 5 + "x")) == {
        ("t", 0): Error.OFFSET_METADATA_TOO_LARGE
    }, "eleven in Java, which counts UTF-16 units"
    assert world.joined(require_member_id=True).error is Error.MEMBER_ID_REQUIRED
    assert len(world.groups) == 1
    world.wait(SESSION)
    assert len(world.groups) == 0 and len(world.groups.timers) == 0


def test_rebalance_timeout_of_zero_does_not_loop_without_a_pause() -> None:
    """A static member with a rebalance timeout of 0 does not rejoin: the others wait until its session ends."""
    world = World(initial_delay_ms=0)
    token = world.join(instance_id="i0", session_timeout_ms=60_000)
    world.wait(0)
    member = world.answer(token).member_id
    world.spread([member], 1)
    world.group().members[member].rebalance_timeout_ms = 0
    other = world.join(instance_id="i1", rebalance_timeout_ms=0, session_timeout_ms=60_000)
    world.leave("", "i1")
    world.wait(0)
    assert state(world) is State.PREPARING and world.answer(other) is not None
    due = world.groups.next_ms()
    assert due is not None and due >= world.now.steady_ms + 1_000


def test_full_group_refuses_a_new_member() -> None:
    world = World(max_size=2)
    first, second = world.stable(2)
    assert world.joined().error is Error.GROUP_MAX_SIZE_REACHED
    token = world.join(first)
    world.join(second)
    assert world.answer(token).generation == 2


def test_group_above_its_size_limit_refuses_the_last_to_rejoin() -> None:
    world = World()
    ids = world.stable(3)
    smaller = world.restarted()
    smaller.groups = type(smaller.groups)(world.groups.config._replace(max_size=2))
    smaller.writer = type(smaller.writer)(smaller.log, smaller.groups.partition_of, 5_000)
    smaller.groups.partitions = 1
    smaller.load(0)
    assert state(smaller) is State.PREPARING
    tokens = [smaller.join(member) for member in ids]
    assert smaller.answer(tokens[2]).error is Error.GROUP_MAX_SIZE_REACHED
    assert smaller.answer(tokens[0]).generation == 2
