"""Records of fetched batches: from an offset on, by key, bounded; what cannot be read is skipped with a reason."""

from __future__ import annotations

import pytest

from odradek.broker.exporter.console import browsed_records
from odradek.broker.exporter.console.browsed_records import Browsed
from odradek.protocol.records import batch_v2, codecs, control, message_sets
from odradek.protocol.records.batch_v2 import Record


def records(first: int, count: int) -> list[Record]:
    return [(at, 1000 + at, b"k%d" % at, b"v%d" % at, [(b"h", b"x")]) for at in range(first, first + count)]


def batch(first: int, count: int, codec: int = codecs.NONE) -> bytes:
    return batch_v2.build(records(first, count), codec=codec)


def offsets(browsed: Browsed) -> list[int]:
    return [row["offset"] for row in browsed.rows]


@pytest.mark.parametrize("codec", codecs.NAMES)
def test_records_begin_at_the_offset_and_end_at_the_limit(codec: int) -> None:
    browsed = Browsed(offset=5, limit=4)
    browsed.feed(batch(0, 7, codec) + batch(7, 10, codec))
    assert offsets(browsed) == [5, 6, 7, 8]
    assert (browsed.offset, browsed.is_full, browsed.skipped) == (9, True, [])


def test_a_row_has_what_the_record_has() -> None:
    browsed = Browsed(offset=0, limit=1)
    browsed.feed(batch(0, 1))
    text = {"as": "text", "bytes": 2, "cut": False}
    assert browsed.rows == [
        {
            "offset": 0, "timestamp": 1000, "key": {**text, "text": "k0"}, "value": {**text, "text": "v0"},
            "headers": [{"name": "h", "value": "x"}], "more_headers": 0,
        }
    ]  # fmt: skip


def test_a_key_is_searched_for() -> None:
    browsed = Browsed(offset=0, limit=10, key="k1")
    browsed.feed(batch(0, 15))
    assert offsets(browsed) == [1, 10, 11, 12, 13, 14]
    assert browsed.offset == 15


def test_a_search_ends_after_many_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsed_records, "READ", 10)
    browsed = Browsed(offset=0, limit=10, key="none")
    browsed.feed(batch(0, 15))
    assert (browsed.offset, browsed.is_full) == (10, True)


def test_control_records_are_passed_over() -> None:
    marker = control.end_marker(
        kind=control.COMMIT, base_offset=3, timestamp=0, producer_id=1, producer_epoch=0, coordinator_epoch=0
    )
    browsed = Browsed(offset=0, limit=10)
    browsed.feed(batch(0, 3) + marker + batch(4, 1))
    assert offsets(browsed) == [0, 1, 2, 4] and browsed.offset == 5


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [codecs.NONE, codecs.GZIP])
def test_old_formats_are_read(magic: int, codec: int) -> None:
    plain: list[Record] = [(at, 1000, b"k", b"v", []) for at in range(3)]
    browsed = Browsed(offset=1, limit=10)
    browsed.feed(message_sets.build(plain, magic=magic, codec=codec))
    assert offsets(browsed) == [1, 2] and browsed.offset == 3


def test_a_batch_that_unpacks_to_too_much_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsed_records, "UNPACKED", 100)
    browsed = Browsed(offset=0, limit=10)
    browsed.feed(batch(0, 100, codecs.GZIP) + batch(100, 1))
    assert offsets(browsed) == [100]
    assert len(browsed.skipped) == 1 and browsed.skipped[0].startswith("offsets 0 to 99: ")


def test_a_broken_batch_is_skipped() -> None:
    broken = bytearray(batch(0, 3))
    broken[-20:] = bytes(20)
    browsed = Browsed(offset=0, limit=10)
    browsed.feed(bytes(broken) + batch(3, 2))
    assert browsed.offset == 5 and browsed.skipped and offsets(browsed)[-2:] == [3, 4]


def test_bytes_that_are_no_batches_end_the_reading() -> None:
    browsed = Browsed(offset=0, limit=10)
    browsed.feed(bytes(100))
    assert browsed.is_full and browsed.rows == [] and len(browsed.skipped) == 1
