"""A leader with impossible responses: that partition pauses, and the replicator continues."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.cluster.replication import partition_fetch_states
from odradek.protocol import errors
from odradek.protocol.fetch import FetchResult

from .leading import Maker, PlayedLeader, caught_up

MOST = (1 << 63) - 1
LIES: dict[str, Callable[[FetchResult], FetchResult]] = {
    "high watermark above all": lambda told: told._replace(hw=MOST),
    "negative high watermark": lambda told: told._replace(hw=-5),
    "log start above all": lambda told: told._replace(log_start=MOST),
    "negative log start": lambda told: told._replace(log_start=-MOST),
    "diverging before the log": lambda told: told._replace(diverging=(0, -5), payloads=()),
    "diverging in no epoch": lambda told: told._replace(diverging=((1 << 31) - 1, MOST), payloads=()),
    "diverging at the start": lambda told: told._replace(diverging=(0, 0), payloads=()),
    "an error there is not": lambda told: told._replace(error=32_767),
    "a negative error": lambda told: told._replace(error=-2),
    "another partition": lambda told: told._replace(partition=-1),
    "another topic": lambda told: told._replace(topic=b"?" * 16),
    "out of range": lambda told: told._replace(error=errors.OFFSET_OUT_OF_RANGE, payloads=()),
    "no records but bytes": lambda told: told._replace(payloads=(b"\0" * 7,)),
    "a batch of length -1": lambda told: told._replace(payloads=(b"\0" * 8 + b"\xff" * 60,)),
}


@pytest.mark.parametrize("lie", LIES)
def test_impossible_response_pauses_its_partition(
    follow: Maker, leader: PlayedLeader, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    monkeypatch.setattr(partition_fetch_states, "FIRST_DELAY_MS", 50)
    follower = follow(count=2)
    for _ in range(3):
        leader.append(0)
    follower.turn_until(caught_up(follower, leader, 0), "the log end")
    told: list[FetchResult] = []

    def lying(true: FetchResult) -> FetchResult:
        told.append(true)
        return LIES[lie](true)

    with leader.lock:
        leader.log(0).lie = lying
        leader.log(0).append()
        leader.lock.notify_all()
    follower.turn_until(lambda: bool(told), "the lie")
    leader.append(1)
    follower.turn_until(caught_up(follower, leader, 1), "the other partition")
    with leader.lock:
        leader.log(0).lie = None
        leader.lock.notify_all()
    follower.turn_until(caught_up(follower, leader, 0), "the truth")
    assert follower.state(0).log_start >= 0
    assert follower.state(0).hw <= follower.state(0).leo
