"""A stock of producer ids: the controller hands out one block at a time and records it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from odradek.cluster import internal
from odradek.ipc import forward

Taker = Callable[[int], None]


class ProducerIds:
    """A worker's stock of ids that no other process will ever give out."""

    def __init__(self, forward: Callable[..., None]) -> None:
        """`forward` sends a request to the controller process."""
        self._forward = forward
        self._next = self._end = 0
        self._waiting: deque[Taker] = deque()

    def take(self, taker: Taker) -> None:
        """Call `taker(id)` now or when a new block arrives; with -1 when there is none."""
        if self._next < self._end:
            self._next += 1
            taker(self._next - 1)
            return
        self._waiting.append(taker)
        if len(self._waiting) == 1:
            self._forward(internal.PRODUCER_IDS, 0, internal.encode({}), self._arrived)

    def _arrived(self, flags: int, body: bytes) -> None:
        answer = internal.decode(body) if flags == forward.OK else {}
        first, count = answer.get("first", 0), answer.get("count", 0)
        self._next, self._end = first, first + count
        waiting, self._waiting = self._waiting, deque()
        for taker in waiting:
            if count:
                self.take(taker)
            else:
                taker(-1)
