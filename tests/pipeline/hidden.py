"""Forged metadata responses of a stand-in that lack a topic, as from a broker with stale metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .stand_in import METADATA, StandIn


@contextmanager
def hidden(stand_in: StandIn, topic: str) -> Iterator[None]:
    """Leave the topic out of all metadata responses within the block."""
    stand_in.lies[METADATA] = Hiding(topic, lambda _: True)
    yield
    del stand_in.lies[METADATA]


class Hiding:
    """Leaves the topic out of those metadata responses that have it and whose number, from 0 on, is `chosen`."""

    def __init__(self, topic: str, chosen: Callable[[int], bool]) -> None:
        self._topic, self._chosen = topic, chosen
        self._count = self.hidden = 0

    def __call__(self, _: Any, true: Any) -> Any:
        others = [one for one in true.topics if one.name != self._topic]
        if len(others) < len(true.topics):
            if self._chosen(self._count):
                true.topics = others
                self.hidden += 1
            self._count += 1
        return true
