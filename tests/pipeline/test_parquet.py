"""Records written directly to Parquet: each in the file of its hour, only complete files, and the frame about them."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.pipeline.decoding.arrow import SCHEMA
from odradek.pipeline.errors import OptionError, PipelineError
from odradek.pipeline.reading import parquet
from odradek.pipeline.reading.read_options import ReadOptions
from odradek.pipeline.types import LAST_MS, Range, Target

from ..clients.admin import create_topic
from .frames import load
from .topics import send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPAN = Range("orders", 3, 0, 1000)
HOUR = 3_600_000  # ms
NOON = int(datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()) * 1000
NULL = "topic=orders/date=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__"


def batch(first: int, times: list[int]) -> pa.RecordBatch:
    """Records at offsets from `first` on with these timestamps in ms."""
    count, micros = len(times), [time * 1000 for time in times]
    values = [b"%d" % (first + at) for at in range(count)]
    columns = [
        pa.array([None] * count, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(["orders"] * count),
        pa.array([3] * count, pa.int32()),
        pa.array(range(first, first + count), pa.int64()),
        pa.array(micros, pa.int64()).cast(pa.timestamp("us", "UTC")),
        pa.array([0] * count, pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def written(folder: Path, batches: Iterable[pa.RecordBatch], hourly: bool, span: Range = SPAN) -> list[dict[str, Any]]:
    """Write the batches; returns the rows that describe the files."""
    [told] = parquet.write(iter(batches), span, Target(str(folder), hourly))
    return told.to_pylist()


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of one file, without partition columns from folder names."""
    return pq.ParquetFile(path).read().to_pylist()


@settings(max_examples=50)
@given(st.lists(st.lists(st.integers(-2, 3 * HOUR), min_size=1, max_size=30), max_size=5), st.booleans())
def test_every_record_is_once_in_the_file_of_its_hour(times: list[list[int]], hourly: bool) -> None:
    firsts = [sum(map(len, times[:at])) for at in range(len(times))]
    with tempfile.TemporaryDirectory() as room:
        told = written(Path(room), [batch(*each) for each in zip(firsts, times, strict=True)], hourly)
        found = [(each, row) for each in told for row in read(Path(room, each["path"]))]
        there = {str(path.relative_to(room)) for path in Path(room).rglob("*") if path.is_file()}
    assert there == {each["path"] for each in told}
    assert sorted(row["offset"] for _, row in found) == list(range(sum(map(len, times))))
    flat = [time for each in times for time in each]
    for file, row in found:
        assert row["value"] == b"%d" % row["offset"] and row["timestampType"] == 0
        time = flat[row["offset"]]
        assert round(row["timestamp"].timestamp() * 1000) == time
        expected = NULL if time == -1 else parquet.subfolder("orders", time // HOUR)
        assert not hourly or file["path"].startswith(expected + "/")
        assert ("topic" in row) is not hourly


def test_files_are_described_with_rows_offsets_and_size(tmp_path: Path) -> None:
    batches = [batch(10, [NOON, NOON + 1]), batch(20, [NOON + HOUR, NOON + 2])]
    told = written(tmp_path, batches, hourly=True)
    facts = {each.pop("path").rpartition("/")[0]: each for each in told}
    for path in tmp_path.rglob("*.parquet"):
        facts[str(path.parent.relative_to(tmp_path))]["size"] -= path.stat().st_size
    whose = {"topic": "orders", "partition": 3, "size": 0}
    assert facts == {
        "topic=orders/date=2026-11-23/hour=12": {**whose, "rows": 3, "first": 10, "last": 21},
        "topic=orders/date=2026-11-23/hour=13": {**whose, "rows": 1, "first": 20, "last": 20},
    }


def test_many_hours_mixed_become_one_file_each(tmp_path: Path) -> None:
    """Even if each hour is spread over many batches."""
    count = 2 * parquet.OPEN
    told = written(tmp_path, [batch(at * count, [NOON + n * HOUR for n in range(count)]) for at in range(5)], True)
    assert [each["rows"] for each in told] == [5] * count
    for each in told:
        offsets = [row["offset"] for row in read(tmp_path / each["path"])]
        assert offsets == sorted(offsets) and (offsets[0], offsets[-1]) == (each["first"], each["last"])


def test_buffered_rows_and_open_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more hours than open files and more rows than the buffer holds, an hour gets several files."""
    monkeypatch.setattr(parquet, "WAITING", 1000)
    monkeypatch.setattr(parquet, "ROW_GROUP", 300)
    monkeypatch.setattr(parquet, "OPEN", 3)
    batches = [batch(at * 6, [NOON + n * HOUR for n in range(6)]) for at in range(40)]
    told = written(tmp_path, batches, hourly=True)
    assert sum(each["rows"] for each in told) == 240
    assert 6 < len(told) < 240
    found = sorted(row["offset"] for each in told for row in read(tmp_path / each["path"]))
    assert found == list(range(240))


@pytest.mark.parametrize("time", [-63_000_000_000_000, 253_402_300_800_000, LAST_MS, -LAST_MS])
def test_timestamps_beyond_the_calendar_go_to_the_null_folder(tmp_path: Path, time: int) -> None:
    [told] = written(tmp_path, [batch(0, [time])], hourly=True)
    assert told["path"].startswith(NULL)


def test_a_failed_write_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP", 1)

    def failing() -> Iterator[pa.RecordBatch]:
        yield batch(0, [NOON] * 10)
        yield batch(10, [NOON] * 10)
        assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == [".tmp"]
        raise RuntimeError("damaged")

    with pytest.raises(RuntimeError, match="damaged"):
        list(parquet.write(failing(), SPAN, Target(str(tmp_path), True)))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("hourly", [False, True])
@pytest.mark.parametrize("topic", [".foo", "_x", "t" * 249])
def test_files_of_unusual_topic_names_are_visible(tmp_path: Path, topic: str, hourly: bool) -> None:
    """Spark skips names that begin with a dot or an underscore; a file name has at most 255 bytes."""
    [told] = written(tmp_path, [batch(0, [NOON])], hourly, Range(topic, 3, 0, 1))
    assert told["topic"] == topic and read(tmp_path / told["path"])[0]["offset"] == 0
    assert all(part[0] not in "._" for part in Path(told["path"]).parts)


def late(count: int, of_them: int) -> Iterator[pa.RecordBatch]:
    """A MiB each, of which one record, the first or another one, is an hour late."""
    for at in range(count):
        times = [NOON] * 64
        times[of_them] -= HOUR
        some = batch(at * 64, times)
        yield some.set_column(1, SCHEMA.field(1), pa.array([bytes(16 << 10)] * 64, pa.binary()))


@pytest.mark.parametrize("of_them", [0, 9])
def test_late_records_do_not_hold_the_others_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_them: int
) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP", 4 << 20)
    before, held = pa.total_allocated_bytes(), []

    def watched() -> Iterator[pa.RecordBatch]:
        for some in late(64, of_them):
            held.append(pa.total_allocated_bytes() - before)
            yield some

    assert sorted(each["rows"] for each in written(tmp_path, watched(), hourly=True)) == [64, 63 * 64]
    assert max(held) < 16 << 20


def test_every_page_has_a_checksum(tmp_path: Path) -> None:
    [told] = written(tmp_path, [batch(0, [NOON] * 100)], hourly=True)
    path = tmp_path / told["path"]
    values = pq.ParquetFile(path).metadata.row_group(0).column(1)
    data = bytearray(path.read_bytes())
    data[values.dictionary_page_offset + values.total_compressed_size // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(OSError, match="CRC"):
        pq.ParquetFile(path, page_checksum_verification=True).read()


@contextmanager
def small_files(most: int) -> Iterator[None]:
    """Limit the size of this process's files, which fails as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_full_disk_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    """The incomplete file is removed. The limit of 500 fails within the file, as the footer is written last."""
    for most in (0, 500):
        with small_files(most), pytest.raises(PipelineError, match=rf"^{tmp_path}/topic=.*\.parquet: File too large$"):
            written(tmp_path, [batch(0, [NOON] * 1000)], hourly=True)
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_file_in_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PipelineError, match=r"file/.*\.parquet: File exists$"):
        written(tmp_path / "file", [batch(0, [NOON])], hourly=False)


def test_no_records_write_no_file(tmp_path: Path) -> None:
    assert written(tmp_path, [], hourly=True) == []


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"odradek.parquet": "/a b"}, Target("/a b", False)),
        ({"odradek.parquet": "file:///a%20b", "odradek.parquet.hourly": "true"}, Target("/a b", True)),
        ({"odradek.parquet": "file:/a"}, Target("/a", False)),
    ],
)
def test_parquet_folder_may_be_a_path_or_a_file_uri(given: dict[str, str], meant: Target) -> None:
    assert ReadOptions.parse({"kafka.bootstrap.servers": "h:1", "subscribe": "t", **given}, False).parquet == meant


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"odradek.parquet": "hdfs://h/a"}, "absolute path or a file: URI, not 'hdfs://h/a'"),
        ({"odradek.parquet": "a"}, "absolute path"),
        ({"odradek.parquet": " "}, "odradek.parquet is empty"),
        ({"odradek.parquet.hourly": "true"}, "no effect without odradek.parquet"),
    ],
)
def test_invalid_parquet_folders_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        ReadOptions.parse({"kafka.bootstrap.servers": "h:1", "subscribe": "t", **given}, False)


@pytest.mark.live
@pytest.mark.parametrize("local", ["only", "off"])
def test_files_have_the_same_rows_as_a_read_through_spark(
    spark: SparkSession, broker: Any, tmp_path: Path, local: str
) -> None:
    topic = create_topic(broker, partitions=2)
    send(broker, topic, range(500), 2)
    options = {"subscribe": topic, "includeHeaders": "true", "minPartitions": "4"}
    plain = load(spark.read, broker, "odradek", **options)
    here = {"odradek.local": local, "odradek.parquet": str(tmp_path)}
    files = load(spark.read, broker, "odradek", **options, **here).collect()
    assert len(files) == 4 and sum(file.rows for file in files) == 500
    assert all(os.stat(tmp_path / file.path).st_size == file.size for file in files)
    back = spark.read.parquet(str(tmp_path))
    assert dict(back.dtypes) == dict(plain.dtypes)
    order = ["partition", "offset"]
    assert back.select(plain.columns).orderBy(order).collect() == plain.orderBy(order).collect()
