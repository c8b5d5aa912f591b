"""Bounds logins that are being checked or have just failed, for each sender and for all together. Pure.

A failed one keeps its place until its answer is sent, which is late: so a sender (networks.network) tries at most
MOST_OF_ONE passwords in that time. A reader who has logged in before needs no place.
"""

from __future__ import annotations

from collections import Counter

from odradek.broker.exporter.access.networks import network

MOST, MOST_OF_ONE = 64, 8


class Attempts:
    """The logins under way."""

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()

    def begin(self, host: str) -> bool:
        """Take a place; False where there is none."""
        sender = network(host)
        if self._of[sender] >= MOST_OF_ONE or self._of.total() >= MOST:
            self._clear(sender)
            return False
        self._of[sender] += 1
        return True

    def end(self, host: str) -> None:
        """Give it back."""
        sender = network(host)
        self._of[sender] -= 1
        self._clear(sender)

    def _clear(self, sender: str) -> None:
        if self._of[sender] <= 0:
            del self._of[sender]
