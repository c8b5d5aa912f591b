"""Work on many partitions, in steps, with retries while other processes hold locks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from odradek.storage.log.partition import LockNotAvailable
from odradek.workers.dispatch.api import WAIT

T = TypeVar("T")


def each(places: Iterable[T], act: Callable[[T], None]) -> Iterator[object]:
    """Call `act` on each place, one per step (Worker.begin); retry a moment later where it raises LockNotAvailable."""
    left = list(places)
    while left:
        busy = []
        for place in left:
            try:
                act(place)
            except LockNotAvailable:
                busy.append(place)
            yield None
        left = busy
        if left:
            yield WAIT
