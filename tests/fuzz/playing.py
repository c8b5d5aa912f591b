"""Sequences played against one live broker, in chunks; one that does harm is found, and made shorter."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

import pytest

from ..harness.broker import Broker
from .sequences import Player, Script
from .watch import Watch

CHUNK = 100
AT_ONCE = 6


class Client(Protocol):
    """One that must not suffer."""

    def check(self) -> None:
        """Raise what went wrong so far."""


class Target(NamedTuple):
    """What is played against: `made(number)` is a sequence, `seed` what they are drawn from."""

    broker: Broker
    watch: Watch
    background: Client
    player: Player
    made: Callable[[int], Script]
    seed: int

    def play(self, numbers: range) -> None:
        """Play all of these."""
        for at in range(numbers.start, numbers.stop, CHUNK):
            self._chunk(range(at, min(at + CHUNK, numbers.stop)))

    def _chunk(self, numbers: range) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            faults = [fault for fault in pool.map(self._play, numbers) if fault]
        harm = self.watch.fault() or "\n".join(faults)
        if harm:
            pytest.fail(f"seed {self.seed}, sequences {numbers}:\n{harm}\n{self._culprit(numbers)}")
        self.background.check()

    def _play(self, number: int) -> str:
        try:
            self.player.play(self.made(number))
        except Exception as error:
            return f"sequence {number}: {error!r}"
        return ""

    def _culprit(self, numbers: range) -> str:
        """The shortest of these that does harm alone."""
        for number in numbers:
            if self._harms(self.made(number)):
                return str(self._shortened(self.made(number)))
        return "none of them alone"

    def _shortened(self, played: Script) -> Script:
        """Without each step that it does not need."""
        for step in played.steps:
            shorter = played._replace(steps=[each for each in played.steps if each is not step])
            if self._harms(shorter):
                played = shorter
        return played

    def _harms(self, played: Script) -> bool:
        watch = Watch(self.broker)
        try:
            self.player.play(played)
        except Exception:
            return True
        return bool(watch.fault())
