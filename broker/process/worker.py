"""Role worker: enters the broker, then serves (odradek.workers.worker)."""

from __future__ import annotations

import signal
from pathlib import Path

from odradek.broker.process import process
from odradek.broker.process.process import Signals
from odradek.ipc.roles import worker_role
from odradek.workers.worker import Worker


def main(run_dir: Path, number: int) -> None:
    """Run worker `number` of the broker in `run_dir` until SIGTERM, then drain."""
    signals = Signals(signal.SIGTERM, signal.SIGINT)
    worker = Worker(process.enter(worker_role(number), run_dir))
    worker.run(signals.fileno(), lambda: bool(signals.drain()))
