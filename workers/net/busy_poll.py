"""How a worker waits for events: it sleeps as a rule, and busy-polls for some microseconds while requests come quickly.

Sleeping and waking up costs more than a small request: the timer, the switch to the idle task and back, in a virtual
machine an exit to the host, and cold caches afterwards. A client that waits for each answer sends its next request
after some 20 to 60 µs. Polling that long costs little more than sleeping (10 % was measured) and answers sooner (50 %
more messages were measured). So after several short gaps in a row the worker stays awake, for `spin_us` at most. If
nothing arrives in that time it sleeps, and tries again only after many more short gaps. With long gaps, as at 2,000
messages a second, it never busy-polls.
"""

from __future__ import annotations

import time
from collections.abc import Callable

Events = list[tuple[int, int]]

_SHORT_GAPS = 8  # in a row, before the worker stays awake
_PENALTY = 100  # additional short gaps after a busy poll that found nothing


class BusyPoll:
    """Waits with `poll(seconds)`; gaps below `spin_us` microseconds are short (0: never stay awake). `clock`: ns."""

    def __init__(
        self, poll: Callable[[float], Events], spin_us: int, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._poll = poll
        self._spin = spin_us * 1000
        self._clock = clock
        self._short = 0  # gaps in a row, less a penalty

    def wait(self, timeout: float) -> Events:
        """The events that are ready within `timeout` seconds."""
        if timeout <= 0:
            return self._poll(0)
        if self._short >= _SHORT_GAPS:
            return self._awake(timeout)
        clock = self._clock
        begun = clock()
        events = self._poll(timeout)
        self._short = self._short + 1 if clock() - begun < self._spin else min(self._short, 0)
        return events

    def _awake(self, timeout: float) -> Events:
        """Does not yield the CPU: a woken task preempts this one anyway, and a yield costs a whole time slice."""
        poll, clock = self._poll, self._clock
        events = poll(0)
        if not events:
            until = clock() + self._spin
            while not events and clock() < until:
                events = poll(0)
        if not events:
            self._short = -_PENALTY
            events = poll(timeout)
        return events
