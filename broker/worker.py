"""A worker's entry: takes its place in the broker, then is `workers.worker.Worker` until SIGTERM."""

from __future__ import annotations

import signal
from pathlib import Path

from odradek.broker import process
from odradek.ipc import roles


def main(run_dir: Path, worker_id: int) -> None:
    """Be worker `worker_id` of the broker with this run directory: serve until SIGTERM, drain, return."""
    from odradek.workers.worker import Worker

    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _frame: told.append(received))
    me = process.enter(roles.worker_role(worker_id), run_dir)
    Worker(me, lambda: bool(told)).run()
