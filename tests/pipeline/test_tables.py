"""Batches that are looked at one by one, as large ones are: the same records as the reference reader finds."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.pipeline.batches import Hole
from odradek.pipeline.decoding import arrow, rooms, selection, tables
from odradek.pipeline.decoding.rooms import ROOM
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.reading import segments, tasks
from odradek.pipeline.types import Chunk, Pace, Range
from odradek.pipeline.wire.holes import Holes
from odradek.protocol.batch import HEADER_SIZE
from odradek.protocol.records import batch_v2, codecs
from odradek.protocol.records.errors import RecordError
from odradek.storage.files import names
from odradek.storage.producers.producer_state import AbortedTxn

from .batches import NOW, PARTITION, TOPIC, Content, Log, Row, shown, some_log, whole
from .test_alike import SHAPES, records, with_append_time
from .test_arrow import ALL, EVERYTHING, OnlyHere, read, slow_rows

STEPS = st.sampled_from((0, 0, 1, 3, 70, 9000, -1, -70))
LIKE = st.tuples(
    st.sampled_from((1, 31, 33, 63, 64, 65, 130, 300)),
    st.sampled_from((None, 0, 5, 70)),
    st.sampled_from((None, 0, 10, 57, 120, 1000)),
    STEPS,
    st.sampled_from((0, 0, 0, 0, 1)),
)


@pytest.fixture(autouse=True, scope="module")
def all_are_large() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "LARGE_BATCH", 1)
        patch.setattr(segments, "LARGE_BATCH", 1)
        yield


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the runs of each batch that is read as a table; 0 for one that is not."""
    of, sizes = tables.Tables.of, list[int]()

    def counting(self: tables.Tables, batches: selection.LargeBatches, index: int) -> tables.RecordTable | None:
        table = of(self, batches, index)
        sizes.extend([part.rows for part in table.parts] if table else [0])
        return table

    monkeypatch.setattr(tables.Tables, "of", counting)
    return sizes


def mixed_log(seed: int, shapes: Sequence[tuple[int, int | None, int | None, int, int]]) -> Log:
    """Batches of these shapes: with the broker's time, in transactions, compacted, between markers and old messages."""
    rnd, log = random.Random(seed), Log(next_offset=random.Random(seed).choice((0, 7, 1 << 40)))
    for shape in shapes:
        some: list[Content] = [
            record[1:] for record in records([shape, *rnd.sample(list(shapes), int(rnd.random() < 0.2))])
        ]
        appended = rnd.choice((None, None, NOW + 5))
        kind = rnd.randrange(8)
        if kind < 3:
            log.batch(some, appended=appended, producer=rnd.randrange(1, 4))
        elif kind == 3:
            kept = [at for at in range(len(some)) if rnd.random() < rnd.choice((0, 0.5, 1))]
            log.batch(some, appended=appended, kept=kept, gap=rnd.choice((0, 0, 2)))
        elif kind == 4:
            log.batch(some, rnd.randrange(5), appended)
        elif kind == 5 and shape[0] < 70:
            log.message_set(some, rnd.randrange(2), rnd.randrange(4))
        else:
            log.batch(some, appended=appended)
        if rnd.random() < 0.4:
            log.end(rnd.randrange(1, 4), rnd.random() < 0.5, emptied=rnd.random() < 0.2)
    for producer in (1, 2, 3):
        log.end(producer, rnd.random() < 0.5)
    return log


SPAN = st.tuples(st.floats(-0.2, 1.2), st.floats(-0.2, 1.2)) | st.just((0.0, 1.0))


def span(log: Log, share: tuple[float, float]) -> Range:
    first = log.parts[0].first
    start, end = (first + int(each * (log.next_offset - first)) for each in share)
    return Range(TOPIC, PARTITION, max(start, 0), end)


@settings(max_examples=80)
@given(
    seed=st.integers(0, 1 << 32),
    shapes=st.lists(LIKE, min_size=1, max_size=6),
    cut=SPAN,
    sizes=st.lists(st.integers(1, 4), max_size=3),
    rows=st.sampled_from((70, 50_000)),
    committed=st.booleans(),
    views=st.booleans(),
)
def test_records_of_any_range_and_shape_are_read(
    seed: int,
    shapes: Sequence[tuple[int, int | None, int | None, int, int]],
    cut: tuple[float, float],
    sizes: Sequence[int],
    rows: int,
    committed: bool,
    views: bool,
) -> None:
    log = mixed_log(seed, shapes)
    asked = span(log, cut)
    expected = log.rows(asked.start, asked.end, committed)
    assert read(log, asked, committed, sizes, rows=rows, views=views) == expected


@settings(max_examples=60)
@given(seed=st.integers(0, 1 << 32), count=st.sampled_from((1, 5, 30)), cut=SPAN, committed=st.booleans())
def test_records_of_any_log_are_read(seed: int, count: int, cut: tuple[float, float], committed: bool) -> None:
    """Headers, nulls, times before the first one and beyond all varints of one byte, gaps, all codecs."""
    log = some_log(seed, count)
    asked = span(log, cut)
    assert read(log, asked, committed) == log.rows(asked.start, asked.end, committed)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 1 << 32),
    shapes=st.lists(LIKE, min_size=1, max_size=6),
    cut=SPAN,
    committed=st.booleans(),
    views=st.booleans(),
    pieces=st.sampled_from(((61, 61), (1000, 5000), (segments.HOT, segments.PIECE))),
)
def test_files_are_read_in_pieces_of_any_size(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    shapes: Sequence[tuple[int, int | None, int | None, int, int]],
    cut: tuple[float, float],
    committed: bool,
    views: bool,
    pieces: tuple[int, int],
) -> None:
    log = mixed_log(seed, shapes)
    folder, asked = tmp_path_factory.mktemp("log"), span(log, cut)
    put(folder, log)
    asked = Range(*asked.key, max(asked.start, begin(log)), min(asked.end, log.next_offset))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "HOT", pieces[0])
        patch.setattr(segments, "PIECE", pieces[1])
        assert from_files(folder, asked, committed, views) == log.rows(asked.start, asked.end, committed)


def put(folder: Path, log: Log) -> None:
    """The log as the only segment of a partition, with its aborted transactions."""
    base = names.offset_name(begin(log))
    (folder / f"{base}{names.LOG}").write_bytes(b"".join(part.data for part in log.parts))
    (folder / f"{base}{names.INDEX}").write_bytes(b"")
    rows = [AbortedTxn(one.producer, one.first, one.marker, 0) for one in log.transactions if one.aborted]
    (folder / f"{base}{names.TXN_INDEX}").write_bytes(b"".join(row.pack() for row in rows))
    os.utime(folder, (1, 1))  # a directory that has just changed is not read yet


def begin(log: Log) -> int:
    """The log's first offset, be it that of a record that is no longer there."""
    return min(log.parts[0].first, int.from_bytes(log.parts[0].data[:8], "big"))


def from_files(folder: Path, asked: Range, committed: bool, views: bool = False) -> list[Row]:
    pace = Pace()
    chunks = segments.read(
        str(folder), asked, committed, Compacted({"bootstrap.servers": "none:1"}, asked), views, pace
    )
    return shown(list(arrow.batches(chunks, asked, names=ALL, views=views, pace=pace)))


class Compacted(Holes):
    """Holes of a log that was compacted: all are legitimate."""

    believed = True

    def proven(self, holes: Sequence[Hole], begin: int) -> bool:
        return True


# -- files that are cut


class Expected(NamedTuple):
    """What a reader of a whole log must find."""

    span: Range
    rows: list[Row]


def some_large() -> Log:
    """Batches of 150 KB, of like records and of others, without a random seed."""
    log = Log()
    for headers in (0, 0, 1, 0):
        log.batch([record[1:] for record in records([(150, 5, 1000, 0, headers)])])
    return log


def rows_of(log: Log) -> Expected:
    return Expected(whole(log), log.rows(0, log.next_offset, True))


@pytest.mark.live
@pytest.mark.parametrize("views", ["views", "copies"])
def test_a_file_that_is_cut_while_it_is_read_is_an_error_and_no_signal(tmp_path: Path, views: str) -> None:
    """Another process cuts it anywhere and fills it again. A mapped file would end the reader with SIGBUS."""
    put(tmp_path, some_large())
    (path,) = tmp_path.glob(f"*{names.LOG}")
    data, rnd = path.read_bytes(), random.Random(1)
    program = [sys.executable, "-m", "tests.pipeline.reading_truncated", str(tmp_path), views]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reading:
        while reading.poll() is None:
            os.truncate(path, rnd.randrange(len(data)))
            time.sleep(rnd.choice((0, 0.001, 0.01)))
            with open(path, "r+b") as file:
                file.write(data)
            time.sleep(rnd.choice((0, 0.001, 0.01)))
        out, err = reading.communicate()
    assert (reading.returncode, out) == (0, "done\n"), err


# -- what is a table, and what is not


def one_batch(*shapes: tuple[int, int | None, int | None, int, int]) -> Log:
    log = Log()
    log.batch([record[1:] for record in records(shapes)])
    return log


@pytest.mark.parametrize(
    ("shapes", "runs"),
    [
        ([(300, 5, 100, 0, 0)], [64, 236]),
        ([(40, 5, 100, 0, 0)], [40]),
        ([(9000, None, 9, 0, 0)], [0]),  # offset deltas of three bytes
        ([(200, 5, 100, 1, 0)], [64, 136]),
        ([(200, None, 70, 2, 0)], [32, 32, 136]),  # from 64 ms on times have two bytes
        ([(200, 5, 100, 100, 0)], [0]),  # the first time has one byte
        ([(200, 5, 100, 0, 1)], [0]),
        ([(100, 5, 100, 0, 0), (100, 5, 101, 0, 0)], [0]),
        ([(100, 5, 100, 0, 0), (100, 6, 99, 0, 0)], [0]),
        ([(100, None, None, 0, 0)], [64, 36]),
        ([(100, 0, 0, 0, 0)], [64, 36]),
        ([(100, 100, 100, 0, 0)], [64, 36]),
    ],
)
def test_batches_of_one_shape_are_tables(
    found: list[int], shapes: Sequence[tuple[int, int | None, int | None, int, int]], runs: list[int]
) -> None:
    log = one_batch(*shapes)
    assert read(log) == log.rows(0, log.next_offset, True)
    assert found == runs


def test_compressed_batches_are_no_tables(found: list[int]) -> None:
    log = Log()
    log.batch([record[1:] for record in records([(100, 5, 100, 0, 0)])], codecs.LZ4)
    assert read(log) == log.rows(0, 100, True)
    assert found == [0]


def test_pace_follows_the_records() -> None:
    pace = Pace()
    for shape, alike in (((50, 5, 100, 0, 1), False), ((100, 5, 100, 0, 0), True)):
        log = one_batch(shape)
        list(arrow.batches(log.chunks((), True), whole(log), pace=pace))
        assert pace.alike == alike


def test_tables_of_several_batches_become_one_record_batch() -> None:
    log = Log()
    for _ in range(30):
        log.batch([record[1:] for record in records([(100, 5, 100, 0, 0)])])
    found = list(arrow.batches(log.chunks([1] * 30, True), whole(log)))
    assert [batch.num_rows for batch in found] == [3000]


def test_record_batches_do_not_change_while_later_ones_are_read() -> None:
    """Those that are dropped give their memory to later ones; what is held is not used again."""
    log, value = Log(), 2 << 20
    for number in range(40):
        log.batch([(NOW, None, bytes([number]) * value, ())])
    held = [batch for at, batch in enumerate(arrow.batches(log.chunks([1] * 40, True), whole(log))) if not at % 3]
    for batch in held:
        for offset, found in zip(batch["offset"].to_pylist(), batch["value"], strict=True):
            assert found.as_py() == bytes([offset]) * value


@pytest.mark.parametrize("names", [["headers"], ["offset", "value", "headers"]])
def test_large_headers_end_a_record_batch_as_large_values_do(names: list[str]) -> None:
    log, value = Log(), b"h" * (1 << 20)
    for _ in range(20):
        log.batch([(NOW, None, b"v", [(b"h", value)])])
    found = list(arrow.batches(log.chunks([1] * 20, True), whole(log), names=names))
    assert [batch.num_rows for batch in found] == [7, 7, 6]


@pytest.mark.parametrize("codec", [codecs.NONE, codecs.ZSTD])
@pytest.mark.parametrize(("key", "count"), [(13, 20), (70, 1)])
def test_the_memory_that_views_keep_is_bounded(codec: int, key: int, count: int) -> None:
    """Keys alone, which keep the values in memory that lie between them: of 1 MiB in all for each batch."""
    log, value = Log(), bytes((1 << 20) // count)
    for _ in range(20):
        log.batch([(NOW, b"k" * key, value, ())] * count, codec)
    found = list(arrow.batches(log.chunks([1] * 20, True), whole(log), names=["key"], views=True))
    assert sum(batch.num_rows for batch in found) == 20 * count
    assert max(batch.num_rows for batch in found) <= 8 * count


def test_views_of_a_few_records_keep_few_chunks() -> None:
    """All other records were aborted. A view keeps the whole chunk."""
    log = Log()
    for _ in range(20):
        log.batch([(NOW, None, b"v" * 70, ())])
        log.batch([(NOW, None, bytes(1 << 20), ())], producer=1)
    log.end(1, abort=True)
    found = list(arrow.batches(log.chunks([2] * 20, True), whole(log), names=["value"], views=True))
    assert [batch.num_rows for batch in found] == [7, 7, 6]


def test_short_strings_keep_no_memory() -> None:
    log = one_batch((100, 12, 1000, 0, 0), (3, 12, 10, 0, 1))
    (found,) = arrow.batches(log.chunks((), True), whole(log), names=["key"], views=True)
    assert len(found["key"].buffers()) == 2


class Counted(rooms.Rooms):
    """Counts the rooms that were taken."""

    taken = 0

    def take(self, size: int) -> np.ndarray:
        self.taken += 1
        return super().take(size)


@pytest.mark.parametrize(("count", "taken"), [(7, 0), (34, 2)])
def test_views_of_a_small_file_take_no_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, count: int, taken: int
) -> None:
    """A room has 15 batches of half a MiB, and the last part of a large file is small, too."""
    some, log = Counted(), Log()
    monkeypatch.setattr(segments, "shared", lambda: some)
    for _ in range(count):
        log.batch([(NOW, None, bytes(1 << 19), ())])
    put(tmp_path, log)
    assert from_files(tmp_path, whole(log), True, views=True) == log.rows(0, count, True)
    assert some.taken == taken


def test_pieces_of_whole_batches_fit_into_a_room() -> None:
    """Also where a multiple of the batch is exactly a room: the header behind is read as well."""
    for wanted in (0, 1 << 10, 1 << 17, 1 << 20, ROOM - HEADER_SIZE):
        for alike in (True, False):
            assert wanted <= segments._next(wanted, Pace(alike=alike)) <= ROOM


def test_small_chunks_from_the_wire_take_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    some = Counted()
    monkeypatch.setattr(tasks, "shared", lambda: some)
    chunks = [Chunk(bytes([at]) * size, (), at) for at, size in enumerate((100, ROOM // 2 - 1, ROOM // 2, ROOM))]
    assert [bytes(chunk.data) for chunk in tasks._copies(chunks)] == [chunk.data for chunk in chunks]
    assert some.taken == 2


# -- damage


@settings(max_examples=150)
@given(
    shape=SHAPES.filter(lambda shape: (shape[2] or 0) < 8000),
    damage=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), min_size=1, max_size=3),
    near=st.integers(0, 16),
    appended=st.booleans(),
)
def test_damage_is_an_error_or_reads_as_the_reference_reader_does(
    shape: tuple[int, int | None, int | None, int, int],
    damage: Sequence[tuple[float, int]],
    near: int,
    appended: bool,
) -> None:
    """Most bytes are values, so the damage is near the start of a record. `appended`: the batch has the time."""
    batch = bytearray(with_append_time(batch_v2.build(records([shape], base=100)), appended))
    size = max(1, (len(batch) - HEADER_SIZE) // shape[0])
    for share, byte in damage:
        batch[min(HEADER_SIZE + int(share * shape[0]) * size + near, len(batch) - 1)] = byte
    chunk = Chunk(bytes(batch), (), 0)
    try:
        expected = slow_rows(bytes(batch))
    except (RecordError, OnlyHere):
        with pytest.raises(PipelineError, match=r"at offset [12]"):
            shown(arrow.batches([chunk], EVERYTHING, names=ALL, check_crcs=False))
        return
    assert shown(arrow.batches([chunk], EVERYTHING, names=ALL, check_crcs=False)) == expected


def test_no_damaged_byte_makes_a_wrong_record() -> None:
    """Of a batch between two others; the leader epoch does not affect records."""
    log = Log()
    for _ in range(3):
        log.batch([record[1:] for record in records([(40, 3, 4, 0, 0)])])
    before, batch, after = (part.data for part in log.parts)
    for position in range(len(batch)):
        broken = bytearray(batch)
        broken[position] ^= 0x80
        chunk = Chunk(before + broken + after, (), 120)
        try:
            assert shown(arrow.batches([chunk], whole(log), names=ALL)) == log.rows(0, 120, True)
            assert position in range(12, 16)
        except PipelineError as error:
            assert "cannot be read" in str(error) and position not in range(12, 16)


def test_a_wrong_byte_of_a_value_behind_a_batch_with_headers_is_found() -> None:
    """The second batch could be a table, but is decoded with the first one, which cannot."""
    log = Log()
    for headers in (1, 0):
        log.batch([record[1:] for record in records([(100, 5, 100, 0, headers)])])
    data = bytearray(b"".join(part.data for part in log.parts))
    data[-20] ^= 1
    with pytest.raises(PipelineError, match="at offset 100 cannot be read: its checksum is wrong"):
        list(arrow.batches([Chunk(bytes(data), (), 200)], whole(log)))


@pytest.mark.parametrize("more", [b"\0", b"\x0c\0\0\0\1\1\0"])
def test_bytes_behind_the_last_record_are_an_error(more: bytes) -> None:
    batch = bytearray(one_batch((100, 5, 100, 0, 0)).parts[0].data + more)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch_v2.set_crc(batch)
    with pytest.raises(PipelineError, match="at offset 0 cannot be read: its records do not end at its end"):
        list(arrow.batches([Chunk(bytes(batch), (), 100)], EVERYTHING))


@pytest.mark.parametrize(("start", "end"), [(0, 1), (0, 64), (64, 65), (10, 70), (63, 200), (0, 200), (199, 200)])
def test_a_table_at_an_end_of_the_range_is_cut(found: list[int], start: int, end: int) -> None:
    log = one_batch((200, 5, 100, 1, 0))
    assert read(log, Range(TOPIC, PARTITION, start, end)) == log.rows(start, end, True)
    assert sum(found) == end - start


@pytest.mark.parametrize("hidden", ["control", "before the range"])
def test_checksums_of_batches_without_records_are_verified(hidden: str) -> None:
    log = Log()
    if hidden == "control":
        log.end(1, abort=True)
    else:
        log.batch([(NOW, None, b"v", ())])
    log.batch([(NOW, None, b"v", ())])
    data = bytearray(b"".join(part.data for part in log.parts))
    data[len(log.parts[0].data) - 1] ^= 1
    with pytest.raises(PipelineError, match="at offset 0 cannot be read: its checksum is wrong"):
        list(arrow.batches([Chunk(bytes(data), (), 2)], Range(TOPIC, PARTITION, 1, 2)))
