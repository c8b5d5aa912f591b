"""Other tasks of the janitor on real partitions: changed partitions, idle producers, faults, periods."""

from __future__ import annotations

import errno
import math
import os
from types import SimpleNamespace

import pytest

from odradek.broker.janitor import janitor, log_retention
from odradek.ipc import slots
from odradek.storage.log.partition import Partition

from ...storage.log.test_append_and_read import broken
from ..partitions import now_ms
from .benches import Maker
from .test_retention_of_partitions import DAY_MS


def test_changed_partitions_are_found_by_generation(bench: Maker) -> None:
    log = bench(count=2, segment_bytes=200)
    known = {one.slot.number: (one.state().incarnation, one.state().generation) for one in log.partitions}
    assert not list(log.partitions.changed(known))
    log.append(1)
    log.append(1)
    assert [repr(one) for one in log.partitions.changed(known)] == ["t-1"]


def test_idle_producers_are_forgotten(bench: Maker) -> None:
    log = bench()
    log.append(producer=5, timestamp=now_ms() - DAY_MS)
    log.append(producer=6)
    assert log_retention.expire_producers(log.partition(), now_ms(), DAY_MS // 2) == 1
    with log.partition().locked() as values:
        table = log.partition().producers.table(values[slots.F_PSTATE_GEN])
        assert table is not None
        assert [entry.producer_id for entry in table.entries()] == [6]
    assert log_retention.expire_producers(log.partition(), now_ms(), DAY_MS // 2) == 0
    prefix = log.partition().owner.shared.prefix.removeprefix("/")
    assert len([name for name in os.listdir("/dev/shm") if name.startswith(f"{prefix}producers-")]) == 1


def test_expiry_of_producers_is_retried_without_memory(bench: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    """/dev/shm is full, which is an OSError like a full disk's, so the janitor continues with its other work."""
    log = bench()
    log.append(producer=5, timestamp=now_ms() - DAY_MS)
    with monkeypatch.context() as full, pytest.raises(OSError, match="has no room"):
        full.setattr(os, "posix_fallocate", broken(errno.ENOSPC))
        log_retention.expire_producers(log.partition(), now_ms(), DAY_MS // 2)
    assert log.partition().state().pstate_gen == 1
    assert log_retention.expire_producers(log.partition(), now_ms(), DAY_MS // 2) == 1


def test_exception_in_one_log_affects_no_other(bench: Maker, caplog: pytest.LogCaptureFixture) -> None:
    log = bench(count=2)
    tasks = janitor.Janitor.__new__(janitor.Janitor)  # without its wakeup and signals
    tasks._partitions, tasks._faulty = log.partitions, set()
    tasks._log_dir_failures = SimpleNamespace(broken=set())  # type: ignore[assignment]  # a test double
    tasks._process = SimpleNamespace(shared=log.shared, beat=lambda: None)  # type: ignore[assignment]  # a test double
    done: list[int] = []

    def act(partition: Partition) -> None:
        if partition.index == 0:
            raise ValueError("a fault of ours")
        done.append(partition.index)

    for _ in range(2):
        tasks._each("flush", act)
    assert done == [1, 1]
    assert caplog.text.count("flush: t-0") == 1, "the error must be logged once"


@pytest.mark.parametrize(("given", "period"), [(5000, 5000), (1, 1), (0, math.inf), (-1, math.inf)])
def test_tasks_without_a_period_do_not_run_always(given: int, period: float) -> None:
    assert janitor._period_ms({"x.ms": given}, "x.ms") == period
