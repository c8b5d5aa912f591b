"""Histograms of request times, compared with a model on its own clock."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.ipc import latencies
from odradek.ipc.latencies import AT_ONCE, LOCAL, QUEUE, REMOTE, ROW, SUM, TOTAL, WORDS
from odradek.workers.net import request_times
from odradek.workers.net.request_times import RequestTimes

PIPELINED = 0
_DAYS = 100 * 86_400 * 10**9
_NS = st.one_of(st.integers(1, 3000), st.integers(1, _DAYS))  # a clock advances between two readings


class Clock:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.now = 10**15

    def __call__(self) -> int:
        return self.now


class Model:
    """Every time of every request, by key and stage."""

    def __init__(self) -> None:
        self.times: dict[tuple[int, int], list[int]] = {}

    def add(self, key: int, stage: int, ns: int, count: int = 1) -> None:
        self.times.setdefault((key, stage), []).extend([ns] * count)

    def words(self) -> dict[int, int]:
        found: Counter[int] = Counter()
        for (key, stage), times in self.times.items():
            at = key * ROW + stage * WORDS
            for ns in times:
                bucket = next(n for n in range(SUM) if ns < 2**n)
                found[at + bucket] += 1
            found[at + SUM] += sum(times)
        return {at: value for at, value in found.items() if value}


def _counted(words: memoryview) -> dict[int, int]:
    return {at: value for at, value in enumerate(words) if value}


def _connection() -> Any:
    return SimpleNamespace(times=None, received_ns=0, begun_ns=0, waits_ns=0)


_KEYS = st.sampled_from([1, 3, 18, latencies.KEYS - 1, latencies.KEYS, 500])


@given(st.lists(st.tuples(_KEYS, st.booleans(), _NS, _NS, _NS), max_size=6))
def test_requests_timed_one_by_one_equal_the_model(requests: list[tuple[int, bool, int, int, int]]) -> None:
    """A request with a key beyond the table is not counted."""
    clock, model = Clock(), Model()
    words = memoryview(bytearray(latencies.SIZE)).cast("q")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request_times, "monotonic_ns", clock)
        times = RequestTimes(words, PIPELINED)
        connection = _connection()
        for key, waits, queued, worked, waited in requests:
            times.round_ns = clock.now
            clock.now += queued
            times.taken(connection, key)
            clock.now += worked
            if waits:
                times.waits(connection)
                clock.now += waited
            times.answered(connection)
            if key < latencies.KEYS:
                model.add(key, QUEUE, queued)
                model.add(key, LOCAL, worked)
                if waits:
                    model.add(key, REMOTE, waited)
                model.add(key, TOTAL, queued + worked + waits * waited)
        times.answered(connection)  # of a pipelined request
    times.store()
    assert _counted(words) == model.words()


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), _NS, _NS, _NS), max_size=6))
def test_requests_timed_together_equal_the_model(flushes: list[tuple[int, int, int, int, int]]) -> None:
    clock, model = Clock(), Model()
    words = memoryview(bytearray(latencies.SIZE)).cast("q")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request_times, "monotonic_ns", clock)
        times = RequestTimes(words, PIPELINED)
        for count, waiting, queued, worked, waited in flushes:
            waiting = min(waiting, count)
            times.round_ns = clock.now
            clock.now += queued
            clock.now += worked
            since = times.wait()
            times.executed(count, waiting)
            model.add(PIPELINED, LOCAL, queued + worked, waiting)
            model.add(PIPELINED, AT_ONCE, queued + worked, count - waiting)
            clock.now += waited
            times.round_ns = clock.now  # of a later round
            if waiting:
                times.decided(since, waiting)
                model.add(PIPELINED, REMOTE, waited, waiting)
                model.add(PIPELINED, TOTAL, queued + worked + waited, waiting)
    times.store()
    assert _counted(words) == model.words()


def test_next_worker_adds_to_the_counts() -> None:
    words = memoryview(bytearray(latencies.SIZE)).cast("q")
    for number in range(1, 4):
        times = RequestTimes(words, PIPELINED)
        times.executed(5, 0)
        times.executed(5, 0)
        times.store()
        assert sum(words[AT_ONCE * WORDS : AT_ONCE * WORDS + SUM]) == 10 * number
