"""Work that takes several turns of a worker, in turn with other work."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from odradek.workers.dispatch import deferred_work
from odradek.workers.net import time_slices

from .inprocess import Bench


def test_one_turn_runs_as_much_repeated_work_as_its_time_allows(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn has time for some of the work; the rest comes first in the next turn."""
    now, done = [0.0], list[str]()

    def work(name: str, turns: int) -> Callable[[], bool]:
        def run() -> bool:
            now[0] += time_slices.SLICE_S * 0.6
            done.append(name)
            return done.count(name) == turns

        return run

    monkeypatch.setattr(deferred_work, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for name, turns in (("a", 3), ("b", 1), ("c", 1), ("d", 1)):
        bench.worker.again(work(name, turns))
    ended: list[str] = []
    while len(done) < 6:
        before = len(done)
        bench.worker.deferred.turn()
        ended.append("".join(done[before:]))
    assert ended == ["ab", "cd", "a", "a"]
