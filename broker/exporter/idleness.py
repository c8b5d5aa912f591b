"""How idle the workers were in the last minute: the share of time in which they used no CPU.

Kafka's counterpart are the idle shares of its network and request handler threads; a worker does the work of both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

_STEP_S = 10.0
_STEPS = 6


class Idleness:
    """Keeps the workers' CPU times of a minute."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, Mapping[str, float]]] = deque(maxlen=_STEPS)

    def share(self, now: float, cpu_s: Mapping[str, float]) -> float:
        """The mean over the workers that live, from 0 to 1; `cpu_s` is the CPU time of each by name. 1 without any."""
        if not self._kept or now - self._kept[-1][0] >= _STEP_S:
            self._kept.append((now, dict(cpu_s)))
        since, before = self._kept[0]
        if now <= since:
            return 1.0
        used = [cpu_s[name] - before[name] for name in cpu_s if name in before]
        busy = sum(max(0.0, each) for each in used) / ((now - since) * len(used)) if used else 0.0
        return min(1.0, max(0.0, 1.0 - busy))
