"""Finds a process that holds a partition's lock and makes no progress: stopped, or waiting for a dead disk.

A process that waits for a lock writes into the slot since when; a process that gets the lock, or renews it, clears
that (ipc.slots has the races; ipc.renewal). A wait longer than `odradek.lock.stall.ms` on a lock that is still held,
by the same process at two checks, shows a stuck holder. Killing it frees the lock, and the next holder repairs the
partition. The default is long because a disk may be slow, which is no fault of the process that waits for it; a stopped
process is found sooner (broker.supervisor.stopped_processes). A process under a debugger is left alone.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

from odradek.broker.supervisor import spawn
from odradek.broker.supervisor.stopped_processes import TRACED, process_state
from odradek.ipc.locks import PartitionLocks
from odradek.ipc.slots import SlotTable

log = logging.getLogger(__name__)


LONGEST_LOOK_S = 1.0
_LOOKS = 5  # a sweep of all slots costs more than the rest of a turn


class LockWait(NamedTuple):
    """A process has waited for `slot`'s lock since `since_ms` (CLOCK_MONOTONIC); `holder` is a pid."""

    slot: int
    holder: int
    since_ms: int


class StuckHolders:
    """The supervisor's check of all locks, several times within `stall_ms`."""

    def __init__(self, slots: SlotTable, locks: PartitionLocks, stall_ms: int) -> None:
        self._slots = slots
        self._locks = locks
        self._stall_ms = stall_ms
        self._suspects: set[LockWait] = set()
        self._period = min(LONGEST_LOOK_S, stall_ms / 1000 / _LOOKS)
        self._next_check = 0.0

    def turn(self, is_ours: Callable[[int], bool]) -> None:
        """Call in every turn of a loop: sweeps when it is due."""
        now = time.monotonic()
        if now >= self._next_check:
            self._next_check = now + self._period
            self.sweep(is_ours)

    def sweep(self, is_ours: Callable[[int], bool]) -> list[int]:
        """Kill holders that were stuck at the last sweep and still are; returns their pids."""
        now_ms = time.monotonic_ns() // 1_000_000
        waits = {LockWait(*found) for found in self._slots.contended()}
        stuck = {wait for wait in waits if now_ms - wait.since_ms >= self._stall_ms and self._is_held(wait)}
        killed = [wait.holder for wait in stuck & self._suspects if is_ours(wait.holder) and self._kill(wait)]
        self._suspects = stuck
        return killed

    def _is_held(self, wait: LockWait) -> bool:
        """The entry may outlive the wait (its writer died, or gave up); then the lock is free."""
        return wait.holder > 0 and self._locks.held(wait.slot)

    def _kill(self, wait: LockWait) -> bool:
        def still_stuck() -> bool:
            if process_state(wait.holder) == TRACED:
                return False
            return wait in {LockWait(*found) for found in self._slots.contended()} and self._is_held(wait)

        killed = spawn.signal_exactly(wait.holder, signal.SIGKILL, still_stuck)
        if killed:
            log.error(
                "killed process %d: it held the lock of partition slot %d for more than odradek.lock.stall.ms=%d",
                wait.holder,
                wait.slot,
                self._stall_ms,
            )
        return killed
