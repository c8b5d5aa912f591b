"""How a worker waits for what comes next: asleep as a rule, awake for some microseconds while requests come quickly.

Going to sleep and being woken costs more than a small request does: the timer, the switch to the idle task and back,
in a virtual machine an exit to the host, and caches that are cold afterwards. A client that waits for each answer is
back after some 20 to 60 µs; looking for it that long costs little more than sleeping (a tenth was measured), and it is
answered sooner (half as many messages again were measured). So after several short gaps in a row the worker stays
awake, for `spin_us` at most; when nothing came in that time it sleeps, and only many short gaps more make it try again.
Where gaps are long, as with 2,000 messages a second, it never does.
"""

from __future__ import annotations

import time
from collections.abc import Callable

Events = list[tuple[int, int]]

_SHORT_GAPS = 8  # so many in a row are no accident
_PENALTY = 100  # so many more when that was wrong


class BusyPoll:
    """Waits by `poll(seconds)`; gaps below `spin_us` microseconds are short (0: never stay awake). `clock`: ns."""

    def __init__(
        self, poll: Callable[[float], Events], spin_us: int, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._poll = poll
        self._spin = spin_us * 1000
        self._clock = clock
        self._short = 0  # gaps in a row, less a penalty

    def wait(self, timeout: float) -> Events:
        """What is ready within `timeout` seconds."""
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
        """Never gives the processor away: who is woken here takes it, and who yields waits for a whole time slice."""
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
