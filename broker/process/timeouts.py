"""Actions that a process runs at a deadline unless they are cancelled; cancelled ones are not kept."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

Cancel = Callable[[], object]


class Timeouts:
    """Actions by the time, in seconds of the caller's clock, at which they are due."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._actions: dict[int, tuple[float, Callable[[], None]]] = {}

    def __len__(self) -> int:
        return len(self._actions)

    def add(self, at: float, action: Callable[[], None]) -> Cancel:
        """`due` calls `action` from `at` on, unless the returned function is called first; later that does nothing."""
        number = next(self._numbers)
        self._actions[number] = at, action
        return partial(self._actions.pop, number, None)

    def next(self) -> float:
        """When the next action is due; infinity: none."""
        return min((at for at, _ in self._actions.values()), default=float("inf"))

    def due(self, now: float) -> None:
        """Call all due actions, in the order in which they were added; each may add and cancel others."""
        for number in [number for number, (at, _) in self._actions.items() if at <= now]:
            if number in self._actions:
                self._actions.pop(number)[1]()
