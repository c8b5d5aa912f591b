"""Retention by time and size, for leaders and followers."""

from __future__ import annotations

from odradek.broker.janitor import log_retention

from ..partitions import now_ms
from .benches import Maker, follow

DAY_MS = 86_400_000


def test_retention_by_time_takes_old_segments_and_then_the_active_one(bench: Maker) -> None:
    log = bench(segment_bytes=300, retention_ms=DAY_MS)
    for _ in range(4):
        log.append(timestamp=now_ms() - 2 * DAY_MS)
    log.append()
    young = log.partition().state().active_base
    assert young >= 3
    assert log_retention.Retention().trim(log.partition(), now_ms()) > 0
    state = log.partition().state()
    assert (state.log_start, state.leo) == (young, 5)
    assert len(log.files(".log")) == 1
    assert log_retention.Retention().trim(log.partition(), now_ms()) == 0
    assert log_retention.Retention().trim(log.partition(), now_ms() + 2 * DAY_MS) > 0
    state = log.partition().state()
    assert (state.log_start, state.leo, state.active_base, state.active_size) == (5, 5, 5, 0)
    assert log.append() == 6


def test_retention_by_size(bench: Maker) -> None:
    log = bench(segment_bytes=200, retention_bytes=400)
    for _ in range(6):
        log.append()
    assert log_retention.Retention().trim(log.partition(), now_ms()) > 0
    left = sum((log.data / "t-0" / name).stat().st_size for name in log.files(".log"))
    assert left >= 400
    assert log.partition().state().log_start > 0


def test_no_retention_above_the_high_watermark(bench: Maker) -> None:
    log = bench(segment_bytes=200, retention_ms=1)
    for _ in range(4):
        log.append(timestamp=1)
    state = log.partition().state()
    log.partition().slot.publish(state._replace(hw=1))
    log_retention.Retention().trim(log.partition(), now_ms())
    assert log.partition().state().log_start <= 1


def test_compact_only_topics_keep_old_records(bench: Maker) -> None:
    log = bench(segment_bytes=300, retention_ms=1)
    config = log.partition().config
    log.append(timestamp=1)
    log.append(timestamp=1)
    log.partition().config = type(config)(cleanup_policy=("compact",), retention_ms=1)
    assert log_retention.Retention().trim(log.partition(), now_ms()) == 0


def test_a_followers_old_segments_go_up_to_its_high_watermark(bench: Maker) -> None:
    log = bench(segment_bytes=300, retention_ms=1000)
    for n in range(9):
        log.append(timestamp=now_ms() - DAY_MS + n)
    follow(log)
    log.partition().slot.update(hw=5)
    log_retention.Retention().trim(log.partition(), now_ms())
    assert 3 <= log.partition().state().log_start <= 5
