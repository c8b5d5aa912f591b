"""Compaction against a dictionary: the last value of each key keeps its offset, with any concurrent change."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.ipc import slots
from odradek.protocol import errors
from odradek.protocol.batch import DELETE_HORIZON
from odradek.protocol.records import codecs, convert
from odradek.storage.compaction.compaction import CleaningAborted, Compaction, DedupeBuffer, UncleanableLog, find_range
from odradek.storage.compaction.offset_map import ENTRY_BYTES
from odradek.storage.files import names
from odradek.storage.log import control_batch, transactions, trim, truncate
from odradek.storage.log.partition import Partition
from odradek.storage.recovery import recovery
from odradek.storage.tools import check

from ..live import NOW, Live, live, note_flushed, note_recovery_point
from ..log import by_time
from .compacting import MEMORY, Kept, Row, compact, consume, headers, keyed, put, seal

DAY = 86_400_000
SMALL = {"segment_bytes": 500, "index_interval_bytes": 100, "cleanup_policy": "compact"}


def faults(world: Live) -> list[str]:
    return [str(fault) for fault in check.check(world.root / "t-0", deep=True)]


def segments(world: Live) -> list[int]:
    return sorted(int(path.stem) for path in (world.root / "t-0").glob("*.log"))


ROWS = st.tuples(
    st.sampled_from([b"a", b"b", b"c", b"a key of more than 16 bytes"]), st.none() | st.binary(max_size=40)
)
BATCHES = st.tuples(st.lists(ROWS, min_size=1, max_size=4), st.sampled_from([codecs.NONE, codecs.GZIP, codecs.LZ4]))
STEPS = st.lists(st.lists(BATCHES, min_size=1, max_size=12) | st.integers(0, 2 * DAY), min_size=2, max_size=12)


class Model:
    """What was written, and what may be read of it."""

    def __init__(self) -> None:
        self.written: list[Kept] = []

    def write(self, rows: list[Row]) -> None:
        self.written += [Kept(len(self.written) + n, *row, NOW + n) for n, row in enumerate(rows)]

    def compare(self, found: list[Kept], cleaned_upto: int) -> None:
        assert [one for one in found if one.offset >= cleaned_upto] == self.written[cleaned_upto:]
        clean = [one.key for one in found if one.offset < cleaned_upto]
        assert len(clean) == len(set(clean)), "two records of a key"
        self.compare_keys(found)

    def compare_keys(self, found: list[Kept]) -> None:
        """The last record of each key is there, or nothing of a key whose last is a tombstone; none has changed."""
        assert found == [self.written[one.offset] for one in found], "a record has changed"
        for key in {one.key for one in self.written}:
            self._compare_key([one for one in self.written if one.key == key], [one for one in found if one.key == key])

    @staticmethod
    def _compare_key(written: list[Kept], found: list[Kept]) -> None:
        if found:
            assert found[-1] == written[-1]
        else:
            assert written[-1].value is None


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, st.sampled_from([128 << 20, 3 * ENTRY_BYTES]))
def test_against_a_dictionary(steps: list[Any], memory: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder, live(Path(folder), **SMALL) as world:
        partition, model, now_ms, upto = world.partition(), Model(), NOW, 0
        for step in steps:
            if isinstance(step, int):
                now_ms += step
                done = compact(partition, world, now_ms, DedupeBuffer(memory))
                upto = done.cleaned_upto if done else upto
            else:
                for rows, codec in step:
                    put(partition, keyed(rows, codec=codec))
                    model.write(rows)
            model.compare(consume(partition), upto)
        model.compare(consume(world.partition(2), limit=1), upto)
        assert faults(world) == []
        for offset in range(len(model.written)):  # from any offset: nothing is skipped, no gap stops the reader
            assert consume(partition, offset) == [one for one in consume(partition) if one.offset >= offset]


def test_segments_become_few(tmp_path: Path) -> None:
    with live(tmp_path, segment_bytes=2000, cleanup_policy="compact") as world:
        partition = world.partition()
        for n in range(200):
            put(partition, keyed([(b"%d" % (n % 5), b"v" * 100)]))
        before = segments(world)
        done = compact(partition, world)
        assert done is not None
        assert (done.segments, len(before)) == (len(before) - 1, len(before))
        found = consume(partition)
        assert segments(world) == before  # full ones do not fit together before they are cleaned
        assert {one.key for one in found} == {b"%d" % n for n in range(5)}
        active = before[-1]
        assert [one.offset for one in found if one.offset >= active] == list(range(active, 200))
        assert compact(partition, world) is None
        seal(partition)
        compact(partition, world)
        assert len(segments(world)) == 2
        assert len(list((tmp_path / "t-0").glob("*.log.deleted"))) == len(before) - 1
        found = consume(partition)
        assert [one.offset for one in found] == list(range(195, 200))
        assert faults(world) == []
        assert consume(world.partition(1)) == found


def test_nothing_to_drop_changes_no_file(tmp_path: Path) -> None:
    with live(tmp_path, segment_bytes=300, cleanup_policy="compact") as world:
        partition = world.partition()
        for n in range(9):
            put(partition, keyed([(b"%d" % n, b"v" * 200)]))
        generation = partition.state().generation
        done = compact(partition, world)
        assert done is not None
        assert (done.swaps, partition.state().generation) == (0, generation)
        assert not list((tmp_path / "t-0").glob("*.cleaned"))


def test_a_tombstone_stays_until_delete_retention_after_it_was_first_cleaned(tmp_path: Path) -> None:
    with live(tmp_path, cleanup_policy="compact", delete_retention_ms=1000) as world:
        partition = world.partition()
        put(partition, keyed([(b"a", b"1"), (b"a", None), (b"b", b"2")], codec=codecs.GZIP))
        seal(partition)
        compact(partition, world, NOW + DAY)
        tombstone, kept = Kept(1, b"a", None, NOW + 1), Kept(2, b"b", b"2", NOW + 2)
        assert consume(partition) == [tombstone, kept]
        (head,) = headers(partition)
        assert (head.attributes & DELETE_HORIZON, head.base_timestamp) == (0x40, NOW + DAY + 1000)
        for later, expected in ((999, [tombstone, kept]), (1000, [kept])):
            put(partition, keyed([(b"c", b"")], timestamp=NOW))
            seal(partition)
            compact(partition, world, NOW + DAY + later)
            assert [one for one in consume(partition) if one.key != b"c"] == expected
        assert faults(world) == []


def test_lags_and_the_ratio(tmp_path: Path) -> None:
    with live(tmp_path, cleanup_policy="compact", min_compaction_lag_ms=1000) as world:
        partition = world.partition()
        for n in range(3):
            put(partition, keyed([(b"a", b"%d" % n)], timestamp=NOW + 1000 * n))
            seal(partition)
        assert [find_range(partition, None, NOW + at).upto for at in (999, 1000, 2001, 9999)] == [0, 1, 2, 3]
        what = find_range(partition, 1, NOW + 9999)
        assert (what.first_dirty, what.upto, what.must) == (1, 3, False)
        assert what.ratio == pytest.approx(2 / 3)
        assert [what.due(ratio) for ratio in (0.6, 0.7)] == [True, False]
        assert find_range(partition, 99, NOW).first_dirty == 0  # not of this log
    with live(tmp_path / "max", cleanup_policy="compact", max_compaction_lag_ms=1000) as world:
        partition = world.partition()
        put(partition, keyed([(b"a", b"")]))
        put(partition, keyed([(b"a", b"")], timestamp=NOW + 1001))  # rolls: the first one waits for long enough
        assert [find_range(partition, None, NOW + at).due(1.0) for at in (1000, 1001)] == [False, True]


def test_compaction_stops_at_open_transactions(tmp_path: Path) -> None:
    with live(tmp_path, cleanup_policy="compact") as world:
        partition = world.partition()
        put(partition, keyed([(b"a", b"1")]))
        seal(partition)
        put(partition, keyed([(b"a", b"2")], producer=5, sequence=0, transaction=True))
        seal(partition)
        assert find_range(partition, None, NOW).upto == 1
        assert control_batch.write_marker(partition, 5, 0, 1, True, NOW) == errors.NONE
        assert find_range(partition, None, NOW).upto == 2


def test_markers_are_dropped_after_their_aborted_records(tmp_path: Path) -> None:
    with live(tmp_path, cleanup_policy="compact", delete_retention_ms=1000) as world:
        partition = world.partition()
        put(partition, keyed([(b"a", b"old")]))
        for sequence, commit in enumerate((False, True, False)):
            put(partition, keyed([(b"a", b"%d" % sequence)], producer=5, sequence=sequence, transaction=True))
            control_batch.write_marker(partition, 5, 0, 1, commit, NOW)
        put(partition, keyed([(b"b", b"2")]))
        seal(partition)
        compact(partition, world, NOW)
        assert consume(partition) == [Kept(3, b"a", b"1"), Kept(7, b"b", b"2")]
        kinds = [(head.base_offset, head.is_control, head.num_records) for head in headers(partition)]
        # The aborted batch at 1 is gone; that at 5 stays empty, as it has the producer's last sequence.
        assert kinds == [(2, True, 1), (3, False, 1), (4, True, 1), (5, False, 0), (6, True, 1), (7, False, 1)]
        rows = transactions.aborted_between(partition, partition.slot.read(), 0, 8)
        assert rows == [(5, 1), (5, 5)]
        put(partition, keyed([(b"a", b"newest")]))
        seal(partition)
        compact(partition, world, NOW + 1)
        compact(partition, world, NOW + 2000)
        put(partition, keyed([(b"c", b"")]))
        seal(partition)
        compact(partition, world, NOW + 4000)
        left = [head.base_offset for head in headers(partition)]
        assert 2 not in left and 3 not in left and 5 in left
        found = recovery.recover(world.root / "t-0", partition.config)
        assert found.producers[5].last is not None
        assert found.producers[5].last.last_seq == 2
        assert faults(world) == []


def test_idempotent_producer_continues_after_its_records_are_compacted(tmp_path: Path) -> None:
    with live(tmp_path, cleanup_policy="compact") as world:
        partition = world.partition()
        for n in range(4):
            put(partition, keyed([(b"a", b"%d" % n)] * 2, producer=7, sequence=2 * n))
        put(partition, keyed([(b"a", b"other")]))
        seal(partition)
        compact(partition, world)
        assert [(head.base_offset, head.num_records) for head in headers(partition)] == [(6, 0), (8, 1)]
        entry = recovery.recover(world.root / "t-0", partition.config).producers[7]
        assert entry.last is not None
        assert (entry.last.last_seq, entry.last.last_offset) == (7, 7)
        put(partition, keyed([(b"a", b"next")], producer=7, sequence=8))


def test_last_offset_of_a_round_is_kept(tmp_path: Path) -> None:
    with live(tmp_path, cleanup_policy="compact", delete_retention_ms=0) as world:
        partition = world.partition()
        put(partition, keyed([(b"a", b"1")]), keyed([(b"a", None)]))
        seal(partition)
        compact(partition, world, NOW)
        put(partition, keyed([(b"b", None)]))
        seal(partition)
        compact(partition, world, NOW + 1)
        compact(partition, world, NOW + 2)
        assert headers(partition)[-1].last_offset == 2
        found = recovery.recover(world.root / "t-0", partition.config)
        assert found.leo == 3


def test_reads_in_gaps_and_over_an_empty_segment(tmp_path: Path) -> None:
    with live(tmp_path, cleanup_policy="compact", segment_bytes=200, delete_retention_ms=0) as world:
        partition = world.partition()
        for n in range(12):
            put(partition, keyed([(b"%d" % (n // 4), b"v" * 100)]))
        put(partition, keyed([(b"x", b"v" * 100)]))
        for key in range(3):
            put(partition, keyed([(b"%d" % key, b"n" * 100)]))
        compact(partition, world)
        sizes = {base: os.stat(world.root / "t-0" / f"{base:020d}.log").st_size for base in segments(world)}
        assert 0 in sizes.values(), sizes
        offsets = [one.offset for one in consume(partition)]
        assert offsets == [11, 12, 13, 14, 15]
        for reader in (partition, world.partition(3)):
            for offset in range(17):
                assert [one.offset for one in consume(reader, offset)] == [n for n in offsets if n >= offset]
        assert faults(world) == []


def test_reads_and_appends_between_all_steps(tmp_path: Path) -> None:
    rng, model = random.Random(7), Model()
    with live(tmp_path, segment_bytes=2000, index_interval_bytes=200, cleanup_policy="compact") as world:
        writer, reader, janitor = world.partition(), world.partition(1), world.partition(2)

        def write(count: int) -> None:
            for _ in range(count):
                rows: list[Row] = [
                    (b"%d" % rng.randrange(20), os.urandom(rng.randrange(60))) for _ in range(rng.randrange(1, 4))
                ]
                put(writer, keyed(rows))
                model.write(rows)

        write(300)
        slow, at = [], 0
        for _ in range(4):
            what = find_range(janitor, at or None, NOW)
            going = Compaction(janitor, what, DedupeBuffer(), NOW)
            monitored = going.steps()
            for _step in monitored:
                write(3)
                model.compare_keys(consume(reader))
                slow.append(consume(reader, rng.randrange(len(model.written)), limit=300))
            at = going.cleaned_upto
            model.compare(consume(reader), at)
            for found in slow:
                assert found == [model.written[one.offset] for one in found]
            write(100)
    assert slow


def test_a_slice_of_the_old_files_can_still_be_read(tmp_path: Path) -> None:
    from odradek.storage.log import read

    with live(tmp_path, cleanup_policy="compact", segment_bytes=300) as world:
        partition = world.partition()
        for n in range(9):
            put(partition, keyed([(b"a", b"%d" % n * 100)]))
        values = partition.slot.read()
        piece = read.fetch(partition, values, 0, values[slots.F_HW], 1 << 20)
        assert piece is not None
        before = piece.read()
        compact(world.partition(1), world)
        assert piece.read() == before
        with pytest.raises(FileNotFoundError):  # what is opened now by name is not of that generation
            read.fetch(world_partition_at(world, values), values, 3, values[slots.F_HW], 1 << 20)


def world_partition_at(world: Live, values: Any) -> Partition:
    """A reader that has followed an old generation and opened nothing yet."""
    reader = world.partition(3)
    reader.follow(values[slots.F_GENERATION])
    return reader


def test_delete_records_aborts_a_round(tmp_path: Path) -> None:
    with live(tmp_path, segment_bytes=300, **{"cleanup_policy": "compact,delete"}) as world:
        partition = world.partition()
        for _ in range(9):
            put(partition, keyed([(b"a", b"v" * 100)]))
        going = Compaction(partition, find_range(partition, None, NOW), DedupeBuffer(), NOW)
        begun = going.steps()
        originally = going._swap

        def trimmed(group: Any) -> Any:
            with world.partition(1).locked() as values:
                trim.advance(world.partition(1), values, 5)
            yield from originally(group)

        going._swap = trimmed  # type: ignore[method-assign]  # a test double
        with pytest.raises(CleaningAborted):
            list(begun)
        assert not list((tmp_path / "t-0").glob("*.cleaned"))
        assert consume(partition)[0].offset == 5
        assert faults(world) == []


@pytest.mark.parametrize("offset", [1, 3, 4])
def test_truncation_aborts_a_round(tmp_path: Path, offset: int) -> None:
    """A new leader lacks records that the cleaner has read: its segment must not bring them back."""
    with live(tmp_path, segment_bytes=1000, cleanup_policy="compact") as world:
        partition, other = world.partition(), world.partition(1)
        for n in range(12):
            put(partition, keyed([(b"%d" % n, b"v" * 100), (b"a", b"%d" % n)]))
        going = Compaction(partition, find_range(partition, None, NOW), DedupeBuffer(), NOW)
        begun, originally = going.steps(), going._swap

        def cut(group: Any) -> Any:
            with other.locked() as values:
                values[slots.F_STATE] = slots.FOLLOWER
                truncate.truncate(other, values, offset)
            yield from originally(group)

        going._swap = cut  # type: ignore[method-assign]  # a test double
        with pytest.raises(CleaningAborted):
            list(begun)
        assert going.cleaned_upto == 0
        assert [one.offset for one in consume(partition)] == list(range(offset // 2 * 2))
        assert faults(world) == []


def test_round_aborts_if_all_its_segments_were_deleted(tmp_path: Path) -> None:
    """DeleteRecords or retention happens between `find_range` and the first step."""
    with live(tmp_path, segment_bytes=300, cleanup_policy="compact,delete") as world:
        partition = world.partition()
        for _ in range(9):
            put(partition, keyed([(b"a", b"v" * 100)]))
        what = find_range(partition, None, NOW)
        with partition.locked() as values:
            trim.advance(partition, values, values[slots.F_ACTIVE_BASE])
        with pytest.raises(CleaningAborted):
            list(Compaction(world.partition(2), what, DedupeBuffer(), NOW).steps())
        assert compact(partition, world) is None
        assert faults(world) == []


def test_damaged_log_is_not_compacted(tmp_path: Path) -> None:
    with live(tmp_path, segment_bytes=300, cleanup_policy="compact") as world:
        partition = world.partition()
        for _ in range(9):
            put(partition, keyed([(b"a", b"v" * 100)]))
        path = tmp_path / "t-0" / "00000000000000000000.log"
        data = bytearray(path.read_bytes())
        data[100] ^= 1
        path.write_bytes(data)
        with pytest.raises(UncleanableLog, match="checksum"):
            compact(partition, world)
        assert path.read_bytes() == data


@pytest.mark.parametrize("segment", [0, -2])
@pytest.mark.parametrize("byte", range(7))
def test_an_offset_of_a_later_segment_is_damage(tmp_path: Path, byte: int, segment: int) -> None:
    """The offset of a segment's last batch, which no other follows.

    No checksum covers it; the map would treat it as the newest, and the checkpoint would call the log clean up to it.
    """
    with live(tmp_path, segment_bytes=300, cleanup_policy="compact") as world:
        partition = world.partition()
        for number in range(9):
            put(partition, keyed([(b"a", b"%d" % number * 100)]))
        path = sorted((tmp_path / "t-0").glob("*.log"))[segment]
        whole = path.read_bytes()
        data = bytearray(whole)
        *_, last = convert.split(whole)
        data[len(whole) - len(last) + byte] ^= 1 << 4
        path.write_bytes(data)
        with pytest.raises(UncleanableLog, match="is of a later segment"):
            compact(partition, world)
        assert path.read_bytes() == data
        path.write_bytes(whole)
        done = compact(partition, world)
        assert done is not None and done.cleaned_upto == partition.state().active_base


def test_recovery_finishes_and_undoes_swaps(tmp_path: Path) -> None:
    """tests/storage/test_death.py has the deaths themselves."""
    for mark in (names.CLEANED, names.SWAP):
        with live(tmp_path / mark, segment_bytes=300, cleanup_policy="compact") as world:
            partition = world.partition()
            for n in range(9):
                put(partition, keyed([(b"a", b"%d" % n * 100)]))
            expected = consume(partition)
            going = Compaction(partition, find_range(partition, None, NOW), DedupeBuffer(), NOW)
            going._swap = lambda group: iter(())  # type: ignore[method-assign]  # a test double
            going._discard = lambda: None  # type: ignore[method-assign]  # a test double
            list(going.steps())
            written = names.segment_files(partition.directory, names.CLEANED)
            assert written
            for file in written:
                path = names.segment_path(partition.directory, *file)
                os.rename(path, path.with_suffix(mark))
            recovery.recover(partition.directory, partition.config)
            partition.close_files()
            found = consume(partition)
            assert found[-1] == expected[-1]
            assert (found == expected) == (mark == names.CLEANED)


def test_marker_above_the_recovery_point_is_kept(tmp_path: Path) -> None:
    """A start after a kill replays producers from a snapshot below it, which has the transaction for open."""
    with live(tmp_path, **SMALL, delete_retention_ms=0) as world:
        partition = world.partition()
        put(partition, keyed([(b"a", b"")]))
        put(partition, keyed([(b"t", b"aborted")], producer=5, sequence=0, transaction=True))
        seal(partition)  # with a snapshot at 2, where the recovery point is
        control_batch.write_marker(partition, 5, 0, 1, False, NOW)
        put(partition, keyed([(b"c", b"")]), keyed([(b"c", b"")], producer=5, sequence=1))
        seal(partition)
        for flushed, noted, left in ((2, True, [2]), (5, False, [2]), (5, True, [])):
            with partition.locked() as values:
                values[slots.F_FLUSHED] = flushed
                partition.slot.publish(values)
            if noted:  # a start uses the checkpoint
                note_recovery_point(partition)
            for turn in range(3):
                going = Compaction(partition, find_range(partition, 0, NOW + turn), MEMORY, NOW + turn)
                assert len(list(going.steps())) > 0
            assert [head.base_offset for head in headers(partition) if head.is_control and head.num_records] == left


@pytest.mark.parametrize(("flushed", "left"), [(0, [0, 1, 2]), (1, [0, 1, 2]), (2, [1, 2])])
def test_last_batch_above_the_recovery_point_is_kept_below_one_that_may_be_truncated(
    tmp_path: Path, flushed: int, left: list[int]
) -> None:
    """The truncation, and a start after a kill: the producer's batch is sent again, and was stored.

    Recovery begins with the segment that holds the recovery point. The cleaner merges that with segments before it.
    """
    with live(tmp_path, **SMALL) as world:
        partition = world.partition()
        put(partition, keyed([(b"a", b"old")], producer=5, sequence=0))
        seal(partition)
        put(partition, keyed([(b"a", b"new")]))
        seal(partition)
        put(partition, keyed([(b"b", b"next")], producer=5, sequence=1))
        with partition.locked() as values:
            values[slots.F_FLUSHED] = flushed
            partition.slot.publish(values)
        note_recovery_point(partition)
        assert len(list(Compaction(partition, find_range(partition, 0, NOW), MEMORY, NOW).steps())) > 0
        assert [head.base_offset for head in headers(partition)] == left


def test_ended_transaction_is_not_open_after_its_start_is_deleted(tmp_path: Path) -> None:
    """Its marker is compacted away, and then the checkpoint of the recovery point is lost."""
    with live(tmp_path, **SMALL, delete_retention_ms=0) as world:
        partition = world.partition()
        put(partition, keyed([(b"a", b"")]))
        put(partition, keyed([(b"t", b"aborted")], producer=5, sequence=0, transaction=True))
        seal(partition)  # with a snapshot at 2
        control_batch.write_marker(partition, 5, 0, 1, False, NOW)
        put(partition, keyed([(b"c", b"")]), keyed([(b"c", b"")], producer=5, sequence=1))
        seal(partition)
        with partition.locked() as values:
            trim.advance(partition, values, 3)
        note_flushed(partition)
        for turn in range(3):
            list(Compaction(partition, find_range(partition, 0, NOW + turn), MEMORY, NOW + turn).steps())
        for clean_upto, unstable in ((5, -1), (3, 1)):  # a log trimmed at its start has no clean offset
            found = recovery.recover(partition.directory, partition.config, log_start=3, compacted_upto=clean_upto)
            assert (found.segments[0].base_offset, found.first_unstable) == (2, unstable)


def test_largest_timestamp_is_of_a_record_that_is_kept(tmp_path: Path) -> None:
    """An emptied batch, kept for its producer's sequence, still has the timestamp of its removed records."""
    with live(tmp_path, **SMALL, delete_retention_ms=0) as world:
        partition = world.partition()
        put(partition, keyed([(b"a", b"old")], producer=5, sequence=0, timestamp=NOW + 500))
        put(partition, keyed([(b"b", b"")], timestamp=NOW + 7))
        put(partition, keyed([(b"a", b"new")], timestamp=NOW))
        seal(partition)
        compact(partition, world)
        put(partition, keyed([(b"c", b"")], timestamp=NOW))
        assert [head.num_records for head in headers(partition)][:1] == [0]
        found = by_time.newest(partition, partition.slot.read(), 10)
        assert found is not None and found[:2] == (NOW + 7, 1)
        assert by_time.newest(partition, partition.slot.read(), 1) is None
