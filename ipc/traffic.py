"""The recent traffic of throttled replicas that each process sent or received (KIP-73), in time samples.

Layout    : in region `control` after the process table, ROW words for each role: SAMPLES pairs of sample number, bytes.
            Sample number n has the pair n % SAMPLES. It covers the time n * width ≤ t < (n + 1) * width, in ms of
            CLOCK_MONOTONIC; all processes take the width from the same configuration.
Owner     : the supervisor creates the region.
Writers   : each row only its own process: a worker the bytes it sends to followers, the replicator those it receives.
Lock      : none; single words. A reused pair gets zero bytes before its new number, so that no reader takes an old
            sample's bytes for those of a new one.
Crash rule: a row outlives its process, and its samples expire with time; a death in between loses one count.
"""

from __future__ import annotations

from odradek.ipc.roles import ROLES

SAMPLES = 32
ROW = 2 * SAMPLES
WORDS = ROLES * ROW


class Traffic:
    """The rows, over `words` from `first` on."""

    def __init__(self, words: memoryview, first: int) -> None:
        self._words = words
        self._first = first

    def add(self, role: int, number: int, size: int) -> None:
        """Add `size` bytes to sample `number` of `role`. Only its own process calls it, and never back in time."""
        words, pair = self._words, self._first + role * ROW + 2 * (number % SAMPLES)
        if words[pair] != number:
            words[pair + 1] = 0
            words[pair] = number
        words[pair + 1] += size

    def total(self, roles: range, number: int) -> int:
        """The bytes that `roles` have moved in sample `number`."""
        pair, end = self._first + roles.start * ROW + 2 * (number % SAMPLES), self._first + roles.stop * ROW
        numbers = self._words[pair:end:ROW].tolist()
        if number not in numbers:
            return 0
        sizes = self._words[pair + 1 : end : ROW].tolist()
        return sum(size for found, size in zip(numbers, sizes, strict=True) if found == number)
