"""Partition slots: a publish is atomic, even if the writer is killed in the middle."""

from __future__ import annotations

import mmap
import os
import signal
import time

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.ipc import slots
from odradek.ipc.region import Region
from odradek.ipc.roles import COORDINATOR, JANITOR
from odradek.ipc.shm import Shared
from odradek.ipc.slots import FIELDS, SlotState

from ..harness.process import wait_until


def test_a_published_state_is_read_back(any_machine: str, shared: Shared) -> None:
    state = SlotState(*range(100, 100 + len(FIELDS)))
    shared.slots[3].publish(state)
    assert shared.slots[3].state() == state
    assert shared.slots[2].state() == SlotState(*[0] * len(FIELDS))


def test_another_mapping_sees_a_published_state(shared: Shared) -> None:
    shared.slots[5].publish(SlotState(leo=42))
    assert Shared.attach(shared.prefix).slots[5].state().leo == 42


def test_names_and_numbers_of_fields_agree() -> None:
    for number, name in enumerate(FIELDS):
        assert getattr(slots, f"F_{name.upper()}") == number


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=len(FIELDS), max_size=len(FIELDS)))
@settings(max_examples=50)
def test_any_64_bit_values_are_read_back(values: list[int]) -> None:
    region = Region("", mmap.mmap(-1, Region.at + slots.CHUNK * slots.STRIDE * 8))
    slot = slots.Slot(1023, region)
    slot.publish(values)
    assert list(slot.read()) == values


def test_columns_of_unused_slots_take_no_memory(shared: Shared) -> None:
    """A read makes the page of shared memory. The table of a small broker would be its largest region."""
    table = shared.slots
    table[1].publish(SlotState(leo=42, state=slots.LEADER))
    before = _resident(shared)
    assert table.column(slots.F_LEO) == [0, 42, *[0] * (slots.CHUNK - 2)]
    assert table.numbers(slots.LEADER) == [1]
    assert (table.contended(), table.damaged(), len(table.sequences())) == ([], [], 2 * 8)
    assert _resident(shared) == before


def _resident(shared: Shared) -> int:
    return os.stat(f"/dev/shm{shared.prefix}slots-0").st_blocks


@given(st.lists(st.integers(0, slots.CHUNK - 1), max_size=20), st.booleans())
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_columns_have_every_used_slot_in_any_order(shared: Shared, order: list[int], by_older: bool) -> None:
    """A region of an older version has no mark."""
    words = shared.slots.words(0)
    words[: slots.CHUNK * slots.STRIDE] = memoryview(bytes(slots.CHUNK * slots.STRIDE * 8)).cast("q")
    words[slots.USED_ROWS] = 0 if by_older else 1
    for at, number in enumerate(order):
        table = Shared.attach(shared.prefix).slots  # one process each
        table[number].publish(SlotState(leo=at + 1, state=slots.LEADER))
        table[number].mark_contended(7)
    last = {number: at + 1 for at, number in enumerate(order)}
    assert shared.slots.column(slots.F_LEO) == [last.get(number, 0) for number in range(slots.CHUNK)]
    assert shared.slots.numbers(slots.LEADER) == sorted(last)
    assert [number for number, _, _ in shared.slots.contended()] == sorted(last)


@given(st.integers(1, 20), st.integers(1, 20))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_columns_have_the_slots_of_an_older_controller(shared: Shared, before: int, after: int) -> None:
    """After the way back to a version that does not raise the mark: it uses the lowest free slots."""
    words = shared.slots.words(0)
    words[: slots.CHUNK * slots.STRIDE] = memoryview(bytes(slots.CHUNK * slots.STRIDE * 8)).cast("q")
    words[slots.USED_ROWS] = 1
    table = Shared.attach(shared.prefix).slots
    for number in range(before):
        table[number].publish(SlotState(state=slots.LEADER))
    region = Region.attach(f"{shared.prefix}slots-0", "slots")
    for number in range(before, before + after):
        slots.Slot(number, region).publish(SlotState(state=slots.LEADER))
    assert shared.slots.numbers(slots.LEADER) == list(range(before + after))


def _publish_for_ever(prefix: str) -> None:
    slot = Shared.attach(prefix).slots[0]
    number = slot.read()[0]
    while True:
        number += 1
        slot.publish([number] * len(FIELDS))


def test_readers_never_see_a_mixture_while_writers_are_killed(any_machine: str, shared: Shared) -> None:
    slot, mixtures, last = shared.slots[0], 0, 0
    for _ in range(40):
        pid = os.fork()
        if not pid:
            _publish_for_ever(shared.prefix)
        before = last
        wait_until(lambda: slot.read()[0] > before, 60, "the writer to have begun")  # noqa: B023 (called at once)
        until = time.monotonic() + 0.01
        while time.monotonic() < until:
            values = slot.read()
            mixtures += len(set(values)) != 1
            assert values[0] >= last
            last = values[0]
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert len(set(slot.read())) == 1
    assert mixtures == 0
    assert last > 0


def test_sweeps_never_see_half_a_publish(any_machine: str, shared: Shared) -> None:
    """A slot in use that looked FREE to a respawned controller would be given to another partition."""
    shared.slots[0].publish([1] * len(FIELDS))
    pid = os.fork()
    if not pid:
        _publish_for_ever(shared.prefix)
    try:
        last = 0
        for _ in range(3000):
            value = shared.slots.column(slots.F_STATE)[0]
            assert value >= max(1, last)
            last = value
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_waiters_are_returned_once(any_machine: str, shared: Shared) -> None:
    slot = shared.slots[1]
    assert not slot.waiters()
    slot.wait(COORDINATOR)
    slot.wait(JANITOR)
    assert slot.waiters() == [COORDINATOR, JANITOR]
    assert not slot.waiters()


def test_contention_is_recorded_until_the_lock_is_taken(shared: Shared) -> None:
    slot = shared.slots[9]
    slot.mark_contended(1000)
    slot.mark_contended(2000)
    assert shared.slots.contended() == [(9, 0, 1000)]
    slot.record_holder(4711)
    assert shared.slots.contended() == []


def test_sweeps_find_slots_by_state_and_read_columns(shared: Shared) -> None:
    shared.slots[4].publish(SlotState(state=slots.RECOVERING, leo=4))
    shared.slots[6].publish(SlotState(state=slots.LEADER, leo=6))
    assert shared.slots.numbers(slots.RECOVERING) == [4]
    assert shared.slots.numbers(slots.RECOVERING, slots.LEADER) == [4, 6]
    column = shared.slots.column(slots.F_LEO)
    assert (column[4], column[5], column[6]) == (4, 0, 6)


def test_table_grows_while_other_processes_are_attached(shared: Shared) -> None:
    other = Shared.attach(shared.prefix)
    shared.slots.create(slots.CHUNK + 1)
    shared.slots[slots.CHUNK].publish(SlotState(leo=11))
    assert other.slots[slots.CHUNK].state().leo == 11
    assert other.slots.capacity == 2 * slots.CHUNK


def test_unpublished_field_changes_in_place(shared: Shared) -> None:
    slot = shared.slots[4]
    for number in (1, 2):
        slot.publish(SlotState(leo=number, pstate_leo=0))
        sequence = slot.sequence
        slot.set_unpublished(slots.F_PSTATE_LEO, number)
        assert slot.state() == SlotState(leo=number, pstate_leo=number)
        assert slot.sequence == sequence
