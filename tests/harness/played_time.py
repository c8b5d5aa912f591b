"""A clock that only tests advance, instead of the `time` that a module has imported."""

from __future__ import annotations


class PlayedTime:
    """`sleep` returns at once and advances the clock."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
