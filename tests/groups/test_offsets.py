"""Committed offsets: appends that succeed, wait or fail, expiry, deletion, loading."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.groups.groups import Groups
from odradek.groups.log_writer import BATCH_BYTES
from odradek.groups.ownership import RELOAD_PAUSE_MS
from odradek.groups.records import OffsetValue, decode_key, offset_key, offset_value
from odradek.protocol.batch import TRANSACTIONAL
from odradek.protocol.errors import Error
from odradek.protocol.records import batch_v2, control, message_sets

from .world import World, drain

T0 = ("t", 0)
DAY = 24 * 3600 * 1000
WEEK = 7 * DAY


def result(world: World, token: int) -> Error:
    (error,) = world.answer(token).values()
    return error


def kinds(world: World) -> list[tuple[str, bool]]:
    """(kind, is a tombstone) of each record in the log."""
    return [(type(decode_key(key or b"")).__name__, value is None) for key, value in world.log.records()]


def test_commit_is_answered_once_it_is_in_the_log() -> None:
    world = World()
    world.log.lag = 1
    token = world.commit(5)
    assert world.answer(token) is None and world.committed() is None
    assert world.groups.fetch("g", [T0], True)[1][T0] == (None, Error.UNSTABLE_OFFSET_COMMIT)
    world.log.lag = 0
    world.settle()
    assert result(world, token) is Error.NONE and world.committed() == 5
    assert world.restarted().committed() == 5


def test_later_commit_wins() -> None:
    world = World()
    world.log.lag = 2
    tokens = [world.commit(5), world.commit(6)]
    world.log.lag = 1
    world.settle()
    assert result(world, tokens[0]) is Error.NONE and world.committed() == 5
    assert world.groups.fetch("g", [T0], True)[1][T0][1] is Error.UNSTABLE_OFFSET_COMMIT
    world.log.lag = 0
    world.settle()
    assert world.committed() == 6


@pytest.mark.parametrize("known", [None, 4])
def test_failed_commit_keeps_earlier_ones(known: int | None) -> None:
    """The earlier one waits for the high watermark when the later one is refused, and is answered NONE after that."""
    world = World()
    if known is not None:
        world.commit(known)
    world.log.lag = 1
    earlier = world.commit(5)
    world.log.error = Error.MESSAGE_TOO_LARGE
    assert result(world, world.commit(6)) is Error.INVALID_COMMIT_OFFSET_SIZE
    assert world.groups.fetch("g", [T0], True)[1][T0] == (None, Error.UNSTABLE_OFFSET_COMMIT)
    world.log.lag, world.log.error = 0, None
    world.settle()
    assert result(world, earlier) is Error.NONE
    assert world.committed() == 5 == world.restarted().committed()
    assert world.groups.fetch("g", [T0], True)[1][T0][1] is Error.NONE


def test_deleted_commit_does_not_return() -> None:
    world = World()
    world.commit(1, ("kept", 0))
    world.log.lag = 3
    world.commit(5)
    deleted = world.token()
    world.groups.delete_offsets("g", [T0], deleted, world.now)
    world.settle()
    world.commit(6)
    world.log.lag = 2
    world.settle()
    assert world.committed() is None
    world.log.lag = 0
    world.settle()
    assert world.committed() == 6 == world.restarted().committed()


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (Error.KAFKA_STORAGE_ERROR, Error.NOT_COORDINATOR),
        (Error.NOT_LEADER_OR_FOLLOWER, Error.NOT_COORDINATOR),
        (Error.NOT_ENOUGH_REPLICAS, Error.COORDINATOR_NOT_AVAILABLE),
        (Error.MESSAGE_TOO_LARGE, Error.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_failed_append_refuses_commit(failure: Error, told: Error) -> None:
    world = World()
    world.log.error = failure
    assert result(world, world.commit(5)) is told
    assert world.committed() is None
    assert world.groups.fetch("g", [T0], True)[1][T0] == (None, Error.NONE)


def test_locked_partition_is_retried_until_timeout() -> None:
    world = World()
    world.log.busy = True
    first = world.commit(5)
    assert world.writer.is_waiting
    world.log.busy = False
    world.writer.write(world.now)
    world.settle()
    assert result(world, first) is Error.NONE
    world.log.busy = True
    late = world.commit(6)
    world.wait(5_000)
    world.writer.write(world.now)
    world.settle()
    assert result(world, late) is Error.REQUEST_TIMED_OUT and not world.writer.is_waiting
    assert world.committed() == 5


def test_commits_of_one_round_become_one_batch() -> None:
    world = World()
    world.log.busy = True
    tokens = [world.commit(n, ("t", n)) for n in range(50)]
    world.log.busy = False
    world.writer.write(world.now)
    world.settle()
    assert {result(world, token) for token in tokens} == {Error.NONE}
    (batch,) = world.log.batches[0]
    assert batch_v2.header(batch).num_records == 50
    assert world.restarted().committed(("t", 49)) == 49


def test_batches_are_bounded() -> None:
    world = World()
    world.log.busy = True
    for n in range(200):
        world.commit(n, ("t", n), metadata="m" * 4_000)
    world.log.busy = False
    world.writer.write(world.now)
    assert len(world.log.batches[0]) == 4
    assert all(len(batch) <= BATCH_BYTES + 100 for batch in world.log.batches[0])


def test_too_large_commit_fails_alone() -> None:
    """max.message.bytes of __consumer_offsets may be less than the size of a joined batch."""
    world = World()
    world.log.most = 3_000
    world.log.busy = True
    small = [world.commit(n, ("t", n), metadata="m" * 200) for n in range(20)]
    large = world.commit(1, ("t", 20), metadata="m" * 4_000)
    small += [world.commit(n, ("t", n), metadata="m" * 200) for n in range(21, 40)]
    world.log.busy = False
    world.writer.write(world.now)
    world.settle()
    assert {result(world, token) for token in small} == {Error.NONE}
    assert result(world, large) is Error.INVALID_COMMIT_OFFSET_SIZE
    assert 4 <= len(world.log.batches[0]) <= 8


def with_many_offsets(world: World) -> set[tuple[str, int]]:
    """A group whose tombstones exceed one batch of the topic; one offset is of another topic."""
    world.commit(1, ("kept", 0))
    for n in range(3_000):
        world.commit(n, ("t", n))
    world.log.most = 30_000
    return {("t", n) for n in range(3_000)}


@pytest.mark.parametrize("how", ["deleted", "expired", "topic"])
def test_many_offsets_are_deleted_in_several_batches(how: str) -> None:
    world = World()
    with_many_offsets(world)
    if how == "expired":
        expire(world, WEEK)
    elif how == "topic":
        drain(world.groups.forgetting({"t"}, world.now))
    else:
        world.groups.delete_group("g", how, world.now)
    world.settle()
    assert world.answers.get(how) == ([Error.NONE] if how == "deleted" else None)
    for each in (world, world.restarted()):
        group = each.groups.get("g")
        assert (set(group.offsets.all()) if group else None) == ({("kept", 0)} if how == "topic" else None)


def test_only_failed_deletions_keep_their_offsets() -> None:
    """There is one answer; later fetches show what the log has."""
    world = World()
    all_of_t = with_many_offsets(world)
    world.log.room = 2
    world.groups.delete_group("g", "delete", world.now)
    world.settle()
    assert world.answers["delete"] == [Error.NOT_COORDINATOR]
    left = set(world.group().offsets.all())
    assert left and left < all_of_t and left == set(world.restarted().group().offsets.all())
    world.log.room = None
    world.groups.delete_group("g", "again", world.now)
    world.settle()
    assert world.answers["again"] == [Error.NONE]
    assert len(world.groups) == 0 == len(world.restarted().groups)


@pytest.mark.parametrize("under_way", [False, True])
def test_offsets_of_deleted_topic_are_removed_even_if_tombstones_fail(under_way: bool) -> None:
    """A topic of that name may be created before the next commit."""
    world = World()
    world.commit(1, ("kept", 0))
    world.commit(5)
    world.commit(5, group="other")
    world.log.lag = int(under_way)
    world.commit(6)
    world.log.error = Error.NOT_ENOUGH_REPLICAS
    drain(world.groups.forgetting({"t"}, world.now))
    world.settle()
    world.log.lag, world.log.error = 0, None
    world.wait(RELOAD_PAUSE_MS)
    assert world.committed() is None and world.committed(group="other") is None
    assert world.committed(("kept", 0)) == 1
    world.commit(3)
    assert world.committed() == 3 == world.restarted().committed()


def test_too_long_metadata_fails_only_its_partition() -> None:
    world = World()
    assert result(world, world.commit(metadata="m" * 4_097)) is Error.OFFSET_METADATA_TOO_LARGE
    assert world.committed() is None and not world.log.batches


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"generation": 3}, Error.UNKNOWN_MEMBER_ID),
        ({"group": "none", "generation": 3}, Error.ILLEGAL_GENERATION),
        ({"group": "none", "generation": 3, "unknown_group_is_not_found": True}, Error.GROUP_ID_NOT_FOUND),
        ({"group": "none"}, Error.NONE),
        ({"group": ""}, Error.NONE),
        ({}, Error.UNKNOWN_MEMBER_ID),
        ({"member_id": "who", "generation": 1}, Error.UNKNOWN_MEMBER_ID),
        ({"instance_id": "i"}, Error.UNKNOWN_MEMBER_ID),
        ({"member_id": "LEADER", "generation": 0}, Error.ILLEGAL_GENERATION),
        ({"member_id": "LEADER", "generation": 1}, Error.NONE),
    ],
)
def test_only_current_members_may_commit(fields: dict[str, Any], error: Error) -> None:
    world = World()
    (leader,) = world.stable(1)
    fields = {key: leader if value == "LEADER" else value for key, value in fields.items()}
    assert result(world, world.commit(**fields)) is error


def test_commits_are_refused_while_the_assignment_is_pending() -> None:
    world = World()
    (leader,) = world.stable(1)
    newcomer = world.join()
    assert result(world, world.commit(member_id=leader, generation=1)) is Error.NONE  # before the leader rejoins
    world.join(leader)
    assert world.answer(newcomer).generation == 2
    assert result(world, world.commit(member_id=leader, generation=2)) is Error.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("whole", [True, False])
def test_failed_deletion_keeps_pending_commit(whole: bool) -> None:
    world = World()
    world.commit(1, ("kept", 0))
    world.log.lag = 1
    token = world.commit(5)
    world.log.error = Error.NOT_ENOUGH_REPLICAS
    if whole:
        world.groups.delete_group("g", "delete", world.now)
    else:
        world.groups.delete_offsets("g", [T0], "delete", world.now)
    world.settle()
    (told,) = world.answers["delete"]
    assert told == Error.COORDINATOR_NOT_AVAILABLE if whole else told == (Error.COORDINATOR_NOT_AVAILABLE, {})
    world.log.lag, world.log.error = 0, None
    world.wait(RELOAD_PAUSE_MS)
    assert result(world, token) is Error.NONE
    assert world.committed() == 5 and world.committed(("kept", 0)) == 1


# -- expiry -----------------------------------------------------------------------------------------------------


def expire(world: World, ms: int) -> None:
    world.wait(ms)
    drain(world.groups.expiring(world.now))
    world.settle()


def test_offsets_of_a_simple_group_expire_after_their_retention() -> None:
    world = World()
    world.commit(5)
    expire(world, WEEK - 1)
    assert world.committed() == 5
    expire(world, 1)
    assert world.committed() is None and len(world.groups) == 0
    assert kinds(world) == [("OffsetKey", False), ("OffsetKey", True)]
    assert len(world.restarted().groups) == 0


def test_retention_of_a_commit_overrides_the_setting() -> None:
    world = World()
    world.commit(5, expire_ms=world.now.wall_ms + DAY)
    expire(world, DAY)
    assert world.committed() is None


def test_retention_starts_when_the_group_becomes_empty() -> None:
    world = World()
    (leader,) = world.stable(1)
    world.commit(member_id=leader, generation=1)
    world.wait(DAY)  # the session ends: Empty
    expire(world, WEEK - DAY + 10_000)
    assert world.committed() is None
    assert kinds(world)[-1] == ("GroupKey", True)
    assert len(world.restarted().groups) == 0


def test_subscribed_topics_keep_their_offsets() -> None:
    world = World()
    (leader,) = world.stable(1, session_timeout_ms=1_800_000)
    world.commit(5, T0, member_id=leader, generation=1)
    world.commit(6, ("other", 0), member_id=leader, generation=1)
    for _ in range(WEEK // 1_500_000 + 1):
        world.wait(1_500_000)
        assert world.beat(leader, 1) is Error.NONE
    drain(world.groups.expiring(world.now))
    world.settle()
    assert world.committed(T0) == 5 and world.committed(("other", 0)) is None


def test_offsets_of_deleted_topics_are_removed() -> None:
    world = World()
    world.commit(5, T0)
    world.commit(6, ("u", 0))
    drain(world.groups.forgetting({"t"}, world.now))
    world.settle()
    assert world.committed(T0) is None and world.committed(("u", 0)) == 6
    assert world.restarted().committed(T0) is None


# -- deletion ---------------------------------------------------------------------------------------------------


def delete_group(world: World, group: str = "g") -> Error:
    token = world.token()
    world.groups.delete_group(group, token, world.now)
    world.settle()
    return world.answer(token)


def delete_offsets(
    world: World, *partitions: tuple[str, int], group: str = "g"
) -> tuple[Error, dict[tuple[str, int], Error]]:
    token = world.token()
    world.groups.delete_offsets(group, list(partitions), token, world.now)
    world.settle()
    return world.answer(token)


def test_only_empty_groups_are_deleted() -> None:
    world = World()
    assert delete_group(world) is Error.GROUP_ID_NOT_FOUND
    (leader,) = world.stable(1)
    world.commit(member_id=leader, generation=1)
    assert delete_group(world) is Error.NON_EMPTY_GROUP
    world.leave(leader)
    assert delete_group(world) is Error.NONE
    assert kinds(world)[-2:] == [("OffsetKey", True), ("GroupKey", True)]
    assert len(world.groups) == 0 and len(world.restarted().groups) == 0


def test_deletion_that_is_not_written_is_undone() -> None:
    world = World()
    world.commit(5)
    world.log.error = Error.KAFKA_STORAGE_ERROR
    assert delete_group(world) is Error.NOT_COORDINATOR
    assert world.committed() == 5
    world.log.error = None
    assert delete_group(world) is Error.NONE


def test_group_deletion_removes_a_pending_commit() -> None:
    world = World()
    world.log.lag = 1
    token = world.commit(5)
    world.log.lag = 0
    world.groups.delete_group("g", "d", world.now)
    world.settle()
    assert world.answers["d"] == [Error.NONE] and result(world, token) is Error.NONE
    assert world.committed() is None and world.restarted().committed() is None


def test_only_offsets_of_unsubscribed_topics_are_deleted() -> None:
    world = World()
    assert delete_offsets(world, T0) == (Error.GROUP_ID_NOT_FOUND, {})
    assert delete_offsets(world, T0, group="") == (Error.INVALID_GROUP_ID, {})
    (leader,) = world.stable(1)
    world.commit(5, T0, member_id=leader, generation=1)
    world.commit(6, ("other", 0), member_id=leader, generation=1)
    errors = {T0: Error.GROUP_SUBSCRIBED_TO_TOPIC, ("other", 0): Error.NONE}
    assert delete_offsets(world, T0, ("other", 0)) == (Error.NONE, errors)
    assert world.committed(T0) == 5 and world.committed(("other", 0)) is None
    assert world.restarted().committed(("other", 0)) is None


def test_offsets_of_other_group_types_are_not_deleted() -> None:
    world = World()
    world.stable(1, protocol_type="connect")
    assert delete_offsets(world, T0) == (Error.NON_EMPTY_GROUP, {})


def test_undecodable_subscription_counts_as_all_topics() -> None:
    world = World()
    (leader,) = world.stable(1, protocols=(("range", b"\0"),))
    world.commit(5, T0, member_id=leader, generation=1)
    assert delete_offsets(world, T0) == (Error.NONE, {T0: Error.GROUP_SUBSCRIBED_TO_TOPIC})


# -- loading ----------------------------------------------------------------------------------------------------


def test_restart_restores_groups_and_offsets() -> None:
    world = World()
    leader, other = world.stable(2)
    world.commit(5, member_id=leader, generation=1)
    after = world.restarted()
    assert after.committed() == 5
    assert after.beat(leader, 1) is after.beat(other, 1) is Error.NONE
    assert after.answer(after.sync(other, 1)).assignment == other.encode()
    error, summary = after.groups.describe("g")
    assert (error, summary.state, summary.protocol) == (Error.NONE, "Stable", "range")
    assert after.group().leader == leader
    after.wait(10_000)
    assert after.group().state.value == "Empty"


def test_requests_are_refused_while_the_partition_loads() -> None:
    world = World()
    groups: Groups = world.groups
    groups.unload(0)
    assert world.joined().error is Error.NOT_COORDINATOR
    groups.will_load(0)
    assert world.joined().error is Error.COORDINATOR_LOAD_IN_PROGRESS
    assert world.answer(world.sync("m", 1)).error is Error.REBALANCE_IN_PROGRESS
    assert world.beat("m", 1) is Error.NONE
    assert world.leave("m") is Error.COORDINATOR_LOAD_IN_PROGRESS
    assert result(world, world.commit()) is Error.COORDINATOR_LOAD_IN_PROGRESS
    assert groups.fetch("g", [T0], False)[0] is Error.COORDINATOR_LOAD_IN_PROGRESS
    assert groups.describe("g")[0] is Error.COORDINATOR_LOAD_IN_PROGRESS
    assert delete_group(world) is Error.COORDINATOR_LOAD_IN_PROGRESS


def test_unload_answers_waiting_requests() -> None:
    world = World()
    (leader,) = world.stable(1)
    token = world.join()
    world.groups.unload(0)
    world.settle()
    assert world.answer(token).error is Error.NOT_COORDINATOR
    assert world.beat(leader, 1) is Error.NOT_COORDINATOR
    assert world.groups.timers.next_ms() is None


def test_damaged_batches_and_unknown_records_are_skipped() -> None:
    world = World()
    world.commit(5, T0)
    world.commit(6, ("t", 1))
    world.commit(7, ("t", 2))
    batches = world.log.batches[0]
    batches[1] = batches[1][:-1] + b"\xff"
    foreign = [(0, 1, b"\0\3\0\1g", b"\0\0", ()), (1, 1, None, b"x", ()), (2, 1, b"\0\1", b"x", ())]
    batches.append(batch_v2.build(foreign))
    after = world.restarted()
    assert [after.committed(("t", n)) for n in range(3)] == [5, None, 7]


def test_message_sets_of_old_brokers_are_loaded() -> None:
    world = World()
    key, value = offset_key("g", "t", 0), offset_value(OffsetValue(9, -1, "", 1))
    world.log.batches[0] = [message_sets.build([(0, 1, key, value, ())], magic=1)]
    world.log.ends[0] = 1
    assert world.restarted().committed() == 9


@pytest.mark.parametrize("kind", [control.COMMIT, control.ABORT, None])
def test_loaded_transactional_offsets_count_only_after_their_commit(kind: int | None) -> None:
    world = World()
    world.commit(5)
    record = (1, 1, offset_key("g", "t", 0), offset_value(OffsetValue(9, -1, "", 1)), ())
    producer = {"producer_id": 1, "producer_epoch": 0}
    batches = [batch_v2.build([record], attributes=TRANSACTIONAL, base_sequence=0, **producer)]
    if kind is not None:
        batches.append(control.end_marker(kind, coordinator_epoch=0, timestamp=1, base_offset=2, **producer))
    world.log.batches[0] += batches
    assert world.restarted().committed() == (9 if kind == control.COMMIT else 5)


def test_listing_filters_by_state_and_type() -> None:
    world = World()
    world.join(group="a")
    world.commit(group="b")
    assert {(g.id, g.state) for g in world.groups.listing()} == {("a", "PreparingRebalance"), ("b", "Empty")}
    assert [g.id for g in world.groups.listing(["empty", "stable"])] == ["b"]
    assert [g.id for g in world.groups.listing(types=["Classic"])] == ["a", "b"]
    assert world.groups.listing(types=["consumer"]) == []


def test_offset_whose_deletion_fails_outlives_the_deletion_of_all_others() -> None:
    """Both tombstones wait for the lock; the topic's offset is the group's last one then."""
    world = World()
    world.commit(7, ("u", 0))
    world.commit(8, ("t", 0))
    world.log.busy = True
    token = world.token()
    world.groups.delete_offsets("g", [("u", 0)], token, world.now)
    drain(world.groups.forgetting({"t"}, world.now))
    world.settle()
    world.log.busy, world.log.error = False, Error.KAFKA_STORAGE_ERROR
    world.writer.write(world.now)
    world.settle()
    assert world.answer(token)[0]
    assert world.committed(("u", 0)) == 7


def test_producer_of_a_deleted_group_is_forgotten_with_the_partition() -> None:
    world = World()
    world.commit(7, ("u", 0), producer=(5, 0))
    world.groups.delete_group("g", world.token(), world.now)
    world.settle()
    world.groups.unload(0)
    assert not world.groups._open


def test_group_of_two_failed_deletions_keeps_its_generation_and_its_age() -> None:
    """The second buries the group; expiry counts from the time since it is empty."""
    world = World()
    world.commit(7, ("u", 0))
    world.commit(8, ("t", 0))
    (group,) = world.groups._groups.values()
    group.generation, group.protocol_type, group.state_since_ms = 5, "consumer", world.now.wall_ms
    world.log.busy = True
    world.groups.delete_offsets("g", [("u", 0)], world.token(), world.now)
    world.groups.delete_group("g", world.token(), world.now)
    world.settle()
    world.log.busy, world.log.error = False, Error.NOT_ENOUGH_REPLICAS
    world.writer.write(world.now)
    world.settle()
    assert (world.committed(("u", 0)), world.committed(("t", 0))) == (7, 8)
    assert list(world.groups._groups.values()) == [group] and group.generation == 5
