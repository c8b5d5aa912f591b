"""Offsets committed in a transaction wait for its marker, also after failures and deaths of the coordinator."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.groups.ownership import RELOAD_PAUSE_MS
from odradek.protocol.errors import Error
from odradek.protocol.records import batch_v2, control

from .world import World, drain

T0, T1 = ("t", 0), ("t", 1)
ONE, TWO = (5, 0), (6, 3)  # producers


def result(world: World, token: int) -> Error | None:
    answer = world.answer(token)
    if answer is None:
        return None
    (error,) = answer.values()
    return error


def is_unstable(world: World, tp: tuple[str, int] = T0) -> bool:
    return world.groups.fetch("g", [tp], require_stable=True)[1][tp][1] is Error.UNSTABLE_OFFSET_COMMIT


def end(world: World, producer: tuple[int, int], commit: bool) -> None:
    """Write the marker of a transaction, and report it to the groups."""
    kind = control.COMMIT if commit else control.ABORT
    marker = control.end_marker(
        kind, producer_id=producer[0], producer_epoch=producer[1], coordinator_epoch=0, timestamp=world.now.wall_ms
    )
    world.log.append(0, marker)
    world.groups.end_transaction(0, producer[0], commit, world.now)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("dies", ["never", "before", "after"])
def test_marker_decides_offsets(commit: bool, dies: str) -> None:
    world = World()
    world.commit(1)
    assert result(world, world.commit(7, producer=ONE)) is Error.NONE
    assert world.committed() == 1 and is_unstable(world)
    if dies == "before":
        world = world.restarted()
        assert world.committed() == 1 and is_unstable(world)
    end(world, ONE, commit)
    if dies == "after":
        world = world.restarted()
    assert world.committed() == (7 if commit else 1) and not is_unstable(world)


def test_batches_are_transactional_and_of_one_producer() -> None:
    world = World()
    world.log.busy = True
    for producer in (None, ONE, ONE, TWO, None):
        world.commit(1, T0, producer=producer)
    world.log.busy = False
    world.writer.write(world.now)
    headers = [batch_v2.header(batch) for batch in world.log.batches[0]]
    found = [(h.producer_id, h.producer_epoch, h.is_transactional, h.base_sequence, h.num_records) for h in headers]
    assert found == [(-1, -1, False, -1, 1), (5, 0, True, -1, 2), (6, 3, True, -1, 1), (-1, -1, False, -1, 1)]


def test_producers_are_independent() -> None:
    world = World()
    world.commit(7, T0, producer=ONE)
    world.commit(8, T1, producer=TWO)
    end(world, TWO, True)
    assert world.committed(T1) == 8 and world.committed(T0) is None
    assert is_unstable(world, T0) and not is_unstable(world, T1)
    end(world, ONE, False)
    assert world.committed(T0) is None and not is_unstable(world, T0)


def test_later_commit_wins() -> None:
    world = World()
    world.commit(7, producer=ONE)
    world.commit(9)
    end(world, ONE, True)
    assert world.committed() == 9 and world.restarted().committed() == 9


def test_later_commit_wins_over_earlier_marker() -> None:
    world = World()
    world.commit(7, producer=ONE)
    world.log.lag = 1
    later = world.commit(9)
    end(world, ONE, True)
    world.log.lag = 2
    world.settle()
    assert result(world, later) is None and world.committed() == 7
    world.log.lag = 0
    world.settle()
    assert result(world, later) is Error.NONE and world.committed() == 9 == world.restarted().committed()


def test_last_commit_of_a_transaction_counts() -> None:
    world = World()
    for offset in (7, 8):
        world.commit(offset, producer=ONE)
    end(world, ONE, True)
    assert world.committed() == 8
    world.commit(9, producer=ONE)
    assert world.committed() == 8
    end(world, ONE, False)
    assert world.committed() == 8 == world.restarted().committed()


def test_unappended_offsets_are_not_committed() -> None:
    world = World()
    world.log.error = Error.NOT_LEADER_OR_FOLLOWER
    assert result(world, world.commit(7, producer=ONE)) is Error.NOT_COORDINATOR
    assert not is_unstable(world)
    world.log.error = None
    end(world, ONE, True)
    assert world.committed() is None


@pytest.mark.parametrize("lag", [0, 1])
def test_failed_commit_keeps_earlier_ones(lag: int) -> None:
    """The earlier commit is in the log, above or below the high watermark."""
    world = World()
    world.log.lag = lag
    earlier = world.commit(7, producer=ONE)
    world.log.error = Error.MESSAGE_TOO_LARGE
    assert result(world, world.commit(8, producer=ONE)) is Error.INVALID_COMMIT_OFFSET_SIZE
    assert is_unstable(world)
    world.log.lag, world.log.error = 0, None
    world.settle()
    assert result(world, earlier) is Error.NONE
    end(world, ONE, True)
    assert world.committed() == 7 == world.restarted().committed()
    assert not is_unstable(world) and not world.groups._open


def test_marker_waits_for_pending_offsets() -> None:
    world = World()
    assert not world.writer.has_appends_of(ONE[0])
    world.log.busy = True
    token = world.commit(7, producer=ONE)
    assert world.writer.has_appends_of(ONE[0]), "the append is queued"
    assert not world.writer.has_appends_of(TWO[0])
    world.log.busy, world.log.lag = False, 1
    world.settle()
    world.writer.write(world.now)
    assert world.writer.has_appends_of(ONE[0]) and result(world, token) is None, (
        "the append is above the high watermark"
    )
    world.log.lag = 0
    world.settle()
    assert not world.writer.has_appends_of(ONE[0]) and result(world, token) is Error.NONE


def test_producer_may_name_no_member() -> None:
    """Producers before KIP-447 name no member; those that name one must name the right one."""
    world = World()
    leader, _ = world.stable()

    def commit(**fields: Any) -> Error | None:
        return result(world, world.commit(7, producer=ONE, **fields))

    assert commit() is Error.NONE
    assert commit(member_id=leader, generation=1) is Error.NONE
    assert commit(member_id=leader, generation=9) is Error.ILLEGAL_GENERATION
    assert commit(member_id="stranger", generation=1) is Error.UNKNOWN_MEMBER_ID
    assert commit(group="none", generation=1) is Error.UNKNOWN_MEMBER_ID
    world.join(leader)
    assert commit(member_id=leader, generation=1) is Error.NONE, "members may commit while they rejoin"


def test_deleted_topic_removes_pending_offsets() -> None:
    world = World()
    world.commit(7, T0, producer=ONE)
    world.commit(8, ("kept", 0), producer=ONE)
    drain(world.groups.forgetting({"t"}, world.now))
    world.settle()
    end(world, ONE, True)
    for each in (world, world.restarted()):
        assert each.committed(T0) is None and each.committed(("kept", 0)) == 8


def test_failed_deletion_keeps_pending_offsets() -> None:
    world = World()
    world.commit(1, ("kept", 0))
    world.commit(7, producer=ONE)
    world.log.error = Error.NOT_ENOUGH_REPLICAS
    world.groups.delete_offsets("g", [T0], "delete", world.now)
    world.settle()
    assert world.answers["delete"] == [(Error.COORDINATOR_NOT_AVAILABLE, {})]
    world.log.error = None
    world.wait(RELOAD_PAUSE_MS)
    assert is_unstable(world)
    end(world, ONE, True)
    assert world.committed() == 7 == world.restarted().committed()


def test_pending_offsets_do_not_expire() -> None:
    world = World()
    world.commit(7, producer=ONE)
    world._move(world.now.steady_ms + 30 * 24 * 3600 * 1000)
    drain(world.groups.expiring(world.now))
    world.settle()
    end(world, ONE, True)
    assert world.committed() == 7


def test_marker_for_a_removed_group_has_no_effect() -> None:
    """The group's offsets were too large for the log, and it has no others."""
    world = World()
    world.log.most = 1
    assert result(world, world.commit(producer=ONE)) is Error.INVALID_COMMIT_OFFSET_SIZE
    world.log.most = 1_000_000
    assert result(world, world.commit(generation=3, member_id="nobody")) is Error.UNKNOWN_MEMBER_ID
    assert world.groups.get("g") is None
    end(world, ONE, True)
    assert world.groups.faults == 0
    assert not world.groups._open


def test_deleted_group_leaves_no_pending_transaction() -> None:
    world = World()
    world.commit(1, producer=ONE)
    world.commit(1, T1, producer=TWO)
    drain(world.groups.forgetting({"t"}, world.now))
    world.settle()
    assert world.groups.get("g") is None
    assert world.commit(2) and world.committed() == 2 and not is_unstable(world)
    for producer in (ONE, TWO):
        end(world, producer, True)
    assert (world.committed(), world.groups.faults, len(world.groups._open)) == (2, 0, 0)
