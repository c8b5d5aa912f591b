"""Recovery over real files: what is kept, what is cut, what is refused, and that doing it twice changes nothing."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.storage.files import names
from odradek.storage.producers import snapshots
from odradek.storage.producers.producer_state import AbortedTxn, ProducerEntry, read_txn_index
from odradek.storage.recovery.recovery import CorruptLog, Recovered, recover
from odradek.storage.segment.epochs import EpochCache
from odradek.storage.segment.scan import Scan
from odradek.storage.tools.check import check
from tests.storage.faulty import FaultyFiles
from tests.storage.logs import Interval, batch, marker, message, run_of_batches, write_segment
from tests.storage.written import write_snapshot

CONFIG = Interval()


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def facts(found: Recovered) -> tuple[object, ...]:
    """All facts of a partition's state."""
    return (
        found.log_start,
        found.leo,
        found.active_base,
        found.active_size,
        found.index_entries,
        found.time_entries,
        found.max_timestamp,
        found.max_timestamp_offset,
        found.index_pending,
        found.active_first_timestamp,
        found.segments,
        found.epochs,
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three segments, the last one active."""
    directory = tmp_path / "t-0"
    write_segment(directory, 0, run_of_batches(0, 200))
    write_segment(directory, 200, run_of_batches(200, 200, epoch=1))
    write_segment(directory, 400, run_of_batches(400, 150, epoch=1), sealed=False)
    EpochCache([(0, 0), (1, 200)]).write(directory)
    return directory


def segment(directory: Path, base: int, kind: str = names.LOG) -> Path:
    return names.segment_path(directory, base, kind)


def test_empty_directory(tmp_path: Path) -> None:
    found = recover(tmp_path, CONFIG, log_start=7)
    assert (found.log_start, found.leo, found.active_base, found.active_size) == (7, 7, 7, 0)
    assert {"00000000000000000007.log", "00000000000000000007.index", "00000000000000000007.timeindex"} <= set(
        files_of(tmp_path)
    )
    assert facts(recover(tmp_path, CONFIG, log_start=7, clean=True)) == facts(found)


def test_clean_and_unclean_starts_find_the_same(log: Path) -> None:
    before = files_of(log)
    clean, unclean = recover(log, CONFIG, clean=True), recover(log, CONFIG)
    assert facts(clean) == facts(unclean)
    assert (clean.leo, clean.max_timestamp, clean.max_timestamp_offset, clean.active_first_timestamp) == (
        550,
        1549,
        549,
        1400,
    )
    assert clean.index_pending == clean.active_size % 4130
    assert clean.epochs == ((0, 0), (1, 200))
    assert clean.notes == unclean.notes == []
    assert clean.recovery_point == 550
    assert (unclean.recovery_point, unclean.bytes_scanned) == (0, sum(s.size for s in unclean.segments))
    assert files_of(log) == before


def test_only_segments_from_the_recovery_point_on_are_read(log: Path) -> None:
    found = recover(log, CONFIG, recovery_point=399)
    assert found.bytes_scanned == found.segments[1].size + found.segments[2].size
    assert found.recovery_point == 399


@pytest.mark.parametrize("kind", [names.INDEX, names.TIME_INDEX])
@pytest.mark.parametrize("base", [0, 400])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("how", ["missing", "partial", "zeros", "beyond"])
def test_missing_and_damaged_indexes_are_rebuilt(log: Path, kind: str, base: int, clean: bool, how: str) -> None:
    expected, path = files_of(log), segment(log, base, kind)
    content = path.read_bytes()
    spoilt = {"partial": content + b"x", "zeros": content + bytes(24_000), "beyond": content + b"\x7f" * 24}
    os.unlink(path)
    if how != "missing":
        path.write_bytes(spoilt[how])
    found = recover(log, CONFIG, clean=clean, recovery_point=450)
    assert found.notes or (base == 400 and not clean)  # where all is rebuilt anyway
    assert files_of(log) == expected
    assert found.leo == 550


@pytest.mark.parametrize("keep", [1, 12, 61, 100])
def test_a_torn_write_is_cut(log: Path, keep: int) -> None:
    intact = segment(log, 400).read_bytes()
    segment(log, 400).write_bytes(intact + batch(550, size=200)[:keep])
    expected = facts(recover(log, CONFIG))
    assert segment(log, 400).read_bytes() == intact
    found = recover(log, CONFIG)
    assert (facts(found), found.notes, found.bytes_cut) == (expected, [], 0)


@pytest.mark.parametrize("clean", [True, False])
def test_the_zeros_of_a_preallocated_log_are_cut(log: Path, clean: bool) -> None:
    intact = segment(log, 400).read_bytes()
    segment(log, 400).write_bytes(intact + bytes(100_000))
    found = recover(log, CONFIG, clean=clean)
    assert (found.leo, found.bytes_cut) == (550, 100_000)
    assert "torn write" in found.notes[-1]
    assert segment(log, 400).read_bytes() == intact


def spoil(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ 1]))


@pytest.mark.parametrize(("base", "offset"), [(0, 100), (200, 399), (400, 500)])
def test_damage_in_the_middle_is_refused_and_nothing_changes(log: Path, base: int, offset: int) -> None:
    spoil(segment(log, base), 118 * (offset - base) + 100)
    before = files_of(log)
    with pytest.raises(CorruptLog, match=rf"{base}\.log.*offset {offset}.*follow") as caught:
        recover(log, CONFIG)
    assert (caught.value.offset, caught.value.position) == (offset, 118 * (offset - base))
    assert files_of(log) == before


@pytest.mark.parametrize("magic", [0, 1])
def test_damage_between_old_messages_is_refused_and_nothing_changes(tmp_path: Path, magic: int) -> None:
    """Apache Kafka wrote them; a page of zeros is no torn write where intact messages follow."""
    path = write_segment(tmp_path, 0, [message(offset, magic, value=b"v" * 300) for offset in range(100)])
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + bytes(4096) + whole[12288:])
    before = files_of(tmp_path)
    with pytest.raises(CorruptLog, match="an intact batch follows"):
        recover(tmp_path, CONFIG)
    assert files_of(tmp_path) == before


@pytest.mark.parametrize(("base", "offset"), [(0, 100), (200, 399), (400, 500)])
def test_damage_is_cut_on_request_and_kept_aside(log: Path, base: int, offset: int) -> None:
    spoil(segment(log, base), 118 * (offset - base) + 100)
    broken = segment(log, base).read_bytes()
    found = recover(log, CONFIG, on_corruption="cut")
    assert (found.leo, found.active_base) == (offset, base)
    assert "cut damage" in found.notes[0]
    position = 118 * (offset - base)
    aside = log / f"{names.offset_name(base)}.log.{position}.corrupt"
    assert aside.read_bytes() == broken[position:]
    later = [b for b in (200, 400) if b > base]
    assert [(log / f"{names.offset_name(b)}.log.corrupt").exists() for b in later] == [True] * len(later)
    assert list(check(log)) == []
    again = recover(log, CONFIG)
    assert (facts(again), again.notes) == (facts(found), [])


@pytest.mark.parametrize(("base", "offset"), [(0, 0), (0, 100), (200, 200), (200, 399), (400, 500)])
@pytest.mark.parametrize("how", ["zeros", "ends"])
def test_after_a_power_failure_a_log_ends_before_its_first_gap(log: Path, base: int, offset: int, how: str) -> None:
    path, position = segment(log, base), 118 * (offset - base)
    whole = path.read_bytes()
    path.write_bytes(whole[:position] + (bytes(118) + whole[position + 118 :] if how == "zeros" else b""))
    found = recover(log, CONFIG, restarted=True, recovery_point=offset)
    assert (found.leo, found.active_base) == (offset, base)
    assert ("machine" in found.notes[0]) if (base, how) != (400, "ends") else not found.notes
    assert list(check(log)) == []
    again = recover(log, CONFIG)
    assert (facts(again), again.notes) == (facts(found), [])


@pytest.mark.parametrize("known", [{}, {"recovery_point": 101, "restarted": True}, {"clean": True, "restarted": True}])
def test_damage_below_the_recovery_point_is_refused_after_a_power_failure(log: Path, known: dict[str, Any]) -> None:
    spoil(segment(log, 0), 118 * 100 + 100)
    os.unlink(segment(log, 0, names.INDEX))
    with pytest.raises(CorruptLog):
        recover(log, CONFIG, **known)


def test_gaps_of_a_compacted_log_stay_after_a_power_failure(log: Path) -> None:
    path = segment(log, 0)
    path.write_bytes(path.read_bytes()[: 118 * 100])
    assert recover(log, Interval(compacted=True), restarted=True).leo == 550
    found = recover(log, CONFIG, restarted=True, compacted_upto=150)  # it is compacted no more
    assert (found.leo, found.notes) == (550, [])
    assert recover(log, CONFIG, restarted=True, compacted_upto=100).leo == 100


def test_gaps_of_a_possibly_compacted_log_stay(log: Path) -> None:
    """It is adopted without its configs, and the cleaner's checkpoint is lost."""
    path = segment(log, 0)
    path.write_bytes(path.read_bytes()[: 118 * 100])
    assert recover(log, Interval(retention_unknown=True), restarted=True).leo == 550


@pytest.mark.parametrize("absurd", [551, 1 << 52, (1 << 63) - 1, -1, -(1 << 63)])
def test_impossible_cleaner_checkpoint_excuses_no_gap(log: Path, absurd: int) -> None:
    """Nothing was compacted here: a power failure lost the end of the first segment."""
    path = segment(log, 0)
    path.write_bytes(path.read_bytes()[: 118 * 100])
    found = recover(log, CONFIG, restarted=True, compacted_upto=absurd)
    assert found.leo == 100 and "machine" in found.notes[0]


@pytest.mark.parametrize("beyond", [551, 1 << 52, (1 << 63) - 1])
@pytest.mark.parametrize("restarted", [False, True])
def test_impossible_recovery_point_is_ignored(log: Path, beyond: int, restarted: bool) -> None:
    """As a damaged checkpoint may say. The indexes look right: only reading the segment shows the damage."""
    spoil(segment(log, 0), 500)
    assert recover(log, CONFIG, recovery_point=550, restarted=restarted).leo == 550
    with pytest.raises(CorruptLog):
        recover(log, CONFIG, recovery_point=beyond, restarted=restarted)


def test_intact_log_keeps_all_with_a_recovery_point_beyond_its_end(log: Path) -> None:
    expected = facts(recover(log, CONFIG, recovery_point=0))
    found = recover(log, CONFIG, recovery_point=1 << 52)
    assert facts(found) == expected and found.notes == [
        f"the log ends before its recovery point {1 << 52}: checked all of it"
    ]


def test_a_cleaners_checkpoint_may_be_the_logs_end(log: Path) -> None:
    """After a truncation to there, which left the last segment that was compacted as the active one."""
    for base, size in ((0, 118 * 100), (200, 118 * 200)):
        path = segment(log, base)
        path.write_bytes(path.read_bytes()[:size])
    for path in log.glob(f"{names.offset_name(400)}.*"):
        path.unlink()
    assert recover(log, CONFIG, restarted=True, compacted_upto=400).leo == 400


def test_damage_below_the_recovery_point_shows_when_an_index_is_rebuilt(log: Path) -> None:
    spoil(segment(log, 0), 500)
    os.unlink(segment(log, 0, names.INDEX))
    with pytest.raises(CorruptLog):
        recover(log, CONFIG, recovery_point=550)
    found = recover(log, CONFIG, recovery_point=550, on_corruption="cut")
    assert (found.leo, found.recovery_point) == (4, 4)


@pytest.mark.parametrize("known", [{}, {"recovery_point": 399}, {"recovery_point": 550}, {"clean": True}])
def test_empty_segment_is_reported(log: Path, known: dict[str, Any]) -> None:
    for kind in (names.LOG, *names.INDEXES):
        if segment(log, 0, kind).exists():
            segment(log, 0, kind).write_bytes(b"")
    found = recover(log, CONFIG, **known)
    assert found.leo == 550
    assert "offsets 0 to 199 are missing before the segment at offset 200" in found.notes


def test_empty_last_segment_after_a_torn_one_is_removed(log: Path) -> None:
    write_segment(log, 551, [], sealed=False)
    segment(log, 400).write_bytes(segment(log, 400).read_bytes() + batch(550)[:-1])
    found = recover(log, CONFIG)
    assert (found.leo, found.active_base) == (550, 400)
    assert not segment(log, 551).exists()
    assert not segment(log, 551, names.INDEX).exists()


def test_log_that_ends_before_its_start_is_reset(log: Path) -> None:
    for base in (200, 400):
        os.unlink(segment(log, base))
    found = recover(log, CONFIG, log_start=300, recovery_point=300)
    assert (found.log_start, found.leo, found.active_base, found.segments) == (300, 300, 300, ((300, 0),))
    assert found.epochs == ()
    assert "removed it" in found.notes[-1]
    assert list(check(log)) == []


def test_epochs_are_cut_moved_and_completed(log: Path) -> None:
    EpochCache([(0, 0), (1, 200), (9, 10_000)]).write(log)
    assert recover(log, CONFIG, log_start=50, recovery_point=550).epochs == ((0, 50), (1, 200))
    os.unlink(log / "leader-epoch-checkpoint")
    assert recover(log, CONFIG, clean=True).epochs == ((0, 0), (1, 200))
    (log / "leader-epoch-checkpoint").write_text("")
    assert recover(log, CONFIG, clean=True).epochs == ((0, 0), (1, 200))
    (log / "leader-epoch-checkpoint").write_text("rubbish\nand more\n")
    found = recover(log, CONFIG, recovery_point=500)
    assert found.epochs == ((0, 0), (1, 200))
    assert "leader epochs" in found.notes[0]
    assert EpochCache.read(log).entries == found.epochs


def test_log_start_of_the_checkpoint_or_the_first_segment(log: Path) -> None:
    assert recover(log, CONFIG, log_start=123).log_start == 123
    for kind in (names.LOG, names.INDEX, names.TIME_INDEX):
        os.unlink(segment(log, 0, kind))
    assert recover(log, CONFIG, log_start=123).log_start == 200


def test_leftover_files_are_removed(log: Path) -> None:
    expected = files_of(log)
    name = names.offset_name(200)
    for left in (
        f"{name}.log.deleted",
        f"{name}.snapshot.deleted",
        f"{name}.log.cleaned",
        "leader-epoch-checkpoint.tmp",
    ):
        (log / left).write_bytes(b"x")
    (log / f"{names.offset_name(100)}.index").write_bytes(b"")
    recover(log, CONFIG)
    assert files_of(log) == expected


@pytest.mark.parametrize("renamed", [set(), {names.INDEX}, {names.INDEX, names.TIME_INDEX}])
def test_a_finished_compaction_is_put_in_place(log: Path, tmp_path: Path, renamed: set[str]) -> None:
    compacted = tmp_path / "compacted"
    write_segment(compacted, 0, [b for i, b in enumerate(run_of_batches(0, 400)) if i % 10 == 9])
    content = files_of(compacted)
    for path in compacted.iterdir():
        path.rename(log / (path.name if path.suffix in renamed else path.name + ".swap"))
    found = recover(log, CONFIG)
    assert found.segments == ((0, 118 * 40), (400, 118 * 150))
    assert {name: data for name, data in files_of(log).items() if name in content} == content
    assert not [name for name in files_of(log) if name.endswith(".swap")]


def test_swap_files_of_an_unfinished_compaction_are_removed(log: Path) -> None:
    (log / f"{names.offset_name(200)}.log.swap").write_bytes(batch(200))
    (log / f"{names.offset_name(0)}.log.cleaned").write_bytes(batch(0))
    expected = {n: c for n, c in files_of(log).items() if not n.endswith((".swap", ".cleaned"))}
    assert recover(log, CONFIG).leo == 550
    assert files_of(log) == expected


def test_directories_are_no_part_of_the_log(log: Path) -> None:
    """They are neither read nor removed, under any name; the same holds for a file with a number above all offsets."""
    before = recover(log, CONFIG)
    first = names.offset_name(0)
    foreign = ["x.deleted", f"{first}.log.swap", f"{first}.log.cleaned", f"{names.offset_name(900)}.log", "y.tmp",
               f"{names.offset_name(900)}.index", f"{names.offset_name(7)}.snapshot"]  # fmt: skip
    for name in foreign:
        (log / name).mkdir()
        (log / name / "something").touch()
    (log / "99999999999999999999.log").touch()
    for clean in (False, True):
        assert facts(recover(log, CONFIG, clean=clean)) == facts(before)
    assert all((log / name / "something").exists() for name in foreign)


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("how", ["directory", "dangling", "itself"])
@pytest.mark.parametrize("name", [f"{names.offset_name(200)}.index", f"{names.offset_name(400)}.timeindex",
                                  f"{names.offset_name(0)}.txnindex", "leader-epoch-checkpoint"])  # fmt: skip
def test_directory_in_place_of_an_index_is_renamed(log: Path, name: str, how: str, clean: bool) -> None:
    before, expected = recover(log, CONFIG, recovery_point=550), files_of(log)
    (log / name).unlink(missing_ok=True)
    if how == "directory":
        (log / name / "something").mkdir(parents=True)
    else:
        (log / name).symlink_to(log / ("nothing" if how == "dangling" else name))
    found = recover(log, CONFIG, clean=clean, recovery_point=550)
    assert facts(found) == facts(before)
    assert {path.name: path.read_bytes() for path in log.iterdir() if path.suffix != names.CORRUPT} == expected
    assert f"{name} is no file: renamed it to {name}.corrupt" in found.notes
    assert os.path.lexists(log / f"{name}.corrupt")


def test_old_messages(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, [message(0, 0), message(1, 1, timestamp=9), batch(2)], sealed=False)
    found = recover(tmp_path, CONFIG)
    assert (found.leo, found.max_timestamp, found.active_first_timestamp) == (3, 1000, -1)
    assert facts(recover(tmp_path, CONFIG, clean=True)) == facts(found)


# --- producers ---


def produced(first: int, count: int, producer: int, sequence: int, **options: Any) -> list[bytes]:
    return [
        batch(first + 2 * i, 2, producer=(producer, 1, sequence + 2 * i), timestamp=50 + first + i, **options)
        for i in range(count)
    ]


def test_the_last_five_batches_of_a_producer_are_known(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, [*produced(0, 8, 7, 0), *produced(16, 1, 8, 2**31 - 1)], sealed=False)
    producers = recover(tmp_path, CONFIG).producers
    assert [(b.first_seq, b.last_seq, b.first_offset, b.last_offset) for b in producers[7].batches] == [
        (s, s + 1, s, s + 1) for s in (6, 8, 10, 12, 14)
    ]
    assert producers[8].last is not None
    assert producers[8].last[:2] == (2**31 - 1, 0)
    assert producers[7].epoch == 1


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("at", [0, 10, 16, 20])
def test_a_snapshot_and_the_batches_after_it(tmp_path: Path, clean: bool, at: int) -> None:
    batches = produced(0, 10, 7, 0)
    write_segment(tmp_path, 0, batches[:5])
    write_segment(tmp_path, 10, batches[5:], sealed=False)
    remembered = ProducerEntry(1, -1, 1)
    write_snapshot(tmp_path, at, {99: remembered})
    found = recover(tmp_path, CONFIG, clean=clean, recovery_point=10)
    used = clean or at <= 10
    assert found.producers.get(99) == (remembered if used else None)
    first = at if used else 0
    known = [b.first_offset for b in found.producers[7].batches] if 7 in found.producers else []
    assert known == list(range(first, 20, 2))[-5:]


@pytest.mark.parametrize("clean", [True, False])
def test_a_broken_snapshot_is_replaced_by_the_one_before(tmp_path: Path, clean: bool) -> None:
    """The log names it also where it is not needed, because replay begins before it."""
    write_segment(tmp_path, 0, produced(0, 5, 7, 0), sealed=False)
    write_snapshot(tmp_path, 0, {99: ProducerEntry(1)})
    broken = tmp_path / "00000000000000000010.snapshot"
    broken.write_bytes(b"rubbish")
    found = recover(tmp_path, CONFIG, clean=clean)
    assert set(found.producers) == {7, 99}
    assert f"broken producer snapshot, {broken}" in found.notes[0]
    assert not broken.exists()


def test_producers_are_read_from_the_log_if_all_snapshots_are_broken(tmp_path: Path) -> None:
    """After a clean stop too, and where a lost index has caused a scan before."""
    write_segment(tmp_path, 0, produced(0, 5, 7, 0))
    write_segment(tmp_path, 10, produced(10, 1, 7, 10), sealed=False)
    (tmp_path / "00000000000000000012.snapshot").write_bytes(b"rubbish")
    (tmp_path / "00000000000000000000.index").unlink()
    known = recover(tmp_path, CONFIG, clean=True).producers[7]
    assert known.last == (10, 11, 10, 11, 60, 1)


@pytest.mark.parametrize("clean", [False, True])
def test_snapshot_with_offsets_above_its_name_is_broken(tmp_path: Path, clean: bool) -> None:
    directory = tmp_path / "t-0"
    write_segment(directory, 0, [batch(0, producer=(7, 0, 0)), batch(1, producer=(7, 0, 1))])
    write_segment(directory, 2, [marker(2, 7, 0, commit=True)], sealed=False)
    expected = recover(directory, CONFIG).producers
    later = {7: ProducerEntry(0, 9, 1000, txn_first_offset=4)}
    write_snapshot(directory, 2, later)
    found = recover(directory, CONFIG, clean=clean, recovery_point=2)
    assert found.producers == expected
    assert "producer 7 is at offset 4, not below it" in found.notes[0]


def test_snapshot_beyond_the_log_end_is_removed(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, produced(0, 5, 7, 0), sealed=False)
    write_snapshot(tmp_path, 11, {99: ProducerEntry(1)})
    assert set(recover(tmp_path, CONFIG).producers) == {7}
    assert snapshots.snapshot_offsets(tmp_path) == []


def test_transactions_are_replayed_and_aborted_ones_indexed(tmp_path: Path) -> None:
    log = [
        *produced(0, 2, 7, 0, attributes=0x10),
        *produced(4, 1, 8, 0, attributes=0x10),
        marker(6, 7, 1, commit=False),
        *produced(7, 1, 9, 0, attributes=0x10),
        marker(9, 9, 1, commit=True),
    ]
    write_segment(tmp_path, 0, log, sealed=False)
    found = recover(tmp_path, CONFIG)
    assert found.first_unstable == 4
    assert {pid: e.txn_first_offset for pid, e in found.producers.items()} == {7: -1, 8: 4, 9: -1}
    assert found.producers[7].coordinator_epoch == 7
    assert read_txn_index(segment(tmp_path, 0, names.TXN_INDEX)) == [AbortedTxn(7, 0, 6, 4)]
    assert list(check(tmp_path)) == []


def test_a_new_epoch_forgets_the_batches_of_the_old(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, [*produced(0, 3, 7, 0), batch(6, producer=(7, 2, 0))], sealed=False)
    (entry,) = recover(tmp_path, CONFIG).producers.values()
    assert (entry.epoch, [b.first_offset for b in entry.batches]) == (2, [6])


# --- as a whole ---


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_log_cut_anywhere_keeps_a_prefix_of_whole_batches(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("cut")
    sizes = data.draw(st.lists(st.integers(1, 3000), min_size=1, max_size=12))
    batches = [batch(i, size=size, timestamp=1000 + (i * 7) % 5) for i, size in enumerate(sizes)]
    path = write_segment(directory, 0, batches, sealed=False)
    keep = data.draw(st.integers(0, path.stat().st_size))
    os.truncate(path, keep)
    found = recover(directory, Interval(500), clean=data.draw(st.booleans()))
    whole = [sum(map(len, batches[: n + 1])) for n in range(len(batches))]
    assert found.leo == sum(end <= keep for end in whole)
    assert path.stat().st_size == found.active_size == max([end for end in whole if end <= keep], default=0)
    assert list(check(directory)) == []
    assert facts(recover(directory, Interval(500), clean=True)) == facts(found)


@pytest.mark.parametrize("fault", ["fail_next_write", "fail_next_rename"])
def test_disk_error_is_raised_and_the_next_try_succeeds(log: Path, fault: str) -> None:
    expected = files_of(log)
    os.unlink(segment(log, 400, names.INDEX))
    files = FaultyFiles()
    setattr(files, fault, errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        recover(log, CONFIG, files=files)
    assert recover(log, CONFIG, files=files).leo == 550
    assert files_of(log) == expected


def test_no_descriptor_is_left_open(log: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    recover(log, CONFIG)
    recover(log, CONFIG, clean=True)
    spoil(segment(log, 0), 500)
    with pytest.raises(CorruptLog):
        recover(log, CONFIG)
    assert len(os.listdir("/proc/self/fd")) == before
    with segment(log, 400).open("rb") as file:
        assert sum(1 for _ in Scan(file.fileno())) == 150
