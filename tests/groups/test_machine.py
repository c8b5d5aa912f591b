"""The group state machine: each error, each way through a rebalance."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.groups import group as group_module
from odradek.groups.events import Leaving
from odradek.groups.group import MOST_SUBSCRIBED, TRANSITIONS, State, subscription_topics
from odradek.groups.member import Member
from odradek.protocol.errors import Error

from ..harness.effort import lines
from .world import RANGE, World

ROUND_ROBIN = (("roundrobin", RANGE[0][1]),)
SESSION, REBALANCE, DELAY = 10_000, 60_000, 3_000


def state(world: World, group: str = "g") -> State:
    found = world.groups.get(group)
    assert found is not None
    return found.state


def test_every_state_can_be_reached_and_left() -> None:
    reachable = set().union(*TRANSITIONS.values())
    assert reachable == set(TRANSITIONS) == set(State)
    assert all(State.DEAD in after for after in TRANSITIONS.values())


# -- joining ----------------------------------------------------------------------------------------------------


def test_a_first_member_waits_for_the_initial_delay_then_leads() -> None:
    world = World()
    token = world.join()
    world.wait(DELAY - 1)
    assert world.answer(token) is None
    world.wait(1)
    result = world.answer(token)
    assert (result.error, result.generation, result.leader) == (Error.NONE, 1, result.member_id)
    assert result.members == ((result.member_id, None, RANGE[0][1]),)
    assert (result.protocol_type, result.protocol) == ("consumer", "range")


def test_the_initial_delay_grows_while_members_come_but_not_past_the_rebalance_timeout() -> None:
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


def test_no_initial_delay_when_it_is_set_to_zero() -> None:
    world = World(initial_delay_ms=0)
    token = world.join()
    world.wait(0)
    assert world.answer(token).generation == 1


def test_only_the_leader_learns_of_the_members() -> None:
    world = World()
    tokens = [world.join(), world.join()]
    world.wait(2 * DELAY)
    leader, other = (world.answer(token) for token in tokens)
    assert len(leader.members) == 2
    assert other.members == () and other.leader == leader.member_id


def test_a_member_id_is_required_first_and_expires_unused() -> None:
    world = World()
    result = world.joined(require_member_id=True)
    assert result.error is Error.MEMBER_ID_REQUIRED and result.member_id.startswith("c-")
    token = world.join(result.member_id)
    world.wait(DELAY)
    assert world.answer(token).error is Error.NONE
    unused = world.joined(require_member_id=True)
    world.wait(SESSION)
    assert world.joined(unused.member_id).error is Error.UNKNOWN_MEMBER_ID


def test_a_pending_member_holds_a_rebalance_back_until_it_expires() -> None:
    world = World()
    (leader,) = world.stable(1)
    world.joined(require_member_id=True)
    token = world.join(leader)
    assert world.answer(token) is None
    world.wait(SESSION)
    assert world.answer(token).generation == 2


def test_a_pending_member_is_no_static_one() -> None:
    """Its instance would have two members; Kafka's coordinator fails with an IllegalStateException."""
    world = World()
    world.stable(1, instance_id="i")
    pending = world.joined(require_member_id=True)
    assert pending.error is Error.MEMBER_ID_REQUIRED
    told = world.joined(pending.member_id, instance_id="i")
    assert (told.error, told.member_id) == (Error.UNKNOWN_SERVER_ERROR, pending.member_id)
    assert world.groups.faults == 0 and len(world.groups.get("g").members) == 1
    world.join(pending.member_id)
    assert len(world.groups.get("g").members) == 2


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
def test_join_errors(fields: dict, error: Error) -> None:
    world = World()
    world.stable(1)
    assert world.joined(**fields).error is error


def test_the_protocol_with_most_votes_among_the_common_ones_wins() -> None:
    world = World()
    both, other = RANGE + ROUND_ROBIN, ROUND_ROBIN + RANGE
    tokens = [world.join(protocols=both), world.join(protocols=other), world.join(protocols=other)]
    world.wait(4 * DELAY)
    assert {world.answer(token).protocol for token in tokens} == {"roundrobin"}


def test_a_protocol_that_is_named_twice_counts_once() -> None:
    """Twice as many as there are members would support it: nobody could vote, and the rebalance ended nowhere."""
    world = World(initial_delay_ms=0)
    twice = (("range", b"first"), ("sticky", b"s"), ("range", b"second"))
    result = world.answer(world.join(protocols=twice)) or world.wait(0)
    token = world.join(result.member_id, protocols=twice) if result else 1
    world.wait(0)
    group = world.groups.get("g")
    assert group is not None and not world.groups.faults
    assert (group.protocol, state(world), token) == ("range", State.COMPLETING, token)
    assert [m.protocols for m in group.members.values()] == [(("range", b"first"), ("sticky", b"s"))]
    world.join(protocols=RANGE)
    assert not world.groups.faults


@pytest.mark.parametrize("name", ["x" * 32_767, "Ω" * 16_383, "\N{PILE OF POO}" * 8_191])
@pytest.mark.parametrize("field", ["instance_id", "client_id"])
def test_a_member_id_is_a_string_that_fits(name: str, field: str) -> None:
    world = World(initial_delay_ms=0)
    token = world.join(**{field: name})
    world.wait(0)
    result = world.answer(token)
    assert not result.error and name.startswith(result.member_id[:-37])
    assert 32_700 < len(result.member_id.encode()) <= 32_767
    world.sync(result.member_id, 1, instance_id=name if field == "instance_id" else None)
    assert state(world) is State.STABLE and not world.groups.faults


def test_a_request_that_is_refused_makes_no_group() -> None:
    world = World(max_metadata=10)
    assert world.joined(protocols=()).error is Error.INCONSISTENT_GROUP_PROTOCOL
    assert world.answer(world.commit(metadata="x" * 11)) == {("t", 0): Error.OFFSET_METADATA_TOO_LARGE}
    assert world.answer(world.commit(metadata="\N{PILE OF POO}" * 5 + "x")) == {
        ("t", 0): Error.OFFSET_METADATA_TOO_LARGE
    }, "eleven for Java, which counts UTF-16 units"
    assert world.joined(require_member_id=True).error is Error.MEMBER_ID_REQUIRED
    assert len(world.groups) == 1
    world.wait(SESSION)
    assert len(world.groups) == 0 and len(world.groups.timers) == 0


def test_nobody_is_not_waited_for_without_a_pause() -> None:
    """A static member with a rebalance timeout of 0 does not come back: until its session ends, others wait for it."""
    world = World(initial_delay_ms=0)
    token = world.join(instance_id="i0", session_timeout_ms=60_000)
    world.wait(0)
    member = world.answer(token).member_id
    world.spread([member], 1)
    world.groups.get("g").members[member].rebalance_timeout_ms = 0
    other = world.join(instance_id="i1", rebalance_timeout_ms=0, session_timeout_ms=60_000)
    world.leave("", "i1")
    world.wait(0)
    assert state(world) is State.PREPARING and world.answer(other) is not None
    due = world.groups.next_ms()
    assert due is not None and due >= world.now.steady_ms + 1_000


def test_a_full_group_refuses_the_next_member() -> None:
    world = World(max_size=2)
    first, second = world.stable(2)
    assert world.joined().error is Error.GROUP_MAX_SIZE_REACHED
    token = world.join(first)
    world.join(second)
    assert world.answer(token).generation == 2


def test_a_group_above_its_limit_drops_the_last_to_rejoin() -> None:
    world = World()
    ids = world.stable(3)
    smaller = world.restarted()
    smaller.groups = type(smaller.groups)(world.groups.limits._replace(max_size=2))
    smaller.writer = type(smaller.writer)(smaller.journal, smaller.groups.partition_of, 5_000)
    smaller.groups.partitions = 1
    smaller.load(0)
    assert state(smaller) is State.PREPARING
    tokens = [smaller.join(member) for member in ids]
    assert smaller.answer(tokens[2]).error is Error.GROUP_MAX_SIZE_REACHED
    assert smaller.answer(tokens[0]).generation == 2


def test_rejoining_members_form_the_next_generation() -> None:
    world = World()
    leader, other = world.stable(2)
    token = world.join(leader)
    assert world.beat(other, 1) is Error.REBALANCE_IN_PROGRESS
    second = world.join(other)
    assert world.answer(token).generation == world.answer(second).generation == 2


def test_a_follower_that_joins_again_unchanged_gets_the_current_generation() -> None:
    world = World()
    _, other = world.stable(2)
    result = world.joined(other)
    assert (result.error, result.generation, result.members) == (Error.NONE, 1, ())
    assert state(world) is State.STABLE


def test_a_follower_with_a_new_subscription_rebalances() -> None:
    world = World()
    _, other = world.stable(2)
    world.join(other, protocols=(("range", b"\x00\x00\x00\x00\x00\x01\x00\x01u"),))
    assert state(world) is State.PREPARING


def test_joining_again_while_completing_repeats_the_answer_or_rebalances() -> None:
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


def test_members_that_do_not_rejoin_in_time_are_dropped() -> None:
    world = World()
    leader, other = world.stable(2)
    token = world.join(leader)
    for _ in range(REBALANCE // 5_000):
        world.beat(other, 1)
        world.wait(5_000)
    assert len(world.answer(token).members) == 1
    assert world.beat(other, 2) is Error.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_rejoin_is_replaced() -> None:
    world = World()
    leader, other = world.stable(2)
    token = world.join(other, protocols=(("range", b"\x00\x00\x00\x00\x00\x00"),))
    world.wait(SESSION)
    assert world.answer(token).leader == other != leader


def test_a_new_member_that_waits_too_long_is_told_to_start_over() -> None:
    world = World()
    leader, other = world.stable(2, rebalance_timeout_ms=900_000)
    token = world.join(rebalance_timeout_ms=900_000)
    for _ in range(61):
        world.beat(leader, 1)
        world.beat(other, 1)
        world.wait(5_000)
    assert world.answer(token).error is Error.UNKNOWN_MEMBER_ID


# -- syncing ----------------------------------------------------------------------------------------------------


def test_everybody_gets_their_part_when_the_assignment_is_in_the_log() -> None:
    world = World()
    tokens = [world.join(), world.join()]
    world.wait(2 * DELAY)
    leader, other = (world.answer(token).member_id for token in tokens)
    follower = world.sync(other, 1, protocol_type="consumer", protocol="range")
    assert world.answer(follower) is None
    world.journal.lag = 1
    first = world.sync(leader, 1, assignments={leader: b"L", other: b"O"})
    assert world.answer(first) is None and state(world) is State.COMPLETING
    world.journal.lag = 0
    world.settle()
    assert world.answer(first).assignment == b"L"
    result = world.answer(follower)
    assert (result.error, result.assignment, result.protocol) == (Error.NONE, b"O", "range")
    assert world.answer(world.sync(other, 1)).assignment == b"O"


def test_members_the_leader_forgot_get_an_empty_part() -> None:
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
def test_sync_errors(fields: dict, error: Error) -> None:
    world = World()
    (leader,) = world.stable(1)
    result = world.answer(world.sync(**{"member_id": leader, "generation": 1, **fields}))
    assert result.error is error


def test_sync_during_a_rebalance() -> None:
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
def test_an_assignment_that_cannot_be_stored_fails_and_rebalances(failure: Error, told: Error) -> None:
    world = World()
    token = world.join()
    world.wait(DELAY)
    leader = world.answer(token).member_id
    world.journal.error = failure
    assert world.answer(world.sync(leader, 1, assignments={leader: b"L"})).error is told
    assert state(world) is State.PREPARING


def test_an_assignment_that_waits_too_long_for_the_high_watermark_fails() -> None:
    world = World()
    token = world.join()
    world.wait(DELAY)
    leader = world.answer(token).member_id
    world.journal.lag = 1
    waiting = world.sync(leader, 1, assignments={leader: b"L"})
    world.wait(5_000)
    assert world.answer(waiting).error is Error.REBALANCE_IN_PROGRESS


def test_members_that_never_sync_are_dropped() -> None:
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
def test_heartbeat(member_id: str, instance_id: str, generation: int, group: str, error: Error) -> None:
    world = World()
    (leader,) = world.stable(1)
    assert world.beat(member_id or leader, generation, instance_id, group) is error


def test_heartbeats_keep_a_session_and_silence_ends_it() -> None:
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


def test_a_group_whose_members_all_died_is_empty_and_says_so_in_the_log() -> None:
    world = World()
    world.stable(2)
    world.wait(SESSION)
    assert state(world) is State.EMPTY
    assert state(world.restarted()) is State.EMPTY


def test_leaving() -> None:
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
    result = world.groups.leave("g", [Leaving(ids[1]), Leaving("who"), Leaving(ids[2])], world.now)
    assert [error for _, error in result.members] == [Error.NONE, Error.UNKNOWN_MEMBER_ID, Error.NONE]


# -- static members (KIP-345) -----------------------------------------------------------------------------------


def static_pair(world: World) -> tuple[str, str]:
    """A stable group of static members i0, i1; returns their member ids, the leader's first."""
    tokens = [world.join(instance_id=f"i{n}") for n in range(2)]
    world.wait(3 * DELAY)
    ids = [world.answer(token).member_id for token in tokens]
    world.spread(ids, 1)
    return ids[0], ids[1]


def test_a_static_member_comes_back_without_a_rebalance_and_fences_its_old_self() -> None:
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
def test_a_returning_static_leader_leads_but_does_not_assign(can_skip: bool) -> None:
    world = World()
    old_leader, _ = static_pair(world)
    result = world.joined(instance_id="i0", can_skip_assignment=can_skip)
    if can_skip:
        assert result.leader == result.member_id and result.skip_assignment and len(result.members) == 2
    else:  # it must not think that it leads, or it would assign to nobody's use
        assert result.leader == old_leader != result.member_id and not result.members
    assert world.groups.get("g").leader == result.member_id


def test_a_returning_static_member_whose_protocol_changes_the_choice_rebalances() -> None:
    world = World()
    token = world.join(instance_id="i0", protocols=RANGE + ROUND_ROBIN)
    world.wait(DELAY)
    world.spread([world.answer(token).member_id], 1)
    token = world.join(instance_id="i0", protocols=ROUND_ROBIN + RANGE)
    assert world.answer(token).generation == 2 and world.answer(token).protocol == "roundrobin"


def test_a_static_member_that_returns_during_the_assignment_rebalances() -> None:
    world = World()
    tokens = [world.join(instance_id=f"i{n}") for n in range(2)]
    world.wait(3 * DELAY)
    waiting = world.sync(world.answer(tokens[1]).member_id, 1)
    world.join(instance_id="i1")
    assert world.answer(waiting).error is Error.FENCED_INSTANCE_ID
    assert state(world) is State.PREPARING


def test_a_static_join_that_cannot_be_stored_leaves_everything_as_it_was() -> None:
    world = World()
    leader, other = static_pair(world)
    world.journal.error = Error.NOT_ENOUGH_REPLICAS
    result = world.joined(instance_id="i1")
    assert (result.error, result.member_id, result.leader) == (Error.COORDINATOR_NOT_AVAILABLE, "", leader)
    assert world.beat(other, 1, "i1") is Error.NONE


def test_a_static_member_whose_join_outlasted_its_session_has_another() -> None:
    """It waits for our log meanwhile, which its session does not count."""
    world = World()
    world.stable(1, instance_id="i", session_timeout_ms=6_000)
    world.journal.busy = True
    token = world.join(instance_id="i", session_timeout_ms=6_000)
    world.wait(4_000)
    world.journal.busy, world.journal.lag = False, 1
    world.writer.write(world.now)
    world.wait(4_000)
    world.journal.lag = 0
    world.settle()
    assert world.answer(token).error is Error.NONE and len(world.groups.get("g").members) == 1
    world.wait(6_000)
    assert world.groups.get("g").state is State.EMPTY


def test_partitions_that_go_do_not_look_at_every_group_for_long() -> None:
    """A broker loses many at once, and hears nobody meanwhile: a group's hash is known by then."""

    def effort(partitions: int) -> int:
        world = World(partitions=partitions)
        for n in range(40):
            world.commit(n, group=f"{n}" * 100)
        return lines(lambda: [world.groups.unload(partition) for partition in range(partitions)])

    assert effort(40) < 10 * effort(1)


def test_a_second_static_join_is_not_answered_for_the_first() -> None:
    """Each has a member id of its own, which is to be in the log before it is used."""
    world = World()
    world.stable(1, instance_id="i")
    world.journal.lag = 1
    first, second = world.join(instance_id="i"), world.join(instance_id="i")
    assert world.answer(first).error is Error.FENCED_INSTANCE_ID
    world.journal.lag = 2
    world.settle()
    world.journal.lag = 1
    world.settle()
    assert world.answer(second) is None
    world.wait(5_000)
    world.writer.check(world.now)
    world.settle()
    assert world.answer(second).error is Error.REBALANCE_IN_PROGRESS
    world.journal.lag = 0
    assert world.answer(world.join(instance_id="i")).error is Error.NONE


def test_a_second_static_join_fences_the_first() -> None:
    world = World()
    first = world.join(instance_id="i0")
    second = world.join(instance_id="i0")
    assert world.answer(first).error is Error.FENCED_INSTANCE_ID
    world.wait(2 * DELAY)
    assert world.answer(second).error is Error.NONE


def test_static_members_outlive_a_rebalance_they_miss() -> None:
    world = World()
    leader, other = static_pair(world)
    token = world.join(leader, instance_id="i0", rebalance_timeout_ms=5_000)
    group = world.groups.get("g")
    group.members[other].rebalance_timeout_ms = 5_000
    world.wait(REBALANCE - 5_000)
    assert other not in group.members or world.answer(token) is not None


def test_a_static_member_is_removed_by_instance_id() -> None:
    world = World()
    static_pair(world)
    assert world.leave("", "i1") is Error.NONE
    assert state(world) is State.PREPARING


# -- cooperative rebalancing ------------------------------------------------------------------------------------


def test_a_cooperative_rebalance_is_two_rebalances_in_a_row() -> None:
    cooperative = (("cooperative-sticky", RANGE[0][1]),)
    world = World()
    (leader,) = world.stable(1, protocols=cooperative)
    newcomer = world.join(protocols=cooperative)
    again = world.join(leader, protocols=cooperative)
    second = world.answer(newcomer).member_id
    world.spread([leader, second], 2)  # the leader gives part of its own up, nobody has it yet
    assert world.beat(second, 2) is Error.NONE
    third = world.join(leader, protocols=(("cooperative-sticky", RANGE[0][1] + b"\0\0\0\0"),))
    assert world.answer(again).generation == 2 and world.beat(second, 2) is Error.REBALANCE_IN_PROGRESS
    fourth = world.join(second, protocols=cooperative)
    assert world.answer(third).generation == world.answer(fourth).generation == 3


# -- what one client can make of a group ------------------------------------------------------------------------


def test_nothing_is_kept_of_protocols_that_nobody_supports_any_more() -> None:
    world = World()
    (member,) = world.stable(1)
    for number in range(5):
        token = world.join(member, protocols=(*RANGE, (f"other-{number}", b"")))
        world.spread([world.answer(token).member_id], world.answer(token).generation)
    assert set(world.groups.get("g")._support) == {"range", "other-4"}


def test_a_subscription_that_would_take_seconds_is_not_read() -> None:
    world = World()
    count = MOST_SUBSCRIBED + 1
    world.join(protocols=(("range", struct.pack(">hi", 0, count) + bytes(2 * count)),))
    world.wait(2 * DELAY)
    assert world.groups.get("g").subscribed is None
    assert subscription_topics(struct.pack(">hi", 0, 2) + bytes(4), 2) == ["", ""]
    with pytest.raises(struct.error):
        subscription_topics(struct.pack(">hi", 0, 2) + bytes(4), 1)


def test_the_subscriptions_of_all_members_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_module, "MOST_SUBSCRIBED", 3)
    world = World()
    world.stable(3)
    assert world.groups.get("g").subscribed == {"t"}
    world = World()
    world.stable(4)
    assert world.groups.get("g").subscribed is None


class Counted(dict[str, Member]):
    """Members; `looks` counts how often somebody began to go through them."""

    looks = 0

    def __iter__(self) -> Iterator[str]:
        self.looks += 1
        return super().__iter__()

    def values(self) -> Any:
        self.looks += 1
        return super().values()


@pytest.mark.parametrize("count", [10, 100])
def test_a_request_with_which_all_leave_goes_through_the_members_a_few_times(count: int) -> None:
    """Eldest first: each that leaves is the leader, and leaves a hole that the next look would have to pass."""
    world = World(initial_delay_ms=0)
    world.stable(count)
    group = world.groups.get("g")
    group.members = members = Counted(group.members)
    result = world.groups.leave("g", [Leaving(name) for name in list(dict.keys(members))], world.now)
    world.settle()
    assert {error for _, error in result.members} == {Error.NONE}
    assert (group.state, group.leader) == (State.EMPTY, None)
    assert members.looks < 10
