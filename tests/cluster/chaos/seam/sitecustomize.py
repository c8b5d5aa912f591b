"""Python imports this in every process of a broker whose PYTHONPATH begins with this folder: slow disks, and
what tests/faults/seam does.

ODRADEK_TEST_SLOW names a file: while it is there, its text says how many seconds each fsync takes.
"""

from __future__ import annotations

import os
import runpy
import time
from collections.abc import Callable
from pathlib import Path

_SLOW = os.environ.get("ODRADEK_TEST_SLOW", "")


def _slow(real: Callable[[int], None]) -> Callable[[int], None]:
    def sync(fd: int) -> None:
        try:
            with open(_SLOW) as file:
                time.sleep(float(file.read()))
        except (FileNotFoundError, ValueError):
            pass
        real(fd)

    return sync


if _SLOW:
    os.fsync = _slow(os.fsync)  # type: ignore[assignment]  # wrapped
    os.fdatasync = _slow(os.fdatasync)  # type: ignore[assignment]  # wrapped
runpy.run_path(str(Path(__file__).parents[3] / "faults" / "seam" / "sitecustomize.py"))
