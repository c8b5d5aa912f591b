"""A worker for each test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from odradek.workers.fetch import follower_progress

from .inprocess import Bench, Client
from .inprocess import bench as make


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A worker with a topic `t` of one partition."""
    with make(tmp_path) as made:
        yield made


@pytest.fixture
def client(bench: Bench) -> Client:
    """A connection to the worker."""
    return bench.connect()


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """`later(seconds)` advances the clock of followers' progress, which does not move by itself."""
    now = [time.monotonic()]
    clock = SimpleNamespace(monotonic=lambda: now[0], monotonic_ns=time.monotonic_ns)
    monkeypatch.setattr(follower_progress, "time", clock)

    def move(seconds: float) -> None:
        now[0] += seconds

    return move
