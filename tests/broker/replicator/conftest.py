"""A played leader, and what follows it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from .leading import LEADER, Follower, Maker, PlayedLeader


@pytest.fixture
def leader() -> Iterator[PlayedLeader]:
    played = PlayedLeader()
    yield played
    played.close()


@pytest.fixture
def follow(tmp_path: Path, leader: PlayedLeader) -> Iterator[Maker]:
    """Makes one follower of `leader`, unless told of others."""
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
