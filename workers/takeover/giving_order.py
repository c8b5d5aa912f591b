"""In which order a worker gives its connections: each rests as briefly as possible. No sockets, no clock.

A client whose connection rests gets no answer until the successor serves it. So a connection rests when its turn comes
and not before, MOST of them at a time, and those that rest are looked at first:

    fresh   its turn has not come; it is served as ever
    rests   what was taken of it is about to be answered; looked at in every turn
    slow    it has rested for LONG_S: a rebalance, or a client that does not read. It holds up no other: the next fresh
            one has its turn, and slow ones are looked at behind them

A turn ends when the caller's time is over, and the next one goes on where it ended: with thousands of connections those
at the end of the list wait no longer than those at its beginning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

MOST = 64
LONG_S = 0.05

Key = Any  # hashable


class GivingOrder:
    """Call `begin`, then `turn` again and again; for each key of a turn `rests` or `leaves` before the next one."""

    def __init__(self) -> None:
        self._fresh: deque[Key] = deque()
        self._resting: dict[Key, float] = {}  # since when
        self._slow: dict[Key, None] = {}

    @property
    def has_fresh(self) -> bool:
        """Whether some have not had their turn."""
        return bool(self._fresh)

    @property
    def is_empty(self) -> bool:
        """Whether all have left."""
        return not (self._fresh or self._resting or self._slow)

    def begin(self, keys: Iterable[Key]) -> None:
        """These are to be given, besides those that rest already. Call it while there is no fresh one."""
        self._fresh = deque(key for key in keys if key not in self._resting and key not in self._slow)

    def turn(self, now: float, has_time: Callable[[], bool]) -> Iterator[Key]:
        """Those to look at now, each at most once, while `has_time`."""
        self._age(now)
        waiting, slow = list(self._resting), list(self._slow)
        for key in waiting:
            if not has_time():
                return
            yield key
        while self._fresh and len(self._resting) < MOST and has_time():
            yield self._fresh.popleft()
        for key in slow:
            if not has_time():
                return
            yield key

    def _age(self, now: float) -> None:
        for key, since in list(self._resting.items()):
            if now - since >= LONG_S:
                del self._resting[key]
                self._slow[key] = None

    def rests(self, key: Key, now: float) -> None:
        """It was looked at, and is not quiet yet."""
        if key in self._slow:
            del self._slow[key]
            self._slow[key] = None  # the others first, next time
        else:
            self._resting.setdefault(key, now)

    def leaves(self, key: Key) -> None:
        """It is given, closed, or stays here."""
        self._resting.pop(key, None)
        self._slow.pop(key, None)
