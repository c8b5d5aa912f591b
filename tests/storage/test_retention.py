from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from odradek.storage.retention import (
    DeletableSegment,
    RetentionLimits,
    SegmentFacts,
    kept_producers,
    segments_to_delete,
)

from .live import batch, live, put

LOG = [SegmentFacts(0, 100, 1000), SegmentFacts(10, 100, 2000), SegmentFacts(20, 100, 1500), SegmentFacts(30, 50, 3000)]


def doomed(
    limits: RetentionLimits,
    *,
    log_start: int = 0,
    high_watermark: int = 40,
    now_ms: int = 0,
    log: list[SegmentFacts] = LOG,
) -> list[DeletableSegment]:
    return segments_to_delete(log, limits, log_start=log_start, high_watermark=high_watermark, leo=40, now_ms=now_ms)


def test_retention_by_time_stops_at_the_first_young_segment() -> None:
    limits = RetentionLimits(retention_ms=1000)
    assert doomed(limits, now_ms=2000) == []
    assert doomed(limits, now_ms=2001) == [(0, "retention.ms")]
    assert [base for base, _ in doomed(limits, now_ms=3001)] == [0, 10, 20]
    assert [base for base, _ in doomed(limits, now_ms=4001)] == [0, 10, 20, 30]


def test_retention_by_size_keeps_at_least_the_limit() -> None:
    assert doomed(RetentionLimits(retention_bytes=350)) == []
    assert doomed(RetentionLimits(retention_bytes=251)) == []
    assert doomed(RetentionLimits(retention_bytes=250)) == [(0, "retention.bytes")]
    assert [base for base, _ in doomed(RetentionLimits(retention_bytes=0))] == [0, 10, 20, 30]


def test_segments_below_the_log_start_are_deleted_first() -> None:
    assert doomed(RetentionLimits(delete=False), log_start=25) == [(0, "log start offset"), (10, "log start offset")]
    assert doomed(RetentionLimits(retention_bytes=50), log_start=19) == [
        (0, "log start offset"),
        (10, "retention.bytes"),
        (20, "retention.bytes"),
    ]
    assert doomed(RetentionLimits(delete=False), log_start=40) == [(b, "log start offset") for b in (0, 10, 20)]


def test_without_delete_in_the_policy_only_the_log_start_counts() -> None:
    assert doomed(RetentionLimits(0, 0, delete=False), now_ms=9999) == []


def test_nothing_above_the_high_watermark_is_deleted() -> None:
    limits = RetentionLimits(retention_ms=0)
    assert [base for base, _ in doomed(limits, now_ms=9999, high_watermark=19)] == [0]
    assert [base for base, _ in doomed(limits, now_ms=9999, high_watermark=20)] == [0, 10]
    assert [base for base, _ in doomed(limits, now_ms=9999, high_watermark=39)] == [0, 10, 20]


def test_an_empty_active_segment_stays() -> None:
    log = [SegmentFacts(0, 100, 1000), SegmentFacts(40, 0, 0)]
    assert [base for base, _ in doomed(RetentionLimits(0, 0), now_ms=9999, log=log)] == [0]
    assert doomed(RetentionLimits(0, 0), now_ms=9999, log=[SegmentFacts(40, 0, 0)]) == []


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 5000)), min_size=1, max_size=12),
    st.integers(-1, 500),
    st.integers(-1, 5000),
    st.integers(0, 130),
    st.integers(0, 130),
)
def test_deleted_segments_are_a_prefix_and_the_rest_obeys_the_limits(
    facts: list[tuple[int, int]], size: int, age: int, start: int, high: int
) -> None:
    log = [SegmentFacts(i * 10, bytes_, stamp) for i, (bytes_, stamp) in enumerate(facts)]
    leo = len(log) * 10
    limits = RetentionLimits(age, size)
    gone = segments_to_delete(log, limits, log_start=start, high_watermark=high, leo=leo, now_ms=5000)
    assert [base for base, _ in gone] == [s.base_offset for s in log[: len(gone)]]
    assert all(base + 10 <= high for base, _ in gone)
    stays = log[len(gone) :]
    if size >= 0 and all(reason != "retention.ms" and reason != "log start offset" for _, reason in gone) and gone:
        assert sum(s.size for s in stays) >= size
    if stays and high >= leo:
        assert age < 0 or 5000 - stays[0].largest_timestamp <= age
        assert len(stays) == 1 or stays[1].base_offset > start


def test_idle_producers_expire_but_never_an_open_transaction(tmp_path: Path) -> None:
    with live(tmp_path) as world:
        partition = world.partition()
        for producer, timestamp in ((1, 100), (2, 101), (3, 5)):
            one = batch(b"v", producer=producer, sequence=0, timestamp=timestamp)
            one.transactional = producer == 3
            put(partition, one)
        table = partition.producers.table(partition.state().pstate_gen)
        assert table is not None
        assert sorted(table.entry(at).producer_id for at in kept_producers(table, 1100, 1000)) == [2, 3]
