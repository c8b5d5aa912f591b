"""Work that takes many turns of a worker, and others that have theirs."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from odradek.workers import worker
from odradek.workers.net import time_slices

from .inprocess import Bench


def test_many_requests_that_take_turns_do_not_add_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a turn of the worker there is time for some of them; the others are the first in the next one."""
    now, done = [0.0], list[str]()

    def work(name: str, turns: int) -> Callable[[], bool]:
        def run() -> bool:
            now[0] += time_slices.SLICE_S * 0.6
            done.append(name)
            return done.count(name) == turns

        return run

    monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for name, turns in (("a", 3), ("b", 1), ("c", 1), ("d", 1)):
        bench.worker.again(work(name, turns))
    ended: list[str] = []
    while len(done) < 6:
        before = len(done)
        bench.worker._try_again()
        ended.append("".join(done[before:]))
    assert ended == ["ab", "cd", "a", "a"]
