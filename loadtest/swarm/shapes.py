"""The curves of `turnout` as locust's shapes, in addition to its own steady one.

`--shape` or the shape picker of the web page selects one. The maximum of users and the run time are locust's own
options.
"""

from __future__ import annotations

from typing import Any, ClassVar

from locust import LoadTestShape

from odradek.loadtest.swarm import turnout

DEFAULT_SECONDS = 60


class Shape(LoadTestShape):
    """A curve over the run time."""

    abstract = True
    use_common_options: ClassVar[bool] = True
    curve: Any  # a turnout.Curve, static

    def __init__(self, runner: Any = None) -> None:
        super().__init__()
        self.runner = runner  # locust sets it for shapes that it selects itself

    def tick(self) -> tuple[int, float] | None:
        """The wanted number of users now, and the rate to get there; None at the end."""
        most = int(self._option("num_users") or 1)
        users = turnout.users(type(self).curve, most, self.get_run_time(), self._option("run_time") or DEFAULT_SECONDS)
        # The curve sets the rate; locust should follow within a second.
        return None if users is None else (users, float(max(most, 1)))

    def _option(self, name: str) -> float | None:
        options = self.runner.environment.parsed_options if self.runner else None
        return getattr(options, name, None)


class Ramp(Shape):
    """See turnout.ramp."""

    curve = staticmethod(turnout.ramp)


class Spike(Shape):
    """See turnout.spike."""

    curve = staticmethod(turnout.spike)


class Soak(Shape):
    """See turnout.soak."""

    curve = staticmethod(turnout.soak)


SHAPES: dict[str, type[Shape]] = {"ramp": Ramp, "spike": Spike, "soak": Soak}
