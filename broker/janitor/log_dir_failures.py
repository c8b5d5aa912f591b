"""Log directories whose disk has failed: every partition there goes offline, the other directories serve on.

Any process that meets a failure marks it in shared memory (ipc.shm, `fail_dir`) and rings the janitor, which alone
does the rest. A directory stays offline until the next start.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence

from odradek.broker.process.partitions import Partitions
from odradek.ipc import roles, slots
from odradek.ipc.shm import Shared
from odradek.storage.files import disks
from odradek.storage.log.partition import Partition

log = logging.getLogger(__name__)

_SERVED = (slots.LEADER, slots.FOLLOWER)
_WARN_AGAIN_S = 60
_MOST_WARNED = 10_000


class LogDirFailureHandler:
    """Used by the janitor; call `turn` in every turn of its loop."""

    def __init__(self, shared: Shared, partitions: Partitions, log_dirs: Sequence[str]) -> None:
        self.broken: set[int] = set()
        self._shared = shared
        self._partitions = partitions
        self._log_dirs = log_dirs
        self._warned: dict[tuple[str, int | None], float] = {}  # time of the last warning
        self._busy = False  # another process held the lock of a partition that must go offline

    def report(self, partition: Partition, error: OSError) -> None:
        """Handle an error of a partition's disk."""
        self.handle_error(partition.state().log_dir, repr(partition), error)

    def handle_error(self, log_dir: int, what: str, error: OSError) -> None:
        """A broken disk takes its log directory offline, other errors are only logged."""
        if disks.is_broken(error):
            log.error("%s: %s", what, error)
            self._shared.fail_dir(log_dir)
            self.turn()
        else:
            self._warn(what, error)

    def _warn(self, what: str, error: OSError) -> None:
        """Log at most once a minute for each partition or path and error: the work is retried often."""
        now, key = time.monotonic(), (what, error.errno)
        if now - self._warned.get(key, -math.inf) < _WARN_AGAIN_S:
            return
        if len(self._warned) >= _MOST_WARNED:
            self._warned.clear()
        self._warned[key] = now
        log.warning("%s: %s; retrying", what, error)

    def turn(self) -> None:
        """Take the partitions in failed directories offline; retries those whose lock was held."""
        failed = {number for number in self._shared.failed_dirs() if number < len(self._log_dirs)}
        for number in failed - self.broken:
            log.critical("%s is offline: its disk failed; repair it and restart the broker", self._log_dirs[number])
        if failed != self.broken or self._busy:
            self.broken = failed
            deletable = [partition for partition in self._partitions if self._affected(partition)]
            self._busy = sum(map(_take_offline, deletable)) < len(deletable)
            self._partitions.log.ring(roles.CONTROLLER)  # which reports it to the cluster

    def _affected(self, partition: Partition) -> bool:
        state = partition.state()
        known = state.incarnation == partition.incarnation and state.state in _SERVED
        return known and state.log_dir in self.broken


def _take_offline(partition: Partition) -> bool:
    """False while another process has the lock. Without repair, which would need the disk."""
    slot, locks = partition.slot, partition.owner.locks
    if not locks.try_lock(slot.number):
        partition.record_wait()
        return False
    try:
        slot.record_holder(partition.owner.pid)
        if slot.state().incarnation == partition.incarnation and slot.state().state in _SERVED:
            slot.update(state=slots.OFFLINE)
    finally:
        partition.release()
    return True
