"""How the number of users goes over a run: three shapes beside locust's own steady one.

`--shape` picks one, or the shape picker of the web page. The most users and the run time are locust's own options.
"""

from __future__ import annotations

from typing import Any, ClassVar

from locust import LoadTestShape

Tick = tuple[int, float] | None
DEFAULT_SECONDS = 60


class Shape(LoadTestShape):
    """A curve over the run time: `curve(0..1)` is the share of the users."""

    abstract = True
    use_common_options: ClassVar[bool] = True

    def __init__(self, runner: Any = None) -> None:
        super().__init__()
        self.runner = runner  # locust sets it for shapes that it picks itself

    def tick(self) -> Tick:
        """How many users there should be now, and how fast to get there; None at the end."""
        seconds = self._option("run_time") or DEFAULT_SECONDS
        at = self.get_run_time() / seconds
        if at >= 1:
            return None
        most = int(self._option("num_users") or 1)
        users = max(1, round(most * self.curve(at)))
        return users, float(max(most, 1))  # the curve says how fast; locust is to follow within a second

    def curve(self, at: float) -> float:
        """The share of the users that are there when `at` (0..1) of the time has passed."""
        raise NotImplementedError

    def _option(self, name: str) -> float | None:
        options = self.runner.environment.parsed_options if self.runner else None
        return getattr(options, name, None)


class Ramp(Shape):
    """Up in ten steps over two thirds of the time, then all of them: where does it begin to hurt?"""

    def curve(self, at: float) -> float:
        """Ten steps, then flat."""
        return min(1.0, (int(at * 15) + 1) / 10)


class Spike(Shape):
    """A fifth of the users, twice interrupted by all of them at once: does it recover?"""

    def curve(self, at: float) -> float:
        """Two spikes of an eighth of the time."""
        return 1.0 if 0.25 <= at < 0.375 or 0.625 <= at < 0.75 else 0.2


class Soak(Shape):
    """Three quarters of the users all the time, while the last quarter comes and goes: does anything pile up?"""

    def curve(self, at: float) -> float:
        """Ten turns of leaving and coming back."""
        return 1.0 if int(at * 20) % 2 else 0.75


SHAPES: dict[str, type[Shape]] = {"ramp": Ramp, "spike": Spike, "soak": Soak}
