"""An exception in one group or transactional id reloads only that one from the log.

The exception here is a value that fits no record (a generation above 31 bits, an epoch above 15), which no client
can send; it is raised when the transition is encoded.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from odradek.groups.events import Append, Now
from odradek.groups.loading import GroupReplay
from odradek.groups.log_writer import build_batch
from odradek.groups.ownership import RELOAD_PAUSE_MS
from odradek.groups.records import GroupValue, OffsetValue, group_key, group_value, offset_key, offset_value
from odradek.groups.transactions import records
from odradek.groups.transactions.loading import TransactionReplay as TransactionReplay
from odradek.groups.transactions.states import NEVER_WRITTEN, State
from odradek.groups.transactions.transaction import Metadata
from odradek.protocol.errors import Error

from .transaction_world import TransactionWorld
from .world import FakeLog, World

LAST = 2**31 - 1


def world_with(generation: int) -> World:
    """A coordinator that has loaded group `bad` with an offset and this generation."""
    before = World(initial_delay_ms=0)
    before.commit(5, group="bad")
    row = group_key("bad"), group_value(GroupValue("consumer", generation, None, None, -1, ()))
    before.log.append(0, build_batch([row], before.now.wall_ms))
    return before.restarted()


def test_reset_group_answers_waiting_requests_and_keeps_log(caplog: pytest.LogCaptureFixture) -> None:
    world = world_with(LAST)
    good = world.stable(1, group="good")
    first, second = world.join(group="bad"), world.join(group="bad")
    world.wait(0)
    leader = next(r for r in map(world.answer, (first, second)) if r and r.leader == r.member_id)
    waits = world.sync(next(m for m in members(world) if m != leader.member_id), LAST + 1, group="bad")
    token = world.sync(leader.member_id, LAST + 1, group="bad")
    assert world.answers[token][0].error is Error.UNKNOWN_SERVER_ERROR
    assert world.answer(waits).error is Error.COORDINATOR_NOT_AVAILABLE
    assert world.beat(good[0], 1, group="good") is Error.NONE
    assert [bool(record.exc_info) for record in caplog.records if record.levelno == logging.ERROR] == [True]
    assert world.groups.fetch("bad", None, False)[0] is Error.COORDINATOR_LOAD_IN_PROGRESS
    world.wait(RELOAD_PAUSE_MS)
    assert world.committed(group="bad") == 5
    group = world.groups.get("bad")
    assert group is not None and (group.generation, group.state.value) == (LAST, "Empty")


def members(world: World) -> list[str]:
    group = world.groups.get("bad")
    assert group is not None
    return list(group.members)


def test_group_reset_twice_is_loaded_once() -> None:
    """The first load ends after the second reset, and lacks the records between them."""
    world = World()
    world.commit(1, group="bad")
    readings = [GroupReplay(), GroupReplay()]
    for replay in readings:
        for batch in world.log.read_all(0):
            replay.feed(batch)
    for _ in readings:
        world.groups.reset("bad", world.now)
    world.groups.loaded(0, readings[0], world.now, {"bad"})
    world.commit(2, group="bad")
    world.groups.loaded(0, readings[1], world.now, {"bad"})
    assert world.committed(group="bad") == 2


def test_transactional_id_reset_twice_is_loaded_once() -> None:
    world = TransactionWorld()
    producer = world.started("bad")
    replay = TransactionReplay()
    for batch in world.log.read_all(0):
        replay.feed(batch)
    for _ in range(2):
        world.transactions.reset("bad", world.now)
    world.transactions.loaded(0, replay, world.now, {"bad"})
    assert world.add(producer) is Error.NONE
    world.transactions.loaded(0, replay, world.now, {"bad"})
    assert world.state("bad") is State.ONGOING


def test_fault_in_a_deadline_keeps_other_deadlines(caplog: pytest.LogCaptureFixture) -> None:
    world = world_with(LAST)
    good = world.stable(2, group="good")
    world.join(group="bad", session_timeout_ms=6_000)
    world.wait(0)
    world.wait(5_000)
    world.beat(good[0], 1, group="good")
    world.wait(6_000)  # one session of each group expires; the state of `bad` cannot be encoded
    assert "bad" in caplog.text
    group = world.groups.get("good")
    assert group is not None and list(group.members) == [good[0]]


def test_exception_after_an_append_reloads_the_group(caplog: pytest.LogCaptureFixture) -> None:
    """The append is in the log, but its effect is missing: the group is loaded from the log."""
    world = World()
    world.commit(1)

    def done(_error: Error, _position: int, _now: Now) -> None:
        raise ValueError

    row = offset_key("g", "t", 0), offset_value(OffsetValue(2, -1, "", world.now.wall_ms))
    world.groups.effects.append(Append("g", [row], done))
    world.settle()
    world.wait(RELOAD_PAUSE_MS)
    assert world.committed() == 2
    assert "unexpected error after an append" in caplog.text


def test_unexpected_exception_in_an_append_reloads_the_group() -> None:
    """The append may or may not be in the log, so the group is reloaded."""

    class UnexpectedlyFailing(FakeLog):
        fails = False

        def append(self, partition: int, batch: bytes) -> int:
            position = super().append(partition, batch)
            if self.fails:
                raise RuntimeError("after the fact")
            return position

    log = UnexpectedlyFailing()
    world = World(log)
    world.commit(1)
    log.fails = True
    token = world.commit(2)
    log.fails = False
    assert world.answer(token) == {("t", 0): Error.UNKNOWN_SERVER_ERROR}
    world.wait(RELOAD_PAUSE_MS)
    assert world.committed() == 2


# -- transactions


def transactions_with(**fields: Any) -> TransactionWorld:
    """A coordinator that has loaded transactional id `bad` with these fields, and `good` with a producer."""
    before = TransactionWorld()
    before.started("good")
    metadata = Metadata(7, 3, 60_000, State.ONGOING, frozenset({("t", 0)}), 0, 0)._replace(**fields)
    row = records.key("bad"), records.value(metadata)
    before.log.append(0, build_batch([row], before.now.wall_ms))
    return before.restarted()


def test_transactional_id_that_cannot_be_fenced_is_reloaded(caplog: pytest.LogCaptureFixture) -> None:
    world = transactions_with(epoch=0x7FFF)
    assert world.init("bad").error is Error.UNKNOWN_SERVER_ERROR
    assert world.init("bad").error is Error.COORDINATOR_LOAD_IN_PROGRESS
    assert not world.init("good").error
    world.wait(RELOAD_PAUSE_MS)
    assert world.metadata("bad").epoch == 0x7FFF
    assert [bool(record.exc_info) for record in caplog.records if record.levelno == logging.ERROR] == [True]


def test_exception_in_the_timeout_of_one_transaction_keeps_others() -> None:
    world = transactions_with(epoch=0x7FFF, started_ms=1)
    producer = world.ongoing("other", timeout_ms=1_000)
    world.wait(11_000)
    world.mark()
    assert world.state("other") is State.COMPLETE_ABORT
    assert world.transactions.faults
    assert world.end(producer) in (Error.PRODUCER_FENCED, Error.INVALID_TXN_STATE)


def test_decided_transaction_completes_after_a_reset() -> None:
    world = TransactionWorld()
    producer = world.ongoing()
    assert world.end(producer) is Error.NONE
    world.markers.clear()
    world.transactions.reset("x", world.now)
    assert world.end(producer) is Error.COORDINATOR_LOAD_IN_PROGRESS
    world.wait(RELOAD_PAUSE_MS)
    world.mark()
    assert world.state() is State.COMPLETE_COMMIT


@pytest.mark.parametrize("state", sorted(NEVER_WRITTEN))
def test_records_with_states_that_are_never_written_are_ignored(state: State, caplog: pytest.LogCaptureFixture) -> None:
    """Such a record is forged, and no transition table has its state."""
    world = transactions_with(state=state)
    assert world.transactions.get("bad") is None
    assert "is never written" in caplog.text
    assert not world.init("bad").error


def test_every_written_state_is_in_every_transition_table() -> None:
    from odradek.groups.transactions import states

    for table in (states.INIT, states.ADD, states.COMMIT, states.ABORT):
        assert set(table) == set(State) - NEVER_WRITTEN


def test_exception_before_an_append_reloads_the_groups_of_its_partition(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(initial_delay_ms=0)
    monkeypatch.setattr(FakeLog, "max_batch_bytes", lambda log, partition: 1 // 0)
    token = world.commit(5, group="bad")
    monkeypatch.undo()
    assert world.answer(token) == {("t", 0): Error.UNKNOWN_SERVER_ERROR}
    world.wait(RELOAD_PAUSE_MS)
    world.commit(7, group="bad")
    assert world.committed(group="bad") == 7
    assert "reloading its groups" in caplog.text
