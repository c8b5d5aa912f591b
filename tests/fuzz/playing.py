"""Play sequences against one live broker, in chunks; find and shorten a sequence that does harm."""

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
    """A background client, which sequences must not affect."""

    def check(self) -> None:
        """Raise the error of the client, if any."""


class Target(NamedTuple):
    """The broker under test; `made(number)` is a sequence drawn from `seed`."""

    broker: Broker
    watch: Watch
    background: Client
    player: Player
    made: Callable[[int], Script]
    seed: int

    def play(self, numbers: range) -> None:
        """Play the sequences with these numbers."""
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
        """The first sequence that does harm alone, shortened."""
        for number in numbers:
            if self._harms(self.made(number)):
                return str(self._shortened(self.made(number)))
        return "none of them alone"

    def _shortened(self, played: Script) -> Script:
        """The sequence without the steps that the harm does not need."""
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
