"""Role worker: enters the broker, then serves (odradek.workers.worker)."""

from __future__ import annotations

import signal
from pathlib import Path

from odradek.broker import process
from odradek.broker.process import Signals
from odradek.ipc.roles import worker_role
from odradek.workers.worker import Worker


class _Stop:
    """Whether a signal asked us to stop."""

    def __init__(self) -> None:
        self._signals = Signals(signal.SIGTERM, signal.SIGINT)
        self._asked = False
        self.fileno = self._signals.fileno

    def __call__(self) -> bool:
        self._asked = self._asked or bool(self._signals.take())
        return self._asked


def main(run_dir: Path, number: int) -> None:
    """Be worker `number` of the broker in `run_dir` until SIGTERM, then drain."""
    stop = _Stop()
    worker = Worker(process.enter(worker_role(number), run_dir), stop)
    worker.loop.watch(stop.fileno(), lambda _: None)
    worker.run()
