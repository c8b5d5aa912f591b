"""Slices of records in place, compared with the reader of whole records."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.batch import DELETE_HORIZON, HEADER_SIZE
from odradek.protocol.records import batch_v2, codecs, slices
from odradek.protocol.records.errors import RecordError

SOME = st.none() | st.binary(max_size=300)
ROWS = st.lists(
    st.tuples(st.integers(1, 5000), st.integers(-1, 1 << 45), SOME, SOME, st.just(()) | st.just((("h", b"v"),))),
    min_size=1,
    max_size=8,
)


def batch(rows: list[Any], **fields: int) -> bytes:
    offset, records = 1000, []
    for step, timestamp, key, value, headers in rows:
        offset += step
        records.append((offset, timestamp, key, value, [(name.encode(), text) for name, text in headers]))
    return batch_v2.build(records, **fields)


@given(ROWS, st.sampled_from(range(5)), st.data())
def test_slices_equal_the_records_of_the_reader(rows: list[Any], codec: int, data: st.DataObject) -> None:
    raw = batch(rows, codec=codec, producer_id=7, producer_epoch=1, base_sequence=4, leader_epoch=9)
    body, head = batch_v2.payload(raw), batch_v2.header(raw)
    records, found = list(batch_v2.iterate(raw)), list(slices.slices(body, head))
    assert [(one.offset, head.base_timestamp + one.timestamp_delta, one.key, one.has_value) for one in found] == [
        (offset, timestamp, key, value is not None) for offset, timestamp, key, value, _ in records
    ]
    chosen = data.draw(st.sets(st.sampled_from(range(len(found))), min_size=1))
    for horizon in (None, data.draw(st.integers(0, 1 << 45))):
        made = slices.with_records(head, body, [found[n] for n in sorted(chosen)], horizon)
        new = batch_v2.check(made)
        assert list(batch_v2.iterate(made)) == [records[n] for n in sorted(chosen)]
        same = ("base_offset", "last_offset_delta", "producer_id", "producer_epoch", "base_sequence", "leader_epoch")
        assert [getattr(new, name) for name in same] == [getattr(head, name) for name in same]
        assert new.max_timestamp == max(records[n][1] for n in chosen)
        assert new.codec == codec
        if horizon is not None:
            assert (new.base_timestamp, new.attributes & DELETE_HORIZON) == (horizon, 0x40)


def test_emptied_batch_keeps_offsets_and_sequence() -> None:
    raw = batch([(1, 5, b"k", b"v", ())] * 3, codec=codecs.GZIP, producer_id=7, producer_epoch=1, base_sequence=4)
    head, new = batch_v2.header(raw), batch_v2.check(slices.emptied(batch_v2.header(raw)))
    assert (new.num_records, new.codec, new.size) == (0, codecs.NONE, HEADER_SIZE)
    assert (new.base_offset, new.last_offset, new.base_sequence) == (head.base_offset, head.last_offset, 4)


@given(ROWS, st.integers(0, 10_000), st.binary(min_size=1, max_size=4))
def test_damage_is_a_record_error_or_read(rows: list[Any], at: int, noise: bytes) -> None:
    raw = batch(rows)
    body, head = bytearray(batch_v2.payload(raw)), batch_v2.header(raw)
    body[at % len(body) : at % len(body) + len(noise)] = noise
    try:
        for _ in slices.slices(bytes(body), head):
            pass
    except RecordError as error:
        assert error.code


def test_fewer_records_than_the_header_declares_are_refused() -> None:
    raw = batch([(1, 5, b"k", b"v", ())])
    with pytest.raises(RecordError, match="declared count"):
        list(slices.slices(batch_v2.payload(raw), batch_v2.header(raw)._replace(num_records=2)))
