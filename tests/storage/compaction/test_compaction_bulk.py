"""Chunks of batches of every size and kind, unreadable ones included, compared with a slow reader."""

from __future__ import annotations

import logging
import os
import random
from pathlib import Path
from zlib import crc32

import pytest

from odradek.protocol.records import batch_v2, codecs, message_sets
from odradek.storage.compaction.compaction import DedupeBuffer
from odradek.storage.compaction.offset_map import ENTRY_BYTES
from odradek.storage.files import names
from odradek.storage.log import append
from odradek.storage.log.log_batch import Batch
from odradek.storage.log.partition import Partition
from odradek.storage.segment import bulk_records
from odradek.storage.segment.batch_chunks import Chunk, ChunkReader, OldBatch
from odradek.storage.tools import check

from ..live import NOW, Live, live
from .compacting import Row, compact, consume, headers, keyed, put, seal

DAY = 86_400_000
CODECS = (codecs.NONE, codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD)


def faults(world: Live) -> list[str]:
    return [str(fault) for fault in check.check(world.root / "t-0", deep=True)]


@pytest.mark.parametrize("chunk", [100, 3000, 4 << 20])
@pytest.mark.parametrize("room", [50, 16 << 20])
def test_batches_of_every_kind(tmp_path: Path, chunk: int, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Larger than a chunk, than the buffer for unpacked ones, many and few, with headers, keys of all lengths."""
    monkeypatch.setattr(bulk_records, "_ROOM", room)
    rng = random.Random(chunk)
    with live(tmp_path, cleanup_policy="compact", segment_bytes=50_000) as world:
        partition, last = world.partition(), dict[bytes | None, bytes | None]()
        for number in range(400):
            rows: list[Row] = []
            for _ in range(rng.choice((1, 2, 40))):
                key = b"%d" % rng.randrange(60) * rng.choice((1, 1, 4, 40))
                rows.append((key, None if rng.random() < 0.1 else os.urandom(rng.choice((0, 5, 300)))))
            put(partition, keyed(rows, codec=CODECS[number % 5], timestamp=NOW + number))
            last.update(rows)
        seal(partition)
        written = {one.offset: one for one in consume(partition)}
        assert compact(partition, world, NOW, DedupeBuffer(chunk_bytes=chunk)) is not None
        found = consume(partition)
        assert all(written[one.offset] == one for one in found)
        assert {one.key: one.value for one in found} == last
        assert len(found) == len(last)
        times = {head.base_offset: head.max_timestamp for head in headers(partition)}
        assert all(times[max(base for base in times if base <= one.offset)] >= one.timestamp for one in found)
        assert faults(world) == []
        put(partition, keyed([(b"new", b"")], timestamp=NOW))
        for later in (DAY * 2, DAY * 4):
            seal(partition)
            put(partition, keyed([(b"new", b"")], timestamp=NOW))
            compact(partition, world, NOW + later, DedupeBuffer(chunk_bytes=chunk))
        values = {key: value for key, value in last.items() if value is not None}
        assert {one.key: one.value for one in consume(partition)} == {**values, b"new": b""}
        assert faults(world) == []


def test_a_map_that_fills_within_a_batch(tmp_path: Path) -> None:
    """The round ends there, and the next one goes on from there."""
    with live(tmp_path, cleanup_policy="compact") as world:
        partition = world.partition()
        put(partition, keyed([(b"%d" % (n % 50), b"1") for n in range(60)]))
        put(partition, keyed([(b"%d" % n, b"2") for n in range(50)]))
        seal(partition)
        ends, memory = [], DedupeBuffer(20 * ENTRY_BYTES)
        for _ in range(30):
            done = compact(partition, world, NOW, memory)
            if done is None:
                break
            ends.append(done.cleaned_upto)
            assert {one.key: one.value for one in consume(partition)} == {b"%d" % n: b"2" for n in range(50)}
        assert 3 <= len(ends) < 20
        assert ends[-1] == 110
        assert [one.offset for one in consume(partition)] == list(range(60, 110))
        assert faults(world) == []


def test_unchanged_batches_are_not_written_again(tmp_path: Path) -> None:
    """The batches before the first difference are kept all the same."""
    with live(tmp_path, cleanup_policy="compact", segment_bytes=20_000) as world:
        partition = world.partition()
        for number in range(100):
            put(partition, keyed([(b"%d" % number, b"x" * 1000)]))
        put(partition, keyed([(b"15", b"new")]))
        seal(partition)
        memory = DedupeBuffer(chunk_bytes=3000)
        done = compact(partition, world, NOW, memory)
        assert done is not None
        first = (tmp_path / "t-0" / f"{0:020d}.log").stat().st_size
        assert (done.swaps, done.bytes_written) == (1, first)
        assert [one.offset for one in consume(partition)] == [*range(15), *range(16, 101)]
        assert faults(world) == []
        seal(partition)
        put(partition, keyed([(b"99", b"new")]))
        seal(partition)
        compact(partition, world, NOW, memory)
        assert [one.offset for one in consume(partition)] == [*range(15), *range(16, 99), 100, 101]
        assert faults(world) == []


def garbage(partition: Partition, codec: int, count: int = 3) -> bytes:
    """Append a batch with a valid checksum around records that cannot be decompressed."""
    span = batch_v2.RecordsSpan(0, count - 1, NOW, NOW, count)
    data = batch_v2.assemble(b"no such thing" * 9, span, codec)
    with partition.locked() as values:
        one = Batch(memoryview(bytearray(data)), count, NOW)
        append.append(partition, values, [one], NOW)
    assert one.error == 0
    return data


def disordered(deltas: tuple[int, ...], codec: int) -> Batch:
    """A batch whose records have these offset deltas, with a right header and checksum."""
    records = [(delta, NOW, b"a", b"%d" % n, ()) for n, delta in enumerate(deltas)]
    body, _ = batch_v2.encode_records(records, 0)
    span = batch_v2.RecordsSpan(0, len(deltas) - 1, NOW, NOW, len(deltas))
    data = batch_v2.assemble(codecs.compress(codec, body), span, codec)
    return Batch(memoryview(bytearray(data)), len(deltas), NOW)


@pytest.mark.parametrize("codec", CODECS)
def test_unreadable_batch_is_kept_unchanged(tmp_path: Path, codec: int, caplog: pytest.LogCaptureFixture) -> None:
    """In the dirty part first, then in the clean one; the batches around it are cleaned."""
    told: set[int] = set()
    with live(tmp_path, cleanup_policy="compact", delete_retention_ms=0) as world, caplog.at_level(logging.WARNING):
        partition = world.partition()
        put(partition, keyed([(b"a", b"1"), (b"b", b"1")]))
        data = garbage(partition, codec)
        put(partition, keyed([(b"a", b"2"), (b"c", b"1")]))
        seal(partition)
        for later, left in ((1, [1, 5, 6]), (2, [5, 6, 7]), (3, [6, 7, 8])):
            before = (tmp_path / "t-0" / names.segment_path("", 0).name).read_bytes()
            assert data[16:] in before
            _compacted(world, NOW + later, told)
            after = (tmp_path / "t-0" / names.segment_path("", 0).name).read_bytes()
            at = after.index(data[16:])
            assert after[at - 16 : at - 8] == (2).to_bytes(8, "big")
            assert _offsets(partition) == left
            put(partition, keyed([((b"b", b"a", b"c")[later - 1], b"%d" % later)]))
            seal(partition)
        said = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert len(said) == 1
        assert "batch at offset 2" in said[0].getMessage()


@pytest.mark.parametrize("seed", range(6))
def test_damaged_batches_do_not_stop_the_cleaner(tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """With bytes changed, taken out and put in before they got their checksums, and timestamps beyond all times."""
    rng = random.Random(seed)
    with live(tmp_path, cleanup_policy="compact", delete_retention_ms=0) as world, caplog.at_level(logging.WARNING):
        partition, told = world.partition(), set[int]()
        for number in range(4):
            put(partition, keyed([(b"a", b"old"), (b"b", b"%d" % number)], codec=CODECS[number]))
            put(partition, *[_damaged(rng) for _ in range(4)])
            put(partition, keyed([(b"a", b"%d" % number), (b"c", None)]))
            seal(partition)
            _compacted(world, NOW + number, told)
            assert {offset for offset in _offsets(partition) if offset >= partition.state().leo - 2}
        said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert len(said) == len(told) > 0
        assert all(f"{partition.directory}: the cleaner keeps the batch at offset " in one for one in said)


def _damaged(rng: random.Random) -> Batch:
    """A batch of other keys."""
    count = rng.choice((1, 2, 10))
    records = [(n, NOW + rng.choice((0, n, -n)), b"k%d" % n, rng.choice((None, b"v")), ()) for n in range(count)]
    body = bytearray(batch_v2.encode_records(records, 0)[0])
    at = rng.randrange(len(body))
    match rng.randrange(4):
        case 0:
            body[at] = rng.randrange(256)
        case 1:
            del body[at : at + rng.choice((1, 7))]
        case 2:
            body[at:at] = bytes((rng.randrange(256),))
        case _:
            pass
    base = rng.choice((NOW, NOW, batch_v2.LATEST, batch_v2.EARLIEST))
    codec = rng.choice(CODECS)
    span = batch_v2.RecordsSpan(0, count - 1, base, NOW, count)
    data = batch_v2.assemble(codecs.compress(codec, bytes(body)), span, codec)
    return Batch(memoryview(bytearray(data)), count, NOW)


def test_a_record_too_short_to_have_all_its_fields(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Read in bulk it is a tombstone; what gives tombstones their delete horizon reads one by one, and refuses it."""
    with live(tmp_path, cleanup_policy="compact") as world, caplog.at_level(logging.WARNING):
        partition = world.partition()
        short = bytes((5 << 1, 0, 0, 1 << 1, 0, 1))  # ends with the length of its value
        body = batch_v2.encode_records([(0, NOW, b"first", None, ())], 0)[0] + short
        data = batch_v2.assemble(body, batch_v2.RecordsSpan(0, 1, NOW, NOW, 2), codecs.NONE)
        put(partition, keyed([(b"a", b"1")]), Batch(memoryview(bytearray(data)), 2, NOW))
        put(partition, *[keyed([(b"a", b"%d" % n), (b"%d" % n, None)]) for n in range(100)])
        seal(partition)
        assert compact(partition, world) is not None
        assert body in names.segment_path(tmp_path / "t-0", 0).read_bytes()
        assert [head.num_records for head in headers(partition)] == [2] + [1] * 99 + [2]
        assert "keeps the batch at offset 1: " in caplog.text


@pytest.mark.parametrize("far", [batch_v2.LATEST, batch_v2.EARLIEST])
def test_batch_with_overflowing_timestamps_is_kept_unchanged(
    tmp_path: Path, far: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A delta overflows 64 bits: compaction would have to write the sum."""
    sign = 1 if far > 0 else -1
    records = [(n, NOW + n * 100 * sign, b"a", None, ()) for n in range(3)]
    with live(tmp_path, cleanup_policy="compact") as world, caplog.at_level(logging.WARNING):
        partition = world.partition()
        body, span = batch_v2.encode_records(records, 0)
        bad = bytearray(batch_v2.assemble(body, span._replace(base_timestamp=far), 0))
        put(partition, Batch(memoryview(bad), 3, NOW), keyed([(b"b", b"1"), (b"b", b"2")]))
        seal(partition)
        assert compact(partition, world, NOW) is not None
        assert names.segment_path(partition.directory, 0).read_bytes().startswith(bad)
        assert [head.num_records for head in headers(partition)] == [3, 1]
        assert "the cleaner keeps the batch at offset 0: " in caplog.text


def test_tombstones_with_the_largest_retention(tmp_path: Path) -> None:
    """delete.retention.ms as large as it may be: its end is no time that can be written."""
    with live(tmp_path, cleanup_policy="compact", delete_retention_ms=batch_v2.LATEST) as world:
        partition = world.partition()
        put(partition, keyed([(b"a", b"1"), (b"a", None), (b"b", b"1")]))
        for later in (0, 1):
            seal(partition)
            assert compact(partition, world, NOW + later * 1000 * DAY) is not None
            assert [(one.offset, one.value) for one in consume(partition)][:2] == [(1, None), (2, b"1")]
            put(partition, keyed([(b"c", b"1")]))


def _compacted(world: Live, now_ms: int, told: set[int]) -> None:
    """A round by a janitor that remembers what it has logged."""
    from odradek.storage.compaction import compaction
    from odradek.storage.files import checkpoints

    partition = world.partition()
    offsets = checkpoints.read_offsets(world.root, checkpoints.CLEANER)
    what = compaction.find_range(partition, offsets.get(("t", 0)), now_ms)
    going = compaction.Compaction(partition, what, DedupeBuffer(), now_ms, told)
    assert set(going.steps()) != {compaction.BUSY}
    assert going.cleaned_upto == what.upto
    checkpoints.write_offsets(world.root, checkpoints.CLEANER, {("t", 0): going.cleaned_upto})


def _offsets(partition: Partition) -> list[int]:
    """Of the records in batches that can be read."""
    from odradek.protocol.records import convert
    from odradek.protocol.records.errors import RecordError

    found = []
    for base in names.segment_bases(partition.directory):
        for one in convert.split(names.segment_path(partition.directory, base).read_bytes()):
            try:
                found += [row[0] for row in batch_v2.iterate(one)]
            except (RecordError, IndexError):
                pass
    return found


@pytest.mark.parametrize("deltas", [(3, 2, 1, 0), (1, 0), (0, 0), (0, 2, 1, 3), (0, 1, 5), (-1, 0, 1)])
@pytest.mark.parametrize("codec", [codecs.NONE, codecs.LZ4])
def test_batch_with_unordered_offsets_is_kept_unchanged(
    tmp_path: Path, deltas: tuple[int, ...], codec: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic that was not compacted accepted it. In the dirty part first, then in the clean one."""
    told: set[int] = set()
    with live(tmp_path, cleanup_policy="compact", delete_retention_ms=0) as world, caplog.at_level(logging.WARNING):
        partition = world.partition()
        put(partition, keyed([(b"a", b"1"), (b"b", b"1")]))
        bad = disordered(deltas, codec)
        put(partition, bad)
        data = bytes(bad.view)
        put(partition, keyed([(b"a", b"2"), (b"c", b"1")]))
        seal(partition)
        path = names.segment_path(tmp_path / "t-0", 0)
        for number in range(3):
            _compacted(world, NOW + number, told)
            assert data[16:] in path.read_bytes()
            left = [one for one in headers(partition) if one.base_offset != 2]
            assert sum(one.num_records for one in left) == 3
            put(partition, keyed([((b"b", b"a", b"c")[number], b"%d" % number)]))
            seal(partition)
        said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert len(said) == 1
        assert "keeps the batch at offset 2: " in said[0]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("offsets", [(3, 2, 1, 0), (1, 0, 3), (2, 3, 3), (0, 1, 2, 4)])
def test_old_message_set_with_unordered_offsets_is_kept_unchanged(
    tmp_path: Path, magic: int, offsets: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    inner = message_sets.build([(offset, NOW, b"a", b"old", ()) for offset in offsets], 0)
    old = bytearray(message_sets.build([(3, NOW, None, codecs.compress(codecs.GZIP, inner, None, magic), ())], magic))
    old[17] |= codecs.GZIP
    old[12:16] = crc32(old[16:]).to_bytes(4, "big")
    with live(tmp_path, cleanup_policy="compact") as world, caplog.at_level(logging.WARNING):
        partition = world.partition()
        put(partition, keyed([(b"x", b"")] * 4))
        path = names.segment_path(partition.directory, 0)
        path.write_bytes(old)
        partition.slot.publish(partition.state()._replace(active_size=len(old), index_entries=0, time_entries=0))
        put(partition, keyed([(b"a", b"new"), (b"b", None)]))
        for _ in range(2):
            seal(partition)
            assert compact(partition, world, NOW) is not None
            assert path.read_bytes().startswith(old)
            put(partition, keyed([(b"a", b"newest")]))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [codecs.NONE, codecs.GZIP])
def test_old_messages_among_new_batches(tmp_path: Path, magic: int, codec: int) -> None:
    """As in a log that has been there since Kafka 0.8: their keys are the same keys."""
    with live(tmp_path, cleanup_policy="compact", delete_retention_ms=1000) as world:
        partition = world.partition()
        rows = [
            (0, NOW, b"a", b"old", ()),
            (1, NOW, b"b", b"old", ()),
            (2, NOW, b"c", b"old", ()),
            (3, NOW, b"d", None, ()),
        ]
        old = message_sets.build(rows, magic, codec=codec)
        put(partition, keyed([(b"x", b"")] * 4))
        path = names.segment_path(partition.directory, 0)
        path.write_bytes(old)
        partition.slot.publish(partition.state()._replace(active_size=len(old), index_entries=0, time_entries=0))
        put(partition, keyed([(b"a", b"new"), (b"b", None)]))
        seal(partition)
        compact(partition, world, NOW)
        assert _rows(path) == [(2, b"c", b"old"), (3, b"d", None), (4, b"a", b"new"), (5, b"b", None)]
        put(partition, keyed([(b"c", b"newest")]))
        seal(partition)
        os.utime(path, ns=(0, 0))
        compact(partition, world, NOW + DAY)
        compact(partition, world, NOW + DAY)
        assert [row[0] for row in _rows(path)][-2:] == [4, 6]
        assert 2 not in [row[0] for row in _rows(path)]


def _rows(path: Path) -> list[tuple[int, bytes | None, bytes | None]]:
    from odradek.protocol.records import convert

    found = []
    for one in convert.split(path.read_bytes()):
        records = batch_v2.iterate(one) if one[16] == 2 else message_sets.iterate(one)
        found += [(row[0], row[2], row[3]) for row in records]
    return found


def test_chunk_ends_before_a_bad_batch(tmp_path: Path) -> None:
    """The chunk has the batches before a bad one, and the reason."""
    batches = [batch_v2.build([(n, NOW, b"k", b"v" * 50, ())], base_offset=n) for n in range(20)]
    whole = b"".join(batches)
    size = len(batches[0])
    for change, why in (
        (lambda data: data[: 7 * size] + b"\xff" + data[7 * size + 1 :], "offset"),
        (lambda data: data[: 7 * size + 40] + b"\xff" + data[7 * size + 41 :], "checksum"),
        (lambda data: data[: 7 * size + 20], "less than a batch"),
        (lambda data: data[: 8 * size - 5], "wants"),
        (lambda data: data[: 7 * size] + data[3 * size :], "comes after"),
    ):
        path = tmp_path / "log"
        path.write_bytes(change(whole))
        for chunk in (10, 3 * size + 5, 1 << 20):
            with path.open("rb") as file:
                reader = ChunkReader(file.fileno(), path.stat().st_size, 0, chunk)
                chunks = (one for one in reader if isinstance(one, Chunk))
                assert [offset for one in chunks for offset in one.heads["base_offset"].tolist()] == list(range(7))
            assert reader.bad is not None
            assert (reader.bad.position, why in reader.bad.reason) == (7 * size, True), reader.bad


def test_chunks_of_old_and_new_messages(tmp_path: Path) -> None:
    old = [message_sets.build([(n, NOW, b"k", b"v", ())], 1) for n in range(5)]
    new = [batch_v2.build([(n, NOW, b"k", b"v", ())], base_offset=n) for n in range(5, 9)]
    more = [message_sets.build([(n, NOW, b"k", b"v", ())], 0) for n in range(9, 11)]
    (tmp_path / "log").write_bytes(b"".join(old + new + more))
    with (tmp_path / "log").open("rb") as file:
        reader = ChunkReader(file.fileno(), os.fstat(file.fileno()).st_size)
        kinds = [(type(one), one.size) for one in reader]
    assert [kind for kind, _ in kinds] == [OldBatch] * 5 + [Chunk] + [OldBatch] * 2
    assert sum(size for _, size in kinds) == (tmp_path / "log").stat().st_size
    assert reader.bad is None
