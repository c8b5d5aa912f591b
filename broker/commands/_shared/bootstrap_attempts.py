"""Which addresses of --bootstrap-server to connect to, and when to give up: a machine without sockets and clocks.

The addresses are tried in their order: each HEAD_START_S after the one before it, or as soon as another one fails. An
address whose failure another attempt may mend is tried again after a pause, as long as the failure deserves patience.
The attempts are over when none is under way and none will be made. All times are seconds of one clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

HEAD_START_S = 0.25
PATIENCE_S = 1.0  # with an address that refuses or closes connections, as a broker that starts or stops does
FOR_GOOD, FOR_NOW, UNTIL_DEADLINE = 0.0, PATIENCE_S, math.inf
"""The patience with a failure: none; PATIENCE_S since the first attempt; until the deadline."""

_PAUSE_S, _LATER_PAUSE_S = 0.2, 1.0  # between two attempts with an address: within PATIENCE_S, and later


class Failure(NamedTuple):
    """Why an attempt failed; the text says what to change."""

    text: str
    patience_s: float


class BootstrapAttempts:
    """The attempts to connect to the first broker."""

    def __init__(self, addresses: Sequence[str], now: float, deadline: float = math.inf) -> None:
        self._began = now
        self._deadline = deadline
        self._due = {address: now + HEAD_START_S * place for place, address in enumerate(addresses)}
        self._under_way: set[str] = set()
        self._failures: dict[str, Failure] = {}

    def take_due(self, now: float) -> list[str]:
        """The addresses to connect to now."""
        due = [address for address, at in self._due.items() if at <= now]
        for address in due:
            del self._due[address]
            self._under_way.add(address)
        return due

    def failed(self, address: str, failure: Failure, now: float) -> None:
        """The attempt with `address` has failed."""
        self._under_way.discard(address)
        self._failures[address] = failure
        untried = [other for other in self._due if other not in self._failures]
        if untried:
            self._due[untried[0]] = now
        again = now + (_PAUSE_S if now < self._began + PATIENCE_S else _LATER_PAUSE_S)
        if again < min(self._deadline, self._began + failure.patience_s):
            self._due[address] = again

    @property
    def is_over(self) -> bool:
        """Whether to give up."""
        return not self._under_way and not self._due

    def wait_s(self, now: float) -> float | None:
        """For how long nothing is to be done unless an attempt ends; None: for ever."""
        return max(0.0, min(self._due.values()) - now) if self._due else None

    @property
    def text(self) -> str:
        """Why each address has failed; once where the reason is the same."""
        texts = {failure.text for failure in self._failures.values()}
        if len(texts) == 1:
            return texts.pop()
        return "; ".join(f"{address}: {failure.text}" for address, failure in self._failures.items())
