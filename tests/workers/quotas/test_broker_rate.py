"""One rate for several workers: throttle times are Kafka's for one process, also if a worker dies."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from odradek.ipc import quotas
from odradek.ipc.quotas import QuotaTable, digest_of
from odradek.security.quotas.rates import Rate, Window
from odradek.workers.quotas.broker_rate import BrokerRate
from tests.ipc.conftest import prefix  # noqa: F401  # a fixture
from tests.ipc.test_quotas import Dying, Killed

WINDOWS = [Window(1, 1000), Window(2, 1000), Window(11, 1000)]
NAME = digest_of("producer_byte_rate", "alice", "")
STEPS = st.lists(
    st.tuples(
        st.integers(0, 3),  # the worker
        st.integers(-40, 4000),  # the amount
        st.sampled_from([0, 0, 1, 30, 400, 1000, 1500, 12_000]),  # ms since the last step
    ),
    max_size=60,
)
EXACT = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
NewTable = Any


@pytest.fixture
def new_table(prefix: str, tmp_path: Path) -> Iterator[NewTable]:  # noqa: F811
    """A process's own mapping; `new_table(window, fresh=True)` makes the table first."""

    def made(window: Window, *, fresh: bool = False) -> QuotaTable:
        if fresh:
            quotas.create(prefix, 1, Rate.size(window))
        return QuotaTable(prefix, tmp_path)

    yield made


def _workers(new_table: NewTable, window: Window, bound: float) -> list[BrokerRate]:
    tables = [new_table(window, fresh=number == 0) for number in range(4)]
    return [BrokerRate(table, NAME, window, bound) for table in tables]


@EXACT
@given(STEPS, st.sampled_from(WINDOWS), st.sampled_from([0.5, 7.25, 80.0]))
@example([(1, 2, 0), (1, 0, 1000), (0, 1, 1500)], WINDOWS[1], 0.5)  # nothing counts too while the quota is exceeded
def test_throttle_times_equal_those_of_one_process(
    new_table: NewTable, steps: list[tuple[int, int, int]], window: Window, bound: float
) -> None:
    workers, model, now_ms = _workers(new_table, window, bound), Rate(window), 5000
    for worker, amount, pause in steps:
        now_ms += pause
        small = abs(amount) < bound * window.whole_ms / 1_000_000
        collected = small and now_ms >= workers[worker]._exceeded_ms
        throttle_ms = workers[worker].record(amount, now_ms)
        if not collected:
            model.record(amount, now_ms)
            assert throttle_ms == model.throttle_ms(bound, now_ms)
        else:
            workers[worker]._collected = 0


@EXACT
@given(STEPS, st.sampled_from(WINDOWS))
def test_amount_that_workers_collect_is_bounded(
    new_table: NewTable, steps: list[tuple[int, int, int]], window: Window
) -> None:  # fmt: skip
    bound, workers, total, now_ms = 1_000_000.0, _workers(new_table, window, 1_000_000.0), 0, 5000
    for worker, amount, pause in steps:
        now_ms += pause % 10
        total += amount
        workers[worker].record(amount, now_ms)
    assert abs(total - _total(new_table, window)) <= 4 * bound * window.whole_ms / 1_000_000


def _total(new_table: NewTable, window: Window) -> int:
    table = new_table(window)
    row = table.find(NAME)
    return 0 if row is None else sum(table.samples(row)[4::3])


@EXACT
@given(STEPS, st.sampled_from(WINDOWS), st.integers(0, 9), st.integers(1, 4000), st.integers(0, 1500))
def test_rate_is_right_after_a_worker_is_killed(
    new_table: NewTable, steps: list[tuple[int, int, int]], window: Window, stores: int, amount: int, pause: int
) -> None:  # fmt: skip
    """The kill is between any two stores: the amount counts or not, and the oldest sample may go early."""
    bound, workers, without, now_ms = 0.5, _workers(new_table, window, 0.5), Rate(window), 5000
    for worker, size, gap in steps:
        now_ms += gap
        for rate in (workers[worker], without):
            rate.record(max(size, 1), now_ms)
    now_ms += pause
    before = _total(new_table, window)
    _killed_at(workers[0], stores, amount, now_ms)
    assert 0 <= _total(new_table, window) <= before + amount
    workers[1].record(1, now_ms)
    now_ms += window.whole_ms + window.width_ms
    _assert_equal_to_a_new_rate(workers[1:], Rate(window), bound, now_ms)


def _killed_at(worker: BrokerRate, stores: int, amount: int, now_ms: int) -> None:
    table = worker._table
    assert table is not None
    samples = table.samples
    table.samples = lambda row: Dying(samples(row), stores)  # type: ignore[assignment,return-value]  # a test double
    worker._row = -1
    worker._search_ms = 0
    try:
        worker.record(amount, now_ms)
    except Killed:
        pass


def _assert_equal_to_a_new_rate(workers: list[BrokerRate], model: Rate, bound: float, now_ms: int) -> None:
    rng = random.Random(now_ms)
    for _ in range(20):
        now_ms += rng.choice([0, 30, 700])
        model.record(5, now_ms)
        assert rng.choice(workers).record(5, now_ms) == model.throttle_ms(bound, now_ms)


def test_quota_whose_row_was_reused_gets_another(new_table: NewTable, prefix: str) -> None:  # noqa: F811
    window = Window(2, 1000)
    first, second = _workers(new_table, window, 1.0)[:2]
    first.record(50, 1000)
    row = first._row
    other = BrokerRate(new_table(window), digest_of("another"), window, 1.0)
    other.record(1, 60_000)
    assert other._row == row
    assert first.record(50, 60_000) == 0  # collected; the worker notices its lost row
    model = Rate(window)
    model.record(51, 60_000)
    assert first.record(1, 60_000) == model.throttle_ms(1.0, 60_000)
    assert first._row not in (-1, row)
    assert second.record(1, 60_000) > 0


def test_worker_without_a_row_counts_alone(new_table: NewTable, monkeypatch: pytest.MonkeyPatch) -> None:
    window = Window(2, 1000)
    worker, model = _workers(new_table, window, 1.0)[0], Rate(window)
    monkeypatch.setattr(QuotaTable, "claim", lambda *_: None)
    for now_ms in range(1000, 4000, 100):
        model.record(3, now_ms)
        assert worker.record(3, now_ms) == model.throttle_ms(1.0, now_ms)


def test_locked_row_loses_no_amount(new_table: NewTable) -> None:
    window = Window(2, 1000)
    holder, worker = _workers(new_table, window, 1.0)[:2]
    holder.record(1, 1000)
    assert holder._table is not None and holder._table.lock(holder._row)
    assert worker.record(10, 1000) == 0
    assert worker.record(10, 1000) == 0
    holder._table.unlock(holder._row)
    assert worker.record(10, 1000) > 0
    assert _total(new_table, window) == 31


@pytest.mark.slow
def test_processes_add_to_one_rate(new_table: NewTable) -> None:
    """Four processes add at once, and two are killed: each reported amount counts once."""
    window, read_fds, pids = Window(11, 60_000), list[int](), list[int]()
    new_table(window, fresh=True)
    for number in range(4):
        read_fd, write_fd = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(read_fd)
            _add(BrokerRate(new_table(window), NAME, window, 0.001), number, write_fd)
        os.close(write_fd)
        pids.append(pid)
        read_fds.append(read_fd)
    begun = [len(os.read(fd, 64)) for fd in read_fds]
    for pid in pids[:2]:
        os.kill(pid, signal.SIGKILL)
    reported = [some + len(_all(fd)) for some, fd in zip(begun, read_fds, strict=True)]
    for pid in pids:
        os.waitpid(pid, 0)
    assert reported[2] == reported[3] == 20_000
    assert sum(reported) <= _total(new_table, window) <= sum(reported) + 2  # added, but killed before the report


def _add(rate: BrokerRate, number: int, write_fd: int) -> None:
    """Add one at a time, and report each."""
    try:
        for _ in range(20_000 if number > 1 else 1 << 60):
            rate.record(1, 5000)
            while rate._collected:  # the row was busy
                rate.record(0, 5000)
            os.write(write_fd, b"x")
    finally:
        os._exit(0)


def _all(fd: int) -> bytes:
    with open(fd, "rb") as file:
        return file.read()
