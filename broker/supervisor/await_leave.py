"""`odradek systemd leave`: waits until the controller process has left the cluster
(broker.controller.member.controlled_shutdown).

If the controller process dies meanwhile, or is just restarting, the wait goes on: its successor sees that the broker
stops. The wait has a limit: systemd does not restart a unit that it is about to stop.
"""

from __future__ import annotations

import time
from pathlib import Path

from odradek.broker.process.process import wait_for
from odradek.ipc import roles, shm
from odradek.ipc.doorbell import Ringer
from odradek.ipc.locks import RoleLocks
from odradek.ipc.shm import Shared

_AWAY_S = 10.0  # without a controller process
_STEP_S = 0.05


class LeaveWait:
    """The controlled shutdown of one broker, for its service manager."""

    def __init__(self, shared: Shared, locks: RoleLocks, run_dir: Path, timeout_s: float) -> None:
        """`timeout_s`: see broker.supervisor.stop_limits, `departure_s`."""
        self._shared = shared
        self._locks = locks
        self._run_dir = run_dir
        self._timeout_s = timeout_s
        self._away_at = 0.0  # when the wait for an absent controller process ends

    def wait(self) -> bool:
        """Have the leadership of this broker's partitions moved as far as possible; False when not done in time."""
        self._shared.control.words[shm.DRAINING] = 1
        Ringer(self._run_dir).ring(roles.CONTROLLER)
        self._away_at = time.monotonic() + _AWAY_S
        wait_for(self._over, self._timeout_s, _STEP_S)
        return self._shared.left_cluster

    def _over(self) -> bool:
        if self._locks.alive(roles.CONTROLLER):
            self._away_at = time.monotonic() + _AWAY_S
        return self._shared.left_cluster or time.monotonic() >= self._away_at
