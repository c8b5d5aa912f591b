"""`df.write` and `df.writeStream` of format odradek, by Spark to a real broker."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from hashlib import md5
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from ..clients.admin import create_topic, unique
from . import frames
from .written import Written, committed, written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.live

ID = Struct(">16sqiq")
DYING = Path(__file__).with_name("dying_task.py")
HEADERS = "array<struct<key: string, value: binary>>"


def write(rows: DataFrame, broker: Any, **options: str) -> None:
    rows.write.format("odradek").option("kafka.bootstrap.servers", broker.bootstrap).options(**options).mode(
        "append"
    ).save()


# -- batches


def test_rows_become_records(spark: SparkSession, broker: Any) -> None:
    """All columns at once, in several record batches and several tasks."""
    one, two = create_topic(broker, partitions=3), create_topic(broker, partitions=3)
    count = 25_000
    rows = spark.range(count, numPartitions=2).selectExpr(
        f"if(id % 2 = 0, '{one}', '{two}') topic",
        "if(id % 3 = 0, null, encode(string(id), 'utf-8')) key",
        "if(id % 5 = 0, null, string(id)) value",
        "if(id % 7 = 0, null, int(id % 3)) partition",
        f"cast(if(id % 2 = 0, array(struct('n', encode(string(id), 'utf-8')), struct('n', null)), null) as {HEADERS})"
        " headers",
        "id other",
    )
    write(rows, broker)
    found = Counter(record[1:] for topic in (one, two) for record in written(broker, topic))
    assert found == Counter(expected(number) for number in range(count))
    for record in written(broker, two):
        number = int(record.value or record.key or b"0")
        assert number % 7 == 0 or record.partition == number % 3


def expected(number: int) -> tuple[Any, ...]:
    text = b"%d" % number
    headers = () if number % 2 else (("n", text), ("n", None))
    return None if number % 3 == 0 else text, None if number % 5 == 0 else text, headers


def test_batch_ids_are_written_as_headers(spark: SparkSession, broker: Any) -> None:
    """Only with odradek.stamp."""
    topic = create_topic(broker)
    rows = spark.range(10).selectExpr("string(id) value", "concat('id-', id) id")
    write(rows, broker, topic=topic)
    assert {record.id for record in written(broker, topic)} == {None}
    write(rows, broker, **{"topic": topic, "odradek.stamp": "true"})
    assert {record.id for record in written(broker, topic)[10:]} == {b"id-%d" % at for at in range(10)}


def test_timestamps_of_the_rows_are_written_on_request(spark: SparkSession, broker: Any) -> None:
    """Null means now. A copied record keeps its original's timestamp, also a missing one."""
    one, two = create_topic(broker), create_topic(broker)
    times, begun = [-1, None, 1_600_000_000_123], int(time.time() * 1000)
    frame = spark.createDataFrame([(str(at), at) for at in times], "value string, at long").coalesce(1)
    frame = frame.selectExpr("value", "timestamp_millis(at) timestamp")
    write(frame, broker, topic=one)
    write(frame, broker, **{"topic": one, "odradek.timestamps": "true"})
    copied = frames.load(spark.read, broker, "odradek", subscribe=one, startingOffsets=f'{{"{one}":{{"0":3}}}}')
    write(copied.select("value", "timestamp"), broker, **{"topic": two, "odradek.timestamps": "true"})
    tables = (frames.load(spark.read, broker, "odradek", subscribe=topic) for topic in (one, two))
    found = [[row.timestamp for row in frames.rows(table)] for table in tables]
    now = time.time() * 1000
    assert all(begun <= at <= now for at in (*found[0][:3], found[0][4]))
    assert [found[0][3], found[0][5]] == [-1, 1_600_000_000_123]
    assert found[1] == found[0][3:]


def test_batch_with_a_transactional_id_is_written_once(spark: SparkSession, broker: Any) -> None:
    """Even if adaptive execution changes its tasks. Without an id, each write is another batch."""
    topic = create_topic(broker)
    name = {"transactional": "true", "transactional.id": unique("batch"), "transactional.by": "unit"}
    name = {f"odradek.{option}": value for option, value in name.items()}
    frame = spark.range(100, numPartitions=3).selectExpr("string(id) value", "id % 7 AS unit")
    try:
        for cores, bytes_ in (("2", "64m"), ("4", "64m"), ("7", "1b")):
            spark.conf.set("spark.sql.shuffle.partitions", cores)
            spark.conf.set("spark.sql.adaptive.advisoryPartitionSizeInBytes", bytes_)
            write(frame.where("id % 3 > 0").repartition("unit"), broker, topic=topic, **name)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        spark.conf.unset("spark.sql.adaptive.advisoryPartitionSizeInBytes")
    write(frame.where("id % 3 = 0"), broker, topic=topic, **{"odradek.transactional": "true"})
    found = committed(broker, topic)
    assert sorted(int(record.value or b"") for record in found) == list(range(100))
    assert all(record.id is None for record in found)


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("id", {}, "the column 'value' is required"),
        ("id value", {}, "the column 'value' has type bigint but must be string or binary"),
        ("string(id) value", {"topic": " "}, "topic is empty"),
        ("string(id) value", {"kafka.max.block.ms": "1"}, "unknown producer setting kafka.max.block.ms"),
        ("string(id) value", {"kafka.acks": "seven"}, "acks"),
        ("string(id) value", {"odradek.stamp": "true"}, "the ids must be in a column 'id'"),
        ("string(id) value", {"odradek.timestamps": "true"}, "the column 'timestamp' is required"),
        ("string(id) value", {"odradek.transactional.id": "x"}, "no effect without odradek.transactional=true"),
    ],
)
def test_invalid_writes_fail_before_any_task(
    spark: SparkSession, broker: Any, columns: str, options: dict[str, str], words: str
) -> None:
    rows = spark.range(10).selectExpr(columns)
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as caught:
        write(rows, broker, **{"topic": unique("never"), **options})
    assert words in str(caught.value)


def test_overwrite_mode_is_refused(spark: SparkSession, broker: Any) -> None:
    topic = create_topic(broker)
    writer = spark.range(10).selectExpr("string(id) value").write.format("odradek").mode("overwrite")
    with pytest.raises(Exception, match="a topic cannot be overwritten"):
        writer.options(topic=topic, **{"kafka.bootstrap.servers": broker.bootstrap}).save()
    assert written(broker, topic) == []


def test_undelivered_record_fails_the_task(spark: SparkSession, broker: Any) -> None:
    topic = create_topic(broker, partitions=2)
    rows = spark.range(10).selectExpr("string(id) value", "int(id) partition")
    with pytest.raises(Exception, match=f"PipelineError: {topic}-[2-9]: _UNKNOWN_PARTITION"):
        write(rows, broker, topic=topic)


# -- streams


def text_files(folder: Path, *files: Iterable[str]) -> None:
    """Files of a stream with one file in each batch: Spark reads the oldest first."""
    (folder / "in").mkdir()
    for number, lines in enumerate(files):
        path = folder / "in" / f"{number}.txt"
        path.write_text("".join(f"{line}\n" for line in lines))
        os.utime(path, (1e9 + number, 1e9 + number))


def run(rows: DataFrame, broker: Any, topic: str, folder: Path, mode: str = "append", **options: str) -> StreamingQuery:
    """Write the available rows by a query with its checkpoint in `folder`; returns the ended query."""
    query = (
        rows.writeStream.format("odradek")
        .outputMode(mode)
        .options(topic=topic, checkpointLocation=str(folder / "checkpoint"), **options)
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def forget_last_batch(folder: Path) -> None:
    """Leave the state of a driver that died after the sink's commit and before the checkpoint's."""
    last = max((folder / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink()


def lines(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.option("maxFilesPerTrigger", "1").text(str(folder / "in"))


def test_stream_stamps_records_with_query_epoch_partition_and_position(
    spark: SparkSession, broker: Any, tmp_path: Path
) -> None:
    """In the order of writing, without gaps, each once."""
    topic = create_topic(broker)
    text_files(tmp_path, (f"{at}" for at in range(100)), (f"{at}" for at in range(100, 150)))
    query = run(lines(spark, tmp_path), broker, topic, tmp_path)
    found = written(broker, topic)
    assert [record.value for record in found] == [b"%d" % at for at in range(150)]
    ids = [ID.unpack(record.id or b"") for record in found]
    assert [UUID(bytes=one[0]) for one in ids] == [UUID(str(query.id))] * 150
    assert [one[1:] for one in ids] == [(0, 0, at) for at in range(100)] + [(1, 0, at) for at in range(50)]


def test_stream_without_stamps(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    topic = create_topic(broker)
    text_files(tmp_path, ["a"])
    run(lines(spark, tmp_path), broker, topic, tmp_path, **{"odradek.stamp": "false"})
    assert written(broker, topic) == [Written(0, None, b"a", ())]


def test_complete_mode_appends_the_whole_result(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """As Spark's own sink does; PySpark 4.0 has no update mode for Python sources."""
    topic = create_topic(broker)
    text_files(tmp_path, ["a", "b"], ["b"])
    counts = lines(spark, tmp_path).groupBy("value").count().selectExpr("concat(value, count) value")
    run(counts, broker, topic, tmp_path, "complete")
    assert sorted(record.value or b"" for record in written(broker, topic)) == [b"a1", b"a1", b"b1", b"b2"]


@pytest.mark.parametrize("travelling", [False, True])
def test_repeated_batch_has_the_same_stamps(spark: SparkSession, broker: Any, tmp_path: Path, travelling: bool) -> None:
    """The driver has died; also with a shuffle, and with ids in a column."""
    topic = create_topic(broker)
    text_files(tmp_path, (f"a{at}" for at in range(50)), (f"b{at}" for at in range(50)))
    rows = lines(spark, tmp_path)
    if travelling:
        rows = rows.selectExpr("value", "md5(value) id").repartition(2)
    run(rows, broker, topic, tmp_path)
    forget_last_batch(tmp_path)
    run(rows, broker, topic, tmp_path)
    found = written(broker, topic)
    assert Counter(record.value for record in found)[b"b7"] == 2
    assert_once_by_id(found, {b"%c%d" % (letter, at) for letter in b"ab" for at in range(50)}, doubled=50)
    if travelling:
        assert {record.id for record in found} == {md5(record.value or b"").hexdigest().encode() for record in found}


def test_stamps_identify_duplicates_for_the_next_stage(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """The header alone is sufficient."""
    topic = create_topic(broker, partitions=2)
    text_files(tmp_path, [f"{at // 2}" for at in range(100)])  # each value occurs twice, so only ids distinguish rows
    for _ in range(2):
        run(lines(spark, tmp_path), broker, topic, tmp_path)
        forget_last_batch(tmp_path)
    source = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "includeHeaders": "true"}
    rows = spark.read.format("odradek").options(**source).load()
    stamped = rows.selectExpr("int(string(value)) value", "filter(headers, h -> h.key = 'odradek.id')[0].value id")
    assert stamped.count() == 200
    kept = stamped.dropDuplicates(["id"]).collect()
    assert sorted(row.value for row in kept) == [at // 2 for at in range(100)]


@pytest.mark.long
@pytest.mark.needs("java")
def test_killed_task_is_repeated_with_the_same_stamps(broker: Any, tmp_path: Path) -> None:
    """A real kill in a separate Spark, because `local[2]` does not retry tasks."""
    topic = create_topic(broker)
    text_files(tmp_path, (f"{at}" for at in range(100)))
    done = subprocess.run(
        [sys.executable, str(DYING), broker.bootstrap, topic, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    found = written(broker, topic)
    assert [record.value for record in found] == [b"%d" % at for at in [*range(50), *range(100)]]
    assert_once_by_id(found, {b"%d" % at for at in range(100)}, doubled=50)


def assert_once_by_id(found: list[Written], values: set[bytes], doubled: int) -> None:
    """Assert that each id has one value and each value one id, with `doubled` records written twice."""
    assert len(found) == len(values) + doubled
    by_id = defaultdict(set)
    for record in found:
        by_id[record.id].add(record.value)
    assert None not in by_id
    assert all(len(each) == 1 for each in by_id.values())
    assert sorted(value or b"" for each in by_id.values() for value in each) == sorted(values)
