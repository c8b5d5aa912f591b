"""`odradek systemd leave`: the wait until the controller process has left the cluster
(broker.controller.member.controlled_shutdown).

A controller process that dies meanwhile, or is just being started again, is waited for: its successor sees that the
broker stops. Not for ever: systemd starts nothing again that it is about to stop itself.
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


class Departure:
    """One broker's, as its service manager sees it."""

    def __init__(self, shared: Shared, locks: RoleLocks, run_dir: Path, patience_s: float) -> None:
        """`patience_s`: see broker.supervisor.stop_limits, `departure_s`."""
        self._shared = shared
        self._locks = locks
        self._run_dir = run_dir
        self._patience_s = patience_s
        self._away_at = 0.0  # when a controller process that is away is waited for no more

    def wait(self) -> bool:
        """Have other brokers lead what this one leads, as far as they can; False when nobody has seen to it in time."""
        self._shared.control.words[shm.DRAINING] = 1
        Ringer(self._run_dir).ring(roles.CONTROLLER)
        self._away_at = time.monotonic() + _AWAY_S
        wait_for(self._over, self._patience_s, _STEP_S)
        return self._shared.left

    def _over(self) -> bool:
        if self._locks.alive(roles.CONTROLLER):
            self._away_at = time.monotonic() + _AWAY_S
        return self._shared.left or time.monotonic() >= self._away_at
