"""The times at which the janitor checks free disk space, and immediate deletion under disk pressure."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.janitor import file_deletion
from odradek.broker.janitor.free_space import RARELY_MS, FillRate, FreeSpace
from odradek.broker.janitor.log_retention import Retention

from ..partitions import Bench

MIB = 1 << 20


def filled(fill_rate: FillRate, rate: int, seconds: float, free: int = 1000 * MIB) -> int:
    """Free bytes after writing `rate` bytes per second for that time, with the checks that `fill_rate` requests."""
    now = 100.0
    fill_rate.record(free, now)
    end = now + seconds
    while now < end:
        pause = fill_rate.pause_ms(free) / 1000
        now, free = now + pause, free - int(rate * pause)
        fill_rate.record(free, now)
    return free


def test_looks_are_rare_while_nothing_is_written() -> None:
    fill_rate = FillRate()
    assert fill_rate.pause_ms(0) == RARELY_MS
    filled(fill_rate, 0, 10)
    assert fill_rate.pause_ms(MIB) == RARELY_MS


@pytest.mark.parametrize("rate", [MIB, 100 * MIB, 500 * MIB])
def test_there_are_some_looks_before_a_disk_is_full(rate: int) -> None:
    fill_rate = FillRate()
    filled(fill_rate, rate, 1)
    for free in (2000 * MIB, 500 * MIB, 100 * MIB):
        assert fill_rate.pause_ms(free) / 1000 * rate <= free / 3


def test_a_pause_of_the_writers_does_not_make_it_slow_at_once() -> None:
    fill_rate = FillRate()
    free = filled(fill_rate, 100 * MIB, 2)
    soon = fill_rate.pause_ms(20 * MIB)
    assert soon < RARELY_MS / 4
    filled(fill_rate, 0, 0.05, free)
    assert fill_rate.pause_ms(20 * MIB) < RARELY_MS
    filled(fill_rate, 0, 10, free)
    assert fill_rate.pause_ms(20 * MIB) == RARELY_MS


def test_own_deletions_do_not_count_as_fill_rate() -> None:
    fill_rate = FillRate()
    fill_rate.record(10 * MIB, 100.0)
    fill_rate.start(50 * MIB, 100.1)
    fill_rate.record(50 * MIB, 100.5)
    assert fill_rate.pause_ms(50 * MIB) == RARELY_MS


def test_without_delay_recently_renamed_files_are_deleted_too(tmp_path: Path) -> None:
    """Otherwise their space would be free only after the next check."""
    doomed = tmp_path / "00000000000000000000.log.deleted"
    doomed.write_bytes(b"x")
    partition: Any = SimpleNamespace(directory=str(tmp_path))
    before = doomed.stat().st_ctime_ns // 1_000_000 - 5
    assert file_deletion.remove_segments(partition, before, 1) == (0, 1)
    assert file_deletion.remove_segments(partition, before, 0) == (1, 0)


@pytest.mark.parametrize("mark", ["false", "true"])
def test_a_topic_whose_retention_is_not_known_loses_nothing_for_room(tmp_path: Path, mark: str) -> None:
    bench = Bench(tmp_path, segment_bytes=300, odradek_retention_unknown=mark)
    try:
        for _ in range(10):
            end = bench.append()
        config = bench.config.with_value("odradek.retention.free.bytes", 1 << 60)
        state = bench.partition().state()
        bench.partition().slot.publish(state._replace(hw=end))
        look = FreeSpace(
            config.with_value("odradek.disk.reserve.bytes", 0), lambda: bench.partitions, Retention()
        ).check
        look(0, str(bench.data), 1000)
        assert (bench.partition().state().log_start == 0) == (mark == "true")
    finally:
        bench.close()
