"""The windows over which the rates of client quotas are measured, from the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek.security.quotas.rates import Window

_MOST_SAMPLES = 60


def client_window(config: Mapping[str, Any]) -> Window:
    """The window of quotas of bytes, request time and connections."""
    return _window(config["quota.window.num"], config["quota.window.size.seconds"])


def mutation_window(config: Mapping[str, Any]) -> Window:
    """The window of controller mutation quotas."""
    return _window(config["controller.quota.window.num"], config["controller.quota.window.size.seconds"])


def _window(samples: int, seconds: int) -> Window:
    """More samples than fit in memory become fewer and longer ones."""
    count = min(samples, _MOST_SAMPLES)
    return Window(count, -(-samples * seconds * 1000 // count))
