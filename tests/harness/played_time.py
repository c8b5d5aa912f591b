"""A clock that only tests advance, in place of the `time` that a module has imported."""

from __future__ import annotations


class PlayedTime:
    """`sleep` returns at once, and it is later then."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
