"""The timestamp of a record in batches of every kind."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.protocol.records import batch_v2, message_sets, slices
from odradek.protocol.records.record_times import first_entry, timestamp_at

RECORDS: list[Any] = [(offset, 100 + offset, b"key", b"value", ()) for offset in range(5, 9)]


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
@pytest.mark.parametrize(("offset", "timestamp"), [(3, 105), (5, 105), (6, 106), (8, 108)])
def test_timestamp_is_that_of_the_record(codec: int, offset: int, timestamp: int) -> None:
    assert timestamp_at(batch_v2.build(RECORDS, codec=codec), offset) == timestamp


def test_log_append_time_is_that_of_the_batch() -> None:
    batch = batch_v2.build(RECORDS, timestamp_type=batch_v2.LOG_APPEND_TIME, append_time=777)
    assert timestamp_at(batch, 6) == 777


@pytest.mark.parametrize("offset", [3, 5, 7])
def test_a_delete_horizon_is_no_timestamp(offset: int) -> None:
    """Compaction writes a delete horizon in place of the base timestamp."""
    plain = batch_v2.build(RECORDS)
    head, body = batch_v2.header(plain), batch_v2.payload(plain)
    cleaned = slices.with_records(head, body, list(slices.slices(body, head)), horizon=10**12)
    assert batch_v2.header(cleaned).base_timestamp == 10**12
    assert timestamp_at(cleaned, offset) == 100 + max(offset, 5)


def test_message_sets_have_timestamps_too() -> None:
    assert timestamp_at(message_sets.build(RECORDS, magic=1), 6) == 106


@pytest.mark.parametrize("data", [batch_v2.build(RECORDS), message_sets.build(RECORDS[:1], magic=1)])
def test_first_entry_is_whole_or_nothing(data: bytes) -> None:
    assert first_entry(data) == first_entry(data + data) == first_entry(data + data[:20]) == data
    assert [first_entry(data[:end]) for end in range(len(data))] == [b""] * len(data)
