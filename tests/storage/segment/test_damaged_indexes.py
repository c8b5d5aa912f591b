"""Indexes, transaction indexes and snapshots that are gone or damaged: at a start, and when a reader meets them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.ipc import slots
from odradek.protocol import errors
from odradek.storage.files import names
from odradek.storage.files.faults import DamagedIndex
from odradek.storage.log import control_batch, read, reindex, roll, transactions
from odradek.storage.log.partition import TRIMMING, Partition
from odradek.storage.producers.producer_state import TXN_ENTRY, AbortedTxn, ProducerEntry, read_txn_index
from odradek.storage.recovery import recovery, trusted_state
from odradek.storage.recovery.crash_cleanup import Contents
from odradek.storage.recovery.recovery import Recovered
from odradek.storage.segment.epochs import EpochCache
from odradek.storage.tools import check

from ..compaction.compacting import keyed, put
from ..live import NOW, Live, live, records
from ..log import by_time
from ..written import write_snapshot

CONFIG = {"segment_bytes": 2000, "index_interval_bytes": 150}


def _faults(directory: Path) -> list[str]:
    return [str(fault) for fault in check.check(directory, deep=True)]


def _seal(partition: Partition) -> None:
    with partition.locked() as values:
        roll.roll(partition, values)


def _end(partition: Partition, producer: int, commit: bool) -> None:
    assert control_batch.write_marker(partition, producer, 0, 1, commit, NOW) == errors.NONE


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Live]:
    """Two sealed segments and an active one; transactions are aborted in each, one of them begun in the first."""
    with live(tmp_path, **CONFIG) as made:
        partition = made.partition()
        for n in range(6):
            put(partition, keyed([(b"k", b"%d" % n * 30)], timestamp=NOW + n))
        put(partition, keyed([(b"k", b"aborted later")], producer=8, sequence=0, transaction=True, timestamp=NOW + 6))
        for n in range(2):
            put(partition, keyed([(b"k", b"aborted")], producer=7, sequence=n, transaction=True, timestamp=NOW + 7))
            _end(partition, 7, n == 1)
        _seal(partition)
        for n in range(8):
            put(partition, keyed([(b"k", b"%d" % n * 30)], timestamp=NOW + 10 + n))
        _end(partition, 8, False)
        _seal(partition)
        put(partition, keyed([(b"k", b"active")], timestamp=NOW + 50))
        yield made


def _sealed(world: Live) -> list[int]:
    partition = world.partition(6)
    state = partition.state()
    return partition.bases(state.active_base, state.generation)[:-1]


def _recover(world: Live, copy: Path, *spoiled: Path, clean: bool = True) -> Recovered:
    """A start over a copy, of which all is below the recovery point."""
    state = world.partition(6).state()
    point = 0 if not clean else state.leo
    return recovery.recover(copy, world.partition(6).config, recovery_point=point, clean=clean)


def _copy(world: Live, tmp_path: Path) -> Path:
    """A copy of the world's files, with the snapshot of a clean stop."""
    directory = world.root / "t-0"
    copy = tmp_path / "copy" / "t-0"
    shutil.copytree(directory, copy)
    return copy


def _rows(directory: Path) -> list[AbortedTxn]:
    return [row for path in sorted(directory.glob("*.txnindex")) for row in read_txn_index(path)]


@pytest.mark.parametrize("lost", [names.INDEXES, (names.INDEX,), (names.TIME_INDEX, names.TXN_INDEX)])
@pytest.mark.parametrize("snapshots_too", [False, True])
def test_transaction_index_is_rebuilt_with_the_others(
    world: Live, tmp_path: Path, lost: tuple[str, ...], snapshots_too: bool
) -> None:
    copy = _copy(world, tmp_path)
    expected = _rows(copy)
    assert len(expected) == 2
    for path in list(copy.iterdir()):
        if path.suffix in lost or (snapshots_too and path.suffix == names.SNAPSHOT):
            path.unlink()
    assert _faults(copy)
    found = _recover(world, copy)
    assert _rows(copy) == expected
    assert _faults(copy) == []
    assert [note for note in found.notes if note.startswith("rebuilt the indexes")]


def test_row_with_a_batch_of_a_segment_without_index(world: Live, tmp_path: Path) -> None:
    partition = world.partition()
    put(partition, keyed([(b"k", b"aborted")], producer=9, sequence=0, transaction=True, timestamp=NOW + 60))
    _seal(partition)
    _end(partition, 9, False)
    copy = _copy(world, tmp_path)
    path = names.segment_path(copy, _sealed(world)[-1], names.INDEX)
    path.unlink()
    _recover(world, copy)
    assert path.exists()
    assert _rows(copy) == _rows(world.root / "t-0")
    assert _faults(copy) == []


@pytest.mark.parametrize("snapshots_too", [False, True])
def test_row_with_a_batch_of_an_earlier_segment(world: Live, tmp_path: Path, snapshots_too: bool) -> None:
    copy = _copy(world, tmp_path)
    expected, base = _rows(copy), _sealed(world)[1]
    assert expected[1].first_offset < base
    for kind in names.INDEXES:
        names.segment_path(copy, base, kind).unlink()
    for path in copy.glob("*.snapshot") if snapshots_too else ():
        path.unlink()
    _recover(world, copy)
    assert _rows(copy) == expected
    assert _faults(copy) == []


def test_check_reports_missing_rows(world: Live, tmp_path: Path) -> None:
    copy = _copy(world, tmp_path)
    assert _faults(copy) == []
    first, second = sorted(copy.glob("*.txnindex"))
    first.unlink()
    (fault,) = _faults(copy)
    assert fault.startswith(f"{first}: lacks the transaction of producer 7 from offset 7")
    row = read_txn_index(second)[0]
    second.write_bytes(row._replace(first_offset=row.first_offset - 1).pack())
    assert len(_faults(copy)) == 2


@pytest.mark.parametrize("byte", range(TXN_ENTRY.size))
def test_any_damaged_byte_of_a_transaction_index_is_noticed_at_a_start(world: Live, tmp_path: Path, byte: int) -> None:
    copy = _copy(world, tmp_path)
    expected = _rows(copy)
    for path in copy.glob("*.txnindex"):
        data = bytearray(path.read_bytes())
        data[byte] ^= 0x80 if byte != TXN_ENTRY.size - 1 else 0xC0
        path.write_bytes(data)
    assert _rows_or_none(copy) != expected
    _recover(world, copy)
    assert _rows(copy) == expected


def _rows_or_none(directory: Path) -> list[AbortedTxn] | None:
    try:
        return _rows(directory)
    except DamagedIndex:
        return None


def test_partial_and_extra_rows_are_noticed_at_a_start(world: Live, tmp_path: Path) -> None:
    for spoil in (lambda data: data[:-3] + data, lambda data: data + data[:20], lambda data: data + data):
        copy = _copy(world, tmp_path)
        expected = _rows(copy)
        path = min(copy.glob("*.txnindex"))
        path.write_bytes(spoil(path.read_bytes()))
        _recover(world, copy)
        assert _rows(copy) == expected
        shutil.rmtree(copy)


def test_time_index_without_its_last_entries_is_rebuilt(world: Live, tmp_path: Path) -> None:
    base = _sealed(world)[1]
    size = names.segment_path(world.root / "t-0", base, names.TIME_INDEX).stat().st_size
    assert size > 24
    for cut in range(0, size, 12):
        copy = _copy(world, tmp_path)
        path = names.segment_path(copy, base, names.TIME_INDEX)
        expected = path.read_bytes()
        path.write_bytes(expected[:cut])
        _recover(world, copy)
        assert path.read_bytes() == expected
        shutil.rmtree(copy)


OPEN = ProducerEntry(0, 1, NOW, 3, [])  # a transaction from offset 3 on


def test_snapshots_of_a_lost_log_are_ignored(world: Live, tmp_path: Path) -> None:
    """Its end is below its checkpointed start."""
    copy = _copy(world, tmp_path)
    write_snapshot(copy, 5, {9: OPEN})
    start = world.partition(6).state().leo + 100
    for _ in range(2):
        found = recovery.recover(copy, world.partition(6).config, recovery_point=start, log_start=start, clean=True)
        assert (found.log_start, found.leo, found.first_unstable, found.producers) == (start, start, -1, {})
        assert not list(copy.glob("*.snapshot"))
        write_snapshot(copy, 5, {9: OPEN})
    found = recovery.recover(copy, world.partition(6).config, recovery_point=start, log_start=start)
    assert (found.first_unstable, found.producers) == (-1, {})
    assert not list(copy.glob("*.snapshot"))


def test_snapshot_below_the_first_segment_is_ignored_if_the_newer_is_broken(world: Live, tmp_path: Path) -> None:
    copy = _copy(world, tmp_path)
    first = _sealed(world)[1]
    for kind in (names.LOG, *names.INDEXES, names.SNAPSHOT):
        names.segment_path(copy, 0, kind).unlink(missing_ok=True)
    for path in copy.glob("*.snapshot"):
        path.write_bytes(b"broken")
    stale = write_snapshot(copy, 5, {9: OPEN})
    found = _recover(world, copy)
    assert (found.log_start, found.first_unstable) == (first, -1)
    assert 9 not in found.producers
    assert not stale.exists()


def test_snapshot_below_the_first_segment_is_ignored_while_the_broker_runs(world: Live, tmp_path: Path) -> None:
    """As when an index is rebuilt: nothing removes such a snapshot then."""
    copy = _copy(world, tmp_path)
    bases = _sealed(world)[1:]
    sizes = {base: names.segment_path(copy, base).stat().st_size for base in bases}
    write_snapshot(copy, 5, {9: OPEN})
    contents = Contents(sizes, [5])
    assert not trusted_state.load_producers(copy, contents, bases[0], EpochCache(), []).replay.producers
    assert contents.snapshots == []


def test_compacted_transaction_is_not_open_by_a_snapshot(world: Live, tmp_path: Path) -> None:
    """Compaction removed it and its marker: the log alone would never end it."""
    copy = _copy(world, tmp_path)
    newest = max(copy.glob("*.snapshot"))
    write_snapshot(copy, int(newest.stem), {9: OPEN, 7: OPEN})
    found = _recover(world, copy)
    assert found.first_unstable == -1
    open_ = ProducerEntry(0, 1, NOW, 6, [])
    write_snapshot(copy, int(newest.stem), {8: open_})
    assert _recover(world, copy).first_unstable == 6, "its first batch is there"


# --- readers


def _flip_middle(world: Live, base: int, kind: str, entry: int, at: int, bit: int = 0x40) -> None:
    path = names.segment_path(world.root / "t-0", base, kind)
    data = bytearray(path.read_bytes())
    assert 2 * entry < len(data)
    data[entry + at] ^= bit
    path.write_bytes(data)


def test_janitor_repairs_a_flipped_position_that_a_reader_finds(world: Live) -> None:
    base = _sealed(world)[1]
    path = names.segment_path(world.root / "t-0", base, names.INDEX)
    whole, expected = path.read_bytes(), records(world.partition(1))
    _flip_middle(world, base, names.INDEX, 8, 7)
    with pytest.raises(DamagedIndex, match="no batch begins"):
        for partition in (world.partition(2), world.partition(3)):
            for offset in range(base, base + 9):
                records(partition, offset)
                partition.positions.clear()
                for most in range(1, 1000, 61):
                    read.fetch(partition, partition.slot.read(), base, base + 9, most)
                    partition.positions.clear()
    former = world.partition(4)
    generation = former.state().generation
    assert former.slot.damaged == base
    reindex.mend(former)
    assert former.slot.damaged == -1
    assert former.state().generation == generation + 1
    assert path.read_bytes() == whole
    assert records(world.partition(1)) == expected


@pytest.mark.parametrize(("at", "bit"), [(7, 1), (11, 1), (11, 0x40), (8, 0x40)])  # the time; the offset
def test_flipped_timestamp_is_found_and_repaired(world: Live, at: int, bit: int) -> None:
    base = _sealed(world)[1]
    partition = world.partition(1)
    _flip_middle(world, base, names.TIME_INDEX, 12, at, bit)
    values = partition.slot.read()
    with pytest.raises(DamagedIndex, match="time index"):
        for timestamp in range(NOW, NOW + 60):
            by_time.first_not_before(partition, values, timestamp, values[slots.F_LEO])
    reindex.mend(partition)
    for n in range(8):
        found = by_time.first_not_before(partition, partition.slot.read(), NOW + 10 + n, values[slots.F_LEO])
        assert found is not None and found[:2] == (NOW + 10 + n, base + n)
    assert _faults(world.root / "t-0") == []


@pytest.mark.parametrize("kind", [names.INDEX, names.TIME_INDEX])
def test_lost_index_is_rebuilt(world: Live, kind: str) -> None:
    base = _sealed(world)[1]
    path = names.segment_path(world.root / "t-0", base, kind)
    whole = path.read_bytes()
    path.unlink()
    partition = world.partition(1)
    with pytest.raises(DamagedIndex, match="is missing"):
        if kind == names.INDEX:
            records(partition, base)
        else:
            by_time.newest(partition, partition.slot.read(), 1000)
    reindex.mend(partition)
    assert path.read_bytes() == whole


def _mends_rows(world: Live, partition: Partition, why: str, expected: list[AbortedTxn], aborted: int = 2) -> None:
    """A reader finds wrong or missing rows, and the janitor rebuilds them from the log."""
    with pytest.raises(DamagedIndex, match=why):
        transactions.aborted_between(partition, partition.slot.read(), 0, 30)
    reindex.mend(partition)
    assert _rows(world.root / "t-0") == expected
    assert len(transactions.aborted_between(partition, partition.slot.read(), 0, 30)) == aborted


def test_damaged_transaction_index_is_found_and_repaired(world: Live) -> None:
    expected = _rows(world.root / "t-0")
    path = min((world.root / "t-0").glob("*.txnindex"))
    data = bytearray(path.read_bytes())
    data[1] ^= 1  # the version
    path.write_bytes(data)
    partition = world.partition(1)
    _mends_rows(world, partition, "version", expected)


def test_index_of_the_active_segment_is_rebuilt_once_sealed(world: Live) -> None:
    partition = world.partition(1)
    base = partition.state().active_base
    for n in range(8):
        put(partition, keyed([(b"k", b"%d" % n * 30)], timestamp=NOW + 60 + n))
    path = names.segment_path(world.root / "t-0", base, names.INDEX)
    whole = path.read_bytes()
    _flip_middle(world, base, names.INDEX, 8, 7)
    reader = world.partition(2)
    with pytest.raises(DamagedIndex):
        for offset in range(base, base + 9):
            records(reader, offset)
            reader.positions.clear()
    reindex.mend(partition)
    assert partition.state().active_base == base + 9
    assert path.read_bytes() == whole


def test_damage_of_the_log_itself_is_not_repaired(world: Live, caplog: pytest.LogCaptureFixture) -> None:
    base = _sealed(world)[1]
    path = names.segment_path(world.root / "t-0", base)
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    path.write_bytes(data)
    partition = world.partition(1)
    partition.slot.damaged = base
    generation = partition.state().generation
    reindex.mend(partition)
    assert partition.state().generation == generation
    assert f"segment {base} is damaged at byte" in caplog.text
    assert partition.slot.damaged == -1


def test_a_death_in_a_trim_leaves_no_transaction_index(world: Live) -> None:
    """The files that remain after the rename of the log and the death of the process."""

    partition = world.partition(1)
    base = _sealed(world)[1]
    with partition.locked() as values:
        partition.slot.dirty = TRIMMING
        values[slots.F_LOG_START] = base
        partition.slot.publish(values)
    for kind in (names.INDEX, names.TIME_INDEX, names.SNAPSHOT, names.LOG):
        path = names.segment_path(world.root / "t-0", 0, kind)
        if path.exists():
            path.rename(f"{path}{names.DELETED}")
    assert names.segment_path(world.root / "t-0", 0, names.TXN_INDEX).exists()
    with world.partition(2).locked():
        pass
    assert not names.segment_path(world.root / "t-0", 0, names.TXN_INDEX).exists()
    assert _faults(world.root / "t-0") == []


@pytest.mark.parametrize("size", [0, 8, 20])
def test_index_truncated_during_a_read_is_rebuilt(world: Live, size: int) -> None:
    """Not a SIGBUS, which would end the process."""
    base, reader = _sealed(world)[1], world.partition(1)
    expected = records(reader)
    newest = by_time.newest(reader, reader.slot.read(), 1000)
    for kind in (names.INDEX, names.TIME_INDEX):
        path = names.segment_path(world.root / "t-0", base, kind)
        whole = path.read_bytes()
        os.truncate(path, size)
        reader.positions.clear()
        with pytest.raises(DamagedIndex):
            records(reader, base + 7)
            by_time.newest(reader, reader.slot.read(), 1000)
        reindex.mend(reader)
        assert path.read_bytes() == whole
    assert records(reader) == expected
    assert by_time.newest(reader, reader.slot.read(), 1000) == newest


@pytest.mark.parametrize("size", [0, 12, 20])
def test_time_index_truncated_before_a_read_is_rebuilt(world: Live, size: int) -> None:
    base, reader = _sealed(world)[1], world.partition(1)
    path = names.segment_path(world.root / "t-0", base, names.TIME_INDEX)
    whole = path.read_bytes()
    os.truncate(path, size)
    with pytest.raises(DamagedIndex):
        by_time.first_not_before(reader, reader.slot.read(), NOW + 10, 1000)
    reindex.mend(reader)
    assert path.read_bytes() == whole


def test_truncated_index_of_the_active_segment_is_rebuilt_once_sealed(world: Live) -> None:
    partition = world.partition(1)
    base = partition.state().active_base
    for n in range(8):
        put(partition, keyed([(b"k", b"%d" % n * 30)], timestamp=NOW + 60 + n))
    whole, expected = [], records(partition)
    for kind in (names.INDEX, names.TIME_INDEX):
        path = names.segment_path(world.root / "t-0", base, kind)
        whole.append(path.read_bytes())
        os.truncate(path, 0)
    reader = world.partition(2)
    with pytest.raises(DamagedIndex, match="the index ends"):
        records(reader, base + 8)
    with pytest.raises(DamagedIndex, match="the index ends"):
        by_time.first_not_before(reader, reader.slot.read(), NOW + 67, 1000)
    reindex.mend(partition)
    for kind, data in zip((names.INDEX, names.TIME_INDEX), whole, strict=True):
        assert names.segment_path(world.root / "t-0", base, kind).read_bytes().startswith(data)
    assert records(reader) == expected
    assert _faults(world.root / "t-0") == []


@pytest.mark.parametrize("left", [-1, 0, 20])
@pytest.mark.parametrize("segment", [0, 1])
def test_rows_lost_while_the_broker_runs_are_rewritten(world: Live, segment: int, left: int) -> None:
    """Otherwise readers would see aborted records. Only the slot shows that a transaction index existed."""
    expected = _rows(world.root / "t-0")
    path = names.segment_path(world.root / "t-0", _sealed(world)[segment], names.TXN_INDEX)
    path.unlink() if left < 0 else os.truncate(path, left)
    reader = world.partition(1)
    _mends_rows(world, reader, "1 aborted transactions are missing", expected)
    assert reader.slot.damaged == -1


def test_lost_rows_of_the_active_segment_are_rewritten(world: Live) -> None:
    partition = world.partition(1)
    put(partition, keyed([(b"k", b"aborted")], producer=9, sequence=0, transaction=True, timestamp=NOW + 60))
    _end(partition, 9, False)
    expected = _rows(world.root / "t-0")
    for path in (world.root / "t-0").glob("*.txnindex"):
        path.unlink()
    _mends_rows(world, partition, "3 aborted transactions", expected, aborted=3)


def test_rows_deleted_with_their_segments_are_not_missing(world: Live) -> None:
    from odradek.storage.log import trim

    partition, reader = world.partition(1), world.partition(2)
    for base in _sealed(world)[1:]:
        with partition.locked() as values:
            trim.advance(partition, values, base)
        assert transactions.aborted_between(reader, reader.slot.read(), base, 20)
    assert partition.state().aborted == len(_rows(world.root / "t-0")) == 1


@pytest.mark.parametrize("kind", [names.INDEX, names.TIME_INDEX])
def test_lost_index_of_the_active_segment_is_rebuilt(world: Live, kind: str) -> None:
    partition, reader = world.partition(1), world.partition(2)
    expected = records(partition)
    names.segment_path(world.root / "t-0", partition.state().active_base, kind).unlink()
    with pytest.raises(DamagedIndex, match=f"the {kind} of segment .* is missing"):
        records(reader)
    reindex.mend(reader)
    assert records(reader) == expected
    assert _faults(world.root / "t-0") == []
