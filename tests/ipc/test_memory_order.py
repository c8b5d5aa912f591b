"""Ordered stores: x86 needs no barriers; the code for machines that reorder stores works on x86 too."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

import pytest

from odradek.ipc import membarrier, memory_order, region, slots
from odradek.ipc.roles import COORDINATOR
from odradek.ipc.shm import Shared
from odradek.ipc.slots import F_LEO, FencedSlot, Slot, SlotState

from ..harness.process import die_with_parent

ROUNDS = 1000


def test_slot_class_depends_on_the_memory_model(any_machine: str, shared: Shared) -> None:
    assert type(shared.slots[0]) is (Slot if any_machine == "tso" else FencedSlot)
    shared.slots[0].dirty = 5
    assert shared.slots[0].dirty == Shared.attach(shared.prefix).slots[0].dirty == 5


def test_x86_uses_no_barrier(monkeypatch: pytest.MonkeyPatch, shared: Shared) -> None:
    def barrier() -> None:
        raise AssertionError("a barrier on x86")

    monkeypatch.setattr(memory_order, "TSO", True)
    monkeypatch.setattr(membarrier, "barrier", barrier)
    shared.slots[0].publish(SlotState(leo=1))
    shared.slots[0].dirty = 1
    shared.metadata.publish(1, b"one")
    memory_order.fence()


def test_each_publish_has_its_barriers(monkeypatch: pytest.MonkeyPatch, shared: Shared) -> None:
    """The copy is written before the sequence names it, and the sequence before the next barrier ends."""
    seen: list[tuple[int, int]] = []
    slot = FencedSlot(0, shared.slots._regions[0])

    def barrier() -> None:
        copies = [slots._COPY_STRUCT.unpack(slot.map[copy])[F_LEO] for copy in slot._copies]
        seen.append((slot.sequence, copies[(len(seen) // 2 + 1) & 1]))

    monkeypatch.setattr(membarrier, "barrier", barrier)
    for leo in (7, 8):
        slot.publish(SlotState(leo=leo))
    assert seen == [(0, 7), (1, 7), (1, 8), (2, 8)]


@pytest.mark.parametrize("is_named", [False, True])
def test_region_and_metadata_are_whole_before_they_are_published(
    monkeypatch: pytest.MonkeyPatch, shared: Shared, is_named: bool
) -> None:
    """A region is written before its magic, metadata before its version; a barrier separates the two. On a kernel
    without O_TMPFILE the region has its name from the beginning.
    """
    seen: list[tuple[int, bytes | None]] = []
    path = Path(region.SHM + shared.metadata._name(1))
    if is_named:
        monkeypatch.setattr(region, "_new_file", lambda name: region._new_named_file(region.SHM + name))

    def barrier() -> None:
        assert path.exists() is (is_named or len(seen) == 1)
        body = path.read_bytes() if path.exists() else bytes(8)
        seen.append((shared.metadata.version, body[-8:] if int.from_bytes(body[:8], sys.byteorder) else None))

    monkeypatch.setattr(memory_order, "TSO", False)
    monkeypatch.setattr(membarrier, "barrier", barrier)
    shared.metadata.publish(1, b"whatever")
    assert seen == [(0, None), (0, b"whatever")]


def test_a_dirty_slot_is_seen_before_its_files_change(monkeypatch: pytest.MonkeyPatch, shared: Shared) -> None:
    seen: list[int] = []
    slot = FencedSlot(0, shared.slots._regions[0])
    monkeypatch.setattr(membarrier, "barrier", lambda: seen.append(slot.dirty))
    slot.dirty = 3
    assert seen == [3]


def test_kernel_without_membarrier_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membarrier, "_number", ctypes.c_long(1 << 20))
    with pytest.raises(membarrier.NoBarrier, match="membarrier: Function not implemented"):
        membarrier.barrier()


def test_a_waiter_and_a_publisher_never_miss_each_other(any_machine: str, shared: Shared) -> None:
    """Both store and then read, so at least one sees the other; the wakeup of delayed requests depends on it."""
    ours, theirs = shared.slots[0], shared.slots[1]
    pid = os.fork()
    if not pid:
        die_with_parent()
        _publish_each_round(Shared.attach(shared.prefix))
    try:
        for number in range(1, ROUNDS):
            theirs.publish(SlotState(leo=number))  # go
            ours.wait(COORDINATOR)
            memory_order.fence()
            found = ours.read()[F_LEO] >= number
            while shared.slots[2].read()[F_LEO] < number:
                os.sched_yield()
            rung = shared.slots[2].read()[slots.F_HW]
            assert found or rung, f"round {number}"
            ours.waiters()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _publish_each_round(shared: Shared) -> None:
    ours, told, done = shared.slots[0], shared.slots[1], shared.slots[2]
    for number in range(1, ROUNDS):
        while told.read()[F_LEO] < number:
            os.sched_yield()
        ours.publish(SlotState(leo=number))
        memory_order.fence()  # releasing the lock has this effect
        rung = bool(ours.waiters())
        done.publish(SlotState(leo=number, hw=rung))
    os._exit(0)
