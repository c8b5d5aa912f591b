"""The number of users over a run, as curves: a share of the users by the share of the time, both 0..1, and the run's
seconds.
"""

from __future__ import annotations

from collections.abc import Callable

Curve = Callable[[float, float], float]

_WAVE_S = 15.0  # at least: a group whose members change more quickly does nothing but rebalance


def ramp(at: float, _: float) -> float:
    """Up in ten steps over two thirds of the time, then all users: where is the limit?"""
    return min(1.0, (int(at * 15) + 1) / 10)


def spike(at: float, _: float) -> float:
    """A fifth of the users, twice interrupted by all of them for an eighth of the time: does the broker recover?"""
    return 1.0 if 0.25 <= at < 0.375 or 0.625 <= at < 0.75 else 0.2


def soak(at: float, run_time: float) -> float:
    """Three quarters of the users all the time, while the last quarter comes and goes: does anything accumulate?"""
    waves = min(20, max(2, int(run_time / _WAVE_S)))
    return 1.0 if int(at * waves) % 2 else 0.75


CURVES: dict[str, Curve] = {"ramp": ramp, "spike": spike, "soak": soak}


def users(curve: Curve, most: int, seconds: float, run_time: float) -> int | None:
    """How many of `most` users there should be after `seconds` of `run_time`; None at the end."""
    at = seconds / run_time
    return None if at >= 1 else max(1, round(most * curve(at, run_time)))
