"""How the number of users goes over a run, as curves: the share of them at a share of the time, both 0..1."""

from __future__ import annotations

from collections.abc import Callable

Curve = Callable[[float], float]


def ramp(at: float) -> float:
    """Up in ten steps over two thirds of the time, then all of them: where does it begin to hurt?"""
    return min(1.0, (int(at * 15) + 1) / 10)


def spike(at: float) -> float:
    """A fifth of the users, twice interrupted by all of them for an eighth of the time: does it recover?"""
    return 1.0 if 0.25 <= at < 0.375 or 0.625 <= at < 0.75 else 0.2


def soak(at: float) -> float:
    """Three quarters of the users all the time, while the last quarter comes and goes: does anything pile up?"""
    return 1.0 if int(at * 20) % 2 else 0.75


CURVES: dict[str, Curve] = {"ramp": ramp, "spike": spike, "soak": soak}


def users(curve: Curve, most: int, seconds: float, run_time: float) -> int | None:
    """How many of `most` users there should be after `seconds` of `run_time`; None at the end."""
    at = seconds / run_time
    return None if at >= 1 else max(1, round(most * curve(at)))
