"""What a process does at the end of a time, unless it is called off before: nothing called off is kept."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

Cancel = Callable[[], object]


class Timeouts:
    """Actions by the time, in seconds of one clock, at which they are due. Knows no clock itself."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._actions: dict[int, tuple[float, Callable[[], None]]] = {}

    def __len__(self) -> int:
        return len(self._actions)

    def add(self, at: float, action: Callable[[], None]) -> Cancel:
        """`due` calls `action` from `at` on, unless what this returns is called first; afterwards that does nothing."""
        number = next(self._numbers)
        self._actions[number] = at, action
        return partial(self._actions.pop, number, None)

    def next(self) -> float:
        """When the next is due; infinity: none."""
        return min((at for at, _ in self._actions.values()), default=float("inf"))

    def due(self, now: float) -> None:
        """Call all that is due, in the order in which it was added; each may add and call off others."""
        for number in [number for number, (at, _) in self._actions.items() if at <= now]:
            if number in self._actions:
                self._actions.pop(number)[1]()
