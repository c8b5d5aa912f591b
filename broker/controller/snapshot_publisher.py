"""Publishes snapshots and security metadata, and tracks which processes have them.

A reply to a change waits until each running worker and the coordinator has written the snapshot's version into its row
of the process table, so that no client then reaches a process that does not know the change. The wait is bounded: a
process that does not acknowledge within ACK_TIMEOUT_S is stopped or stuck, and when it resumes it checks the version
word before it handles anything. The wait excludes the janitor: it answers no client, and may be busy with a disk.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from odradek.ipc import processes, roles
from odradek.ipc.locks import RoleLocks
from odradek.ipc.shm import Shared

log = logging.getLogger(__name__)

ACK_TIMEOUT_S = 1.0
_AWAITED = (roles.COORDINATOR, *range(roles.FIRST_WORKER, roles.ROLES))
_NOTIFIED = (roles.ACCEPTOR, roles.REPLICATOR, roles.JANITOR, *_AWAITED)
_SERVING = (processes.RUNNING, processes.DRAINING)


class _Waiting(NamedTuple):
    version: int
    deadline: float
    action: Callable[[], None]


class SnapshotPublisher:
    """The published version, and the actions that wait until every process has it."""

    def __init__(self, shared: Shared, locks: RoleLocks, ring: Callable[[int], None]) -> None:
        self._shared = shared
        self._locks = locks
        self._ring = ring
        self._waiting: list[_Waiting] = []

    @property
    def version(self) -> int:
        """The published version."""
        return self._shared.metadata.version

    @property
    def waiting(self) -> bool:
        """Whether `check` has something to wait for."""
        return bool(self._waiting)

    def publish(self, blob: Callable[[int], bytes]) -> int:
        """Publish `blob(version)` as the next version, and ring every process."""
        version = self.version + 1
        self._shared.metadata.publish(version, blob(version))
        for role in _NOTIFIED:
            if self._shared.processes.get(role, "state") != processes.DEAD:
                self._ring(role)
        return version

    def when_acked(self, action: Callable[[], None]) -> None:
        """Call `action` once every process has the current version (at once if all have it)."""
        self._waiting.append(_Waiting(self.version, time.monotonic() + ACK_TIMEOUT_S, action))
        self.check()

    def check(self) -> None:
        """Call the actions whose version has arrived or whose wait expired; call every millisecond while `waiting`."""
        if not self._waiting:
            return
        known, now = self._acked_version(), time.monotonic()
        due = [entry for entry in self._waiting if entry.version <= known or entry.deadline <= now]
        self._waiting = [entry for entry in self._waiting if entry not in due]
        if any(entry.version > known for entry in due):
            log.warning("metadata version %d not acknowledged by: %s", self.version, self._unacked())
        for entry in due:
            entry.action()

    def _acked_version(self) -> int:
        """The lowest version among the serving processes."""
        table = self._shared.processes
        behind = [role for role in _AWAITED if table.get(role, "state") in _SERVING]
        versions = [
            table.get(role, "meta_version")
            for role in behind
            if table.get(role, "meta_version") < self.version and self._locks.alive(role)
        ]
        return min(versions, default=self.version)

    def _unacked(self) -> str:
        table = self._shared.processes
        late = [
            roles.role_name(role)
            for role in _AWAITED
            if table.get(role, "state") in _SERVING and table.get(role, "meta_version") < self.version
        ]
        return ", ".join(late)
