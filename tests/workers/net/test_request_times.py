"""Histograms of request times, compared with a model on its own clock."""

from __future__ import annotations

import ctypes
import mmap
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.ipc import latencies
from odradek.ipc.latencies import AT_ONCE, LOCAL, QUEUE, REMOTE, ROW, SEND, SUM, THROTTLE, TOTAL, WORDS
from odradek.workers.net import request_times
from odradek.workers.net.request_times import RequestTimes

PIPELINED = 0
_DAYS = 60 * 86_400 * 10**9  # the sum of three has a word to be counted in
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
    return SimpleNamespace(times=None, received_ns=0, begun_ns=0, waits_ns=0, sends_ns=0, sends=[])


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


@given(st.lists(st.tuples(st.sampled_from([None, 1, 18]), st.integers(0, 1_000_000), _NS, _NS), max_size=6))
def test_throttle_times_and_times_to_send_equal_the_model(answers: list[tuple[int | None, int, int, int]]) -> None:
    """None: of pipelined requests. What counts when the request is answered belongs to its API."""
    clock, model = Clock(), Model()
    words = memoryview(bytearray(latencies.SIZE)).cast("q")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request_times, "monotonic_ns", clock)
        times = RequestTimes(words, PIPELINED)
        connection = _connection()
        for key, throttle_ms, worked, sending in answers:
            if key is not None:
                times.round_ns = clock.now
                times.taken(connection, key)
                model.add(key, QUEUE, 0)
                clock.now += worked
                model.add(key, LOCAL, worked)
                model.add(key, TOTAL, worked)
            times.throttled(connection, throttle_ms)
            model.add(PIPELINED if key is None else key, THROTTLE, throttle_ms * 10**6)
            row = connection.times
            times.answered(connection)
            times.sends(connection, row)
            clock.now += sending
            times.sent(connection)
            model.add(PIPELINED if key is None else key, SEND, sending)
            assert not connection.sends_ns
            times.store()  # each time to send is the last that was counted before
            assert _counted(words) == model.words()


def test_next_worker_adds_to_the_counts() -> None:
    words = memoryview(bytearray(latencies.SIZE)).cast("q")
    for number in range(1, 4):
        times = RequestTimes(words, PIPELINED)
        times.executed(5, 0)
        times.executed(5, 0)
        times.store()
        assert sum(words[AT_ONCE * WORDS : AT_ONCE * WORDS + SUM]) == 10 * number


def test_only_apis_with_requests_take_memory() -> None:
    """A page counts once this process has read or written it."""
    mapping = mmap.mmap(-1, latencies.SIZE)
    times, connection = RequestTimes(memoryview(mapping).cast("q"), PIPELINED), _connection()
    for key in (3, latencies.KEYS - 1):
        times.taken(connection, key)
        times.answered(connection)
    times.store()
    of_a_row = ROW * 8 // mmap.PAGESIZE + 2
    assert 0 < _resident_kib(mapping) <= 3 * of_a_row * mmap.PAGESIZE // 1024


def _resident_kib(mapping: mmap.mmap) -> int:
    """The pages of a mapping that this process has touched."""
    begin = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    _, found, entry = Path("/proc/self/smaps").read_text().partition(f"{begin:08x}-")
    assert found
    return int(entry.partition("\nRss:")[2].split()[0])
