"""What a broker inside a program leaves on the machine: its folder, run directory, shared memory and processes."""

from __future__ import annotations

from pathlib import Path

import psutil

from odradek.ipc.rundir import broker_key, default_base, shm_prefix

from ..harness.process import command_words, shm_names


def left(folder: Path) -> list[str]:
    """All that is left of the broker in `folder`, as text."""
    data = folder / "data"
    run_dir = default_base() / broker_key(data)
    processes = [one.pid for one in psutil.process_iter() if any(str(folder) in word for word in command_words(one))]
    return [
        *(str(path) for path in (folder, run_dir) if path.exists()),
        *shm_names(shm_prefix(data)),
        *(f"process {pid}" for pid in processes),
    ]
