import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.storage.producers import snapshots
from odradek.storage.producers.producer_state import MAX_SEQUENCE, ProducedBatch, ProducerEntry, previous_sequence
from odradek.storage.producers.snapshots import SnapshotError
from tests.storage.written import write_snapshot


@st.composite
def entries(draw: st.DrawFn) -> ProducerEntry:
    epoch = draw(st.integers(0, 32767))
    entry = ProducerEntry(epoch, draw(st.integers(-1, 99)), draw(st.integers(-1, 2**60)), draw(st.integers(-1, 2**60)))
    if draw(st.booleans()):
        last, delta = draw(st.integers(0, MAX_SEQUENCE)), draw(st.integers(0, 1000))
        offset = draw(st.integers(delta, 2**60))
        first = previous_sequence(last, delta)
        entry.batches.append(ProducedBatch(first, last, offset - delta, offset, entry.timestamp, epoch))
    return entry


@given(st.dictionaries(st.integers(0, 2**62), entries(), max_size=8))
def test_a_snapshot_reads_back(producers: dict[int, ProducerEntry]) -> None:
    assert snapshots.decode(snapshots.encode(producers)) == producers


def test_layout_is_kafkas_version_1() -> None:
    batch = ProducedBatch(10, 14, 100, 104, 1700, 3)
    data = snapshots.encode({4711: ProducerEntry(3, 7, 1700, -1, [batch])})
    assert data[:2] == b"\0\1"
    assert data[6:] == struct.pack(">iqhiqiqiq", 1, 4711, 3, 14, 104, 4, 1700, 7, -1)


@given(st.binary(max_size=200))
def test_rubbish_is_a_snapshot_error(data: bytes) -> None:
    with pytest.raises(SnapshotError):
        snapshots.decode(data)


@given(st.data())
def test_any_flipped_bit_is_seen(data: st.DataObject) -> None:
    content = bytearray(snapshots.encode({1: ProducerEntry(1), 2: ProducerEntry(2)}))
    bit = data.draw(st.integers(0, len(content) * 8 - 1))
    content[bit // 8] ^= 1 << bit % 8
    with pytest.raises(SnapshotError):
        snapshots.decode(bytes(content))


def test_the_newest_intact_one_is_used_and_few_are_kept(tmp_path: Path) -> None:
    for offset in (10, 20, 30, 40, 50):
        write_snapshot(tmp_path, offset, {offset: ProducerEntry(1)})
    (tmp_path / "00000000000000000040.snapshot").write_bytes(b"broken")
    notes: list[str] = []
    offsets = [10, 20, 30, 35, 40, 50]
    found = snapshots.newest_snapshot(tmp_path, offsets, 45, notes)
    assert found is not None
    assert (found[0], list(found[1])) == (30, [30])
    assert len(notes) == 1
    assert "00000000000000000040.snapshot" in notes[0]
    assert offsets == [10, 20, 30, 50]
    snapshots.prune_snapshots(tmp_path, offsets, 45, keep=2)
    assert snapshots.snapshot_offsets(tmp_path) == [20, 30]
    snapshots.prune_snapshots(tmp_path, [20, 30], 45, {0, 20}, keep=1)
    assert snapshots.snapshot_offsets(tmp_path) == [20, 30], "a segment begins at 20"
    snapshots.prune_snapshots(tmp_path, [20, 30], 45, {0}, keep=1)
    assert snapshots.snapshot_offsets(tmp_path) == [30]
    assert snapshots.newest_snapshot(tmp_path, offsets, 5, notes) is None
