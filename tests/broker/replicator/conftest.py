"""A played leader and its followers."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.replicator import leader_fetcher, replicator

from .leading import LEADER, Follower, Jump, Maker, PlayedLeader


@pytest.fixture
def leader() -> Iterator[PlayedLeader]:
    played = PlayedLeader()
    yield played
    played.close()


@pytest.fixture
def follow(tmp_path: Path, leader: PlayedLeader) -> Iterator[Maker]:
    """Makes one follower of `leader`, unless other leaders are given."""
    made: list[Follower] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    wakeup = signal.set_wakeup_fd(-1)

    def make(count: int = 1, leaders: dict[int, tuple[str, int]] | None = None, **settings: object) -> Follower:
        for index in range(count):
            leader.log(index)
        made.append(Follower(tmp_path, leaders or {LEADER: leader.address}, count, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()
    made.clear()
    signal.set_wakeup_fd(wakeup)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def jump(monkeypatch: pytest.MonkeyPatch) -> Jump:
    """Advances the replicator's clock by some ms, without the times at which requests are sent."""
    ahead = [0]
    for module in (replicator, leader_fetcher):
        monkeypatch.setattr(module, "_now_ms", lambda: time.monotonic_ns() // 1_000_000 + sum(ahead))
    return ahead.append
