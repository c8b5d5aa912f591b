"""The janitor's syncs to disk, and the recovery points that it publishes."""

from __future__ import annotations

import pytest

from odradek.broker.janitor import janitor
from odradek.broker.process import flush as flushing
from odradek.ipc.locks import PartitionLocks
from odradek.storage.log import flush, truncate
from odradek.storage.log.partition import LockNotAvailable

from .benches import Maker, follow


def test_sync_publishes_the_recovery_point(bench: Maker) -> None:
    log = bench()
    assert not flushing.sync(log.partition())
    assert log.append() == 1
    assert [repr(one) for one in log.partitions.unflushed()] == ["t-0"]
    assert flushing.sync(log.partition())
    assert log.partition().state().flushed == 1
    assert log.partition().state().unflushed_since == 0
    assert not list(log.partitions.unflushed())


def test_sync_counts_nothing_after_a_truncation(bench: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    log = bench()
    log.append()

    def truncated_meanwhile(_paths: object) -> None:
        state = log.partition().state()
        log.partition().slot.publish(state._replace(truncations=state.truncations + 1))

    monkeypatch.setattr(flush, "sync_files", truncated_meanwhile)
    flushing.sync(log.partition())
    assert log.partition().state().flushed == 0


def test_sealed_segments_are_flushed_and_the_active_one_by_flush_ms(bench: Maker) -> None:
    log = bench(segment_bytes=300)
    for _ in range(3):
        log.append()
    state = log.partition().state()
    assert 0 < state.active_base < 3
    janitor._flush_due(log.partition())
    assert log.partition().state().flushed == state.active_base
    janitor._flush_due(log.partition())
    assert log.partition().state().flushed == state.active_base


def test_flush_ms(bench: Maker) -> None:
    log = bench(flush_ms=0)
    log.append()
    janitor._flush_due(log.partition())
    assert log.partition().state().flushed == 1


def test_busy_partition(bench: Maker) -> None:
    log = bench()
    other = PartitionLocks(log.run_dir / "partition.lock")
    assert other.try_lock(0)
    with pytest.raises(LockNotAvailable), flushing.patiently(log.partition()):
        pass
    other.unlock(0)
    other.close()
    with flushing.patiently(log.partition()):
        pass


def test_synced_records_are_not_visible_before_the_leaders_high_watermark(bench: Maker) -> None:
    log = bench(odradek_visible_after_flush="true")
    log.append()
    follow(log)
    flushing.sync(log.partition())
    assert (log.partition().state().flushed, log.partition().state().hw) == (1, 0)


def test_truncations_are_seen(bench: Maker) -> None:
    """The janitor then writes the recovery points at once."""
    log = bench()
    for _ in range(3):
        log.append()
    follow(log)
    before = log.partitions.truncations()
    with log.partition().locked() as values:
        truncate.truncate(log.partition(), values, 1)
    assert log.partitions.truncations() == before + 1
