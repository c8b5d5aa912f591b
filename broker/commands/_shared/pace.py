"""Limits how many records a producer sends in a second."""

from __future__ import annotations

import time
from collections.abc import Callable


def pacing(throughput: float) -> Callable[[int], None]:
    """A function that sleeps when the send rate exceeds `throughput` records per second; 0 or less: no limit."""
    if throughput <= 0:
        return lambda number: None
    started = time.monotonic()

    def pace(number: int) -> None:
        ahead = number / throughput - (time.monotonic() - started)
        if ahead > 0.002:
            time.sleep(ahead)

    return pace
