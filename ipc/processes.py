"""The process table: one row for each role, with its state and counters. Metrics read it directly.

Layout    : in region `control`, ROW words for each role: the columns below, in order.
Owner     : the supervisor creates the region; each process clears and fills its own row once it holds its role byte.
Writers   : each row only its own process (the supervisor clears the pid and state of a dead process, counts those
            that it wanted to end, and notes those that get no successor).
Lock      : none; single words. roles.lock says which processes are alive, never this table.
Crash rule: a row outlives its process; the next process of that role continues its counters.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from odradek.ipc.roles import ROLES, SUPERVISOR, role_name

ROW = 32

COLUMNS = (
    "pid",
    "state",
    "starts",
    "started_ms",
    "meta_version",
    "connections",
    "requests",
    "produce_requests",
    "fetch_requests",
    "messages_in",
    "bytes_in",
    "bytes_out",
    "appends",
    "errors",
    "handoffs",
    "delayed_operations",
    "log_version",
    "lock_waits",
    "closed",
    "recovered",
    "certificate_expires",  # of those of the listeners the first to expire, in seconds since 1970; 0: there is none
    "zookeeper_lost_ms",  # when the controller process lost the connection to ZooKeeper, in ms since 1970; 0: it is up
    "unclean_elections",  # of leaders, by the controller process while its broker was the cluster's controller
    "retired",  # ends that were wanted (scale, upgrade); the supervisor counts them
    "is_retired",  # 1: no process of this role is wanted any more (a worker after scale or upgrade)
)
COLUMN = {name: number for number, name in enumerate(COLUMNS)}

DEAD, STARTING, RUNNING, DRAINING = range(4)
STATES = ("dead", "starting", "running", "draining")
RETIRED = "retired"  # in the place of dead, where no process is missing


class ProcessTable:
    """The rows, over the words of the control region from `first` on."""

    def __init__(self, words: memoryview, first: int) -> None:
        self._words = words
        self._first = first

    def row(self, role: int) -> memoryview:
        """`role`'s words, indexed by COLUMN, for counters in a hot path."""
        start = self._first + role * ROW
        return self._words[start : start + ROW]

    def get(self, role: int, column: str) -> int:
        """One value of one row."""
        return self._words[self._first + role * ROW + COLUMN[column]]

    def set(self, role: int, column: str, value: int) -> None:
        """Store one value of one row. Only the row's own process calls it."""
        self._words[self._first + role * ROW + COLUMN[column]] = value

    def add(self, role: int, column: str, amount: int = 1) -> None:
        """Add to a counter of one row. Only the row's own process calls it."""
        self._words[self._first + role * ROW + COLUMN[column]] += amount

    def enter(self, role: int, state: int = STARTING) -> None:
        """Take over the row: a process calls this once it holds its role byte."""
        row = self.row(role)
        row[COLUMN["pid"]] = os.getpid()
        row[COLUMN["starts"]] += 1
        row[COLUMN["started_ms"]] = time.time_ns() // 1_000_000
        row[COLUMN["meta_version"]] = row[COLUMN["connections"]] = row[COLUMN["delayed_operations"]] = 0
        row[COLUMN["certificate_expires"]] = row[COLUMN["zookeeper_lost_ms"]] = row[COLUMN["is_retired"]] = 0
        row[COLUMN["state"]] = state

    def pids(self) -> dict[int, int]:
        """Role → pid of every process except the supervisor that has entered and whose row is not cleared."""
        numbers = self._words[self._first : self._first + ROLES * ROW][COLUMN["pid"] :: ROW].tolist()
        return {role: pid for role, pid in enumerate(numbers) if pid > 1 and role}

    def is_hosted(self, role: int) -> bool:
        """Whether the supervisor itself has this role: what the kernel says of its pid counts once, for it."""
        return role != SUPERVISOR and self.get(role, "pid") == self.get(SUPERVISOR, "pid")

    def snapshot(self) -> list[dict[str, int | str]]:
        """Every row that has ever had a process, with names."""
        rows = []
        for role in range(ROLES):
            row = self.row(role)
            if row[COLUMN["starts"]]:
                values: dict[str, int | str] = {name: row[number] for number, name in enumerate(COLUMNS)}
                rows.append({**values, "role": role, "name": role_name(role), "state": STATES[row[COLUMN["state"]]]})
        return rows


def state_of(row: Mapping[str, int | str], alive: bool) -> str:
    """The state to show of a row of `snapshot`; `alive` as roles.lock says."""
    if alive:
        return str(row["state"])
    return RETIRED if row["is_retired"] else STATES[DEAD]


TABLE_WORDS = ROLES * ROW
