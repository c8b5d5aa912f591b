"""Bounds logins that are being checked or have just failed, for each address and for all together. Pure.

A failed one keeps its place until its answer is sent, which is late: so an address tries at most MOST_OF_ONE passwords
in that time. A reader who has logged in before needs no place.
"""

from __future__ import annotations

from collections import Counter

MOST, MOST_OF_ONE = 64, 8


class Attempts:
    """The logins under way."""

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()

    def begin(self, host: str) -> bool:
        """Take a place; False where there is none."""
        if self._of[host] >= MOST_OF_ONE or self._of.total() >= MOST:
            self._clear(host)
            return False
        self._of[host] += 1
        return True

    def end(self, host: str) -> None:
        """Give it back."""
        self._of[host] -= 1
        self._clear(host)

    def _clear(self, host: str) -> None:
        if self._of[host] <= 0:
            del self._of[host]
