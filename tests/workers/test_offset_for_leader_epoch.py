"""OffsetForLeaderEpoch of many partitions. What is answered, tests/clients/test_offsets.py looks at."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from odradek.workers import worker
from odradek.workers.apis import k23_offset_for_leader_epoch as module

from .inprocess import Bench


def test_a_request_of_many_partitions_takes_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other connections have their turn in between, and it is answered once, in the order in which it asks."""
    now, replies, again = [0.0], [], []

    def answer(worker: Any, topic: str, part: Any) -> dict[str, int]:
        now[0] += 1
        return {"error_code": 0, "partition": part.partition, "leader_epoch": 3, "end_offset": ord(topic)}

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(module, "SLICE_S", 2)
    monkeypatch.setattr(module, "_answer", answer)
    parts = [SimpleNamespace(partition=index) for index in (4, 0, 4)]
    topics = [SimpleNamespace(topic=name, partitions=parts) for name in ("b", "a")] + [
        SimpleNamespace(topic="c", partitions=[])
    ]
    worker: Any = SimpleNamespace(again=again.append)
    context: Any = SimpleNamespace(reply=replies.append)
    module.handle(worker, SimpleNamespace(topics=topics), context)
    (work,) = again
    assert [(work(), len(replies), now[0]) for _ in range(2)] == [(False, 0, 4), (True, 1, 6)]
    rows = [
        (topic.topic, [(part.partition, part.end_offset) for part in topic.partitions]) for topic in replies[0].topics
    ]
    assert rows == [("b", [(4, 98), (0, 98), (4, 98)]), ("a", [(4, 97), (0, 97), (4, 97)]), ("c", [])]


def test_many_requests_that_take_turns_do_not_add_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a turn of the worker there is time for some of them; the others are the first in the next one."""
    now, done = [0.0], []

    def work(name: str, turns: int) -> Callable[[], bool]:
        def run() -> bool:
            now[0] += worker.SLICE_S * 0.6
            done.append(name)
            return done.count(name) == turns

        return run

    monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for name, turns in (("a", 3), ("b", 1), ("c", 1), ("d", 1)):
        bench.worker.again(work(name, turns))
    turns = []
    while len(done) < 6:
        before = len(done)
        bench.worker._try_again()
        turns.append("".join(done[before:]))
    assert turns == ["ab", "cd", "a", "a"]
