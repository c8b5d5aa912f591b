"""Topics become Parquet by hour; each run continues where the archive ends."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from odradek.pipeline.errors import OptionError, PipelineError
from odradek.pipeline.jobs.archive.formats.formats import Formats, parse
from odradek.pipeline.jobs.archive.job import Job
from odradek.pipeline.jobs.archive.sink.columns import Columns
from odradek.pipeline.jobs.archive.sink.sink import note
from odradek.pipeline.jobs.archive.store import manifest
from odradek.pipeline.jobs.archive.store.manifest import now_ms
from odradek.pipeline.jobs.files import Files

from ...clients.admin import create_topic, unique
from ...harness.process import wait_until
from ..frames import rows
from ..test_source import delete_before
from ..topics import HOUR, NOW, WAIT, Sent, send, undecided
from .archives import Ids, archive, assert_whole, ids, live, source, visible

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live


def hours(sent: list[Sent]) -> set[str]:
    """The folders that the records belong to."""
    times = (datetime.fromtimestamp(one.timestamp / 1000, UTC) for one in sent)
    return {time.strftime("date=%Y-%m-%d/hour=%H") for time in times}


def folders(folder: Path, topic: str) -> set[str]:
    """The folders that have files."""
    root = folder / f"topic={topic}"
    return {str(path.parent.relative_to(root)) for path in root.glob("**/*.parquet")}


def test_runs_continue_where_the_archive_ends(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """Several batches in the first run; no new records; then new records, with the checkpoint lost."""
    folder = tmp_path / "an archive"
    topic, other = create_topic(broker, partitions=2), create_topic(broker)
    job = Job(source(broker, topic, other), max_offsets=60, compact=False)
    sent = send(broker, topic, range(100), 2)
    state = archive(spark, folder, job)
    assert state.number == 2
    assert state.offsets == {(topic, 0): 50, (topic, 1): 50, (other, 0): 0}
    assert archive(spark, folder, job) == state
    shutil.rmtree(folder / "_odradek/checkpoint", ignore_errors=True)
    sent += send(broker, topic, range(100, 110), 2)
    archive(spark, folder, job)
    assert_whole(spark, folder, topic, ids(sent))
    frame = spark.read.parquet(str(folder / f"topic={topic}"))
    assert rows(frame.selectExpr("*", f"'{topic}' AS topic")) == sorted(sent, key=lambda one: one[2:5])


def test_topic_configs_are_archived(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """With the first batch, and again after a change."""
    topic = create_topic(broker, segment_ms=7_777_777)
    send(broker, topic, range(3))
    known = {"cleanup.policy": "delete", "segment.ms": "7777777"}
    [config] = archive(spark, tmp_path, Job(source(broker, topic))).configs.values()
    assert config.items() >= known.items()
    assert "max.message.bytes" in config
    entry = AlterConfigOpType.SET
    changed = [ConfigEntry("cleanup.policy", "compact", incremental_operation=entry)]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for done in admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changed)]
    ).values():
        done.result(WAIT)
    send(broker, topic, range(3, 5))
    state = archive(spark, tmp_path, Job(source(broker, topic), compact=False))
    assert state.configs == {topic: {**config, "cleanup.policy": "compact"}}


def test_late_records_are_compacted_into_the_file_of_their_hour(
    spark: SparkSession, broker: Any, tmp_path: Path
) -> None:
    """Small files of an hour become one, in order, with all columns."""
    topic = create_topic(broker, partitions=2)
    job = Job(source(broker, topic))
    sent = send(broker, topic, range(-2 * HOUR, 0, 361), 2)
    state = archive(spark, tmp_path, job)
    assert folders(tmp_path, topic) == hours(sent)
    assert len(state.files) == len(hours(sent))
    late = send(broker, topic, range(-2 * HOUR, -2 * HOUR + 10), 2)
    state = archive(spark, tmp_path, job)
    assert state.number == 4
    assert len(state.files) == len(hours(sent + late))
    assert assert_whole(spark, tmp_path, topic, ids(sent + late)) == state
    frame = spark.read.parquet(str(tmp_path / f"topic={topic}"))
    assert rows(frame.selectExpr("*", f"'{topic}' AS topic")) == sorted(sent + late, key=lambda one: one[2:5])
    for file in state.files.values():
        found = spark.read.parquet(str(tmp_path / file.path)).select("partition", "offset").collect()
        assert found == sorted(found)


def plans(spark: SparkSession, after: int = 0) -> list[str]:
    """The plans of Spark's executions, without the first `after`."""
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    return [executions.apply(at).physicalPlanDescription() for at in range(after, executions.size())]


def test_batch_is_written_without_shuffle_and_sort(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """The tasks that read a batch also write it."""
    topic = create_topic(broker, partitions=2)
    send(broker, topic, range(10), 2)
    archive(spark, tmp_path, Job(source(broker, topic), Columns(event_time="timestamp"), compact=False))
    [plan] = [plan for plan in plans(spark) if "InsertIntoHadoopFs" in plan and f"{tmp_path}/_odradek" in plan]
    assert "Scan ExistingRDD" in plan
    assert "Exchange" not in plan
    assert "Sort" not in plan


@pytest.mark.long
def test_raw_records_are_written_directly_by_python_tasks(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """The records equal those that Spark writes, and compaction merges files of both."""
    topic = create_topic(broker, partitions=2)
    before, sent = len(plans(spark)), send(broker, topic, range(100), 2)
    archive(spark, tmp_path / "direct", Job(source(broker, topic), compact=False))
    assert not [plan for plan in plans(spark, before) if "InsertIntoHadoopFs" in plan]
    archive(spark, tmp_path / "spark", Job(source(broker, topic), Columns(event_time="timestamp"), compact=False))
    direct, through = (spark.read.parquet(f"{tmp_path}/{way}/topic={topic}") for way in ("direct", "spark"))
    assert direct.schema == through.schema
    order = ["partition", "offset"]
    assert direct.orderBy(order).collect() == through.orderBy(order).collect()
    sent += send(broker, topic, range(100, 110), 2)
    archive(spark, tmp_path / "direct", Job(source(broker, topic), Columns(event_time="timestamp")))
    assert_whole(spark, tmp_path / "direct", topic, ids(sent))
    files = list((tmp_path / "direct").glob("topic=*/**/*.parquet"))
    assert len(files) == len(hours(sent))
    assert {str(pq.ParquetFile(path).schema_arrow.field("timestamp").type) for path in files} == {
        "timestamp[us, tz=UTC]"
    }


@pytest.mark.long
def test_event_time_of_json_determines_the_hour(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """Records without an event time, or with one out of range, go to the null folder."""
    plain, events = create_topic(broker), create_topic(broker)
    at = NOW // 1000 - 50 * HOUR
    texts = [f'{{"at":{at}}}', "{}", "not JSON", '{"at":999999999999999}', f'{{"at":{at + HOUR}}}']
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for text in texts:
        producer.produce(events, text)
    producer.produce(plain, b"\xff", timestamp=NOW)
    producer.flush(WAIT)
    formats = Formats(values=parse("--value-format", (f"{events}=json:at BIGINT",)))
    time = f"CASE topic WHEN '{events}' THEN CAST(value.at AS TIMESTAMP) END"
    with pytest.raises(OptionError, match=r"--event-time .*value"):
        archive(spark, tmp_path, Job(source(broker, plain, events), Columns(formats, time)))
    archive(spark, tmp_path, Job(source(broker, events), Columns(formats, "CAST(value.at AS TIMESTAMP)")))
    wanted = {datetime.fromtimestamp(at + n * HOUR, UTC).strftime("date=%Y-%m-%d/hour=%H") for n in (0, 1)}
    nowhere = "date=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__"
    assert folders(tmp_path, events) == {*wanted, nowhere}
    archive(spark, tmp_path, Job(source(broker, plain, events), Columns(formats)))
    with pytest.raises(OptionError, match=f"{events} was archived to .* with other formats"):
        archive(spark, tmp_path, Job(source(broker, plain, events)))
    assert_whole(spark, tmp_path, events, [(0, n) for n in range(5)])
    assert_whole(spark, tmp_path, plain, [(0, 0)])
    found = spark.read.parquet(str(tmp_path / f"topic={events}")).orderBy("offset")
    values = found.selectExpr("value.at", "string(value_raw)", "hour IS NULL").collect()
    assert [tuple(row) for row in values] == [
        (at, None, False),
        (None, None, True),
        (None, "not JSON", True),
        (999999999999999, None, True),
        (at + HOUR, None, False),
    ]


@pytest.mark.parametrize(
    ("time", "message"),
    [
        ("nothing", "--event-time nothing: .*nothing"),
        ("offset", "--event-time offset: the type is bigint; convert it to a timestamp"),
        ("((", r"--event-time \(\(: "),
        ("*", r"--event-time \*: the expression has 8 columns; it must have one"),
        ("max(timestamp)", r"--event-time max\(timestamp\): .*MISSING_GROUP_BY"),
        ("window(timestamp, '1 hour').start", "must have one value for each record"),
        ("window(timestamp, '2 hours', '1 hour').start", "must have one value for each record"),
        ("max(timestamp) OVER (PARTITION BY key)", "must have one value for each record"),
        ("explode(array(timestamp))", r"--event-time explode\(array\(timestamp\)\): .*GENERATOR"),
    ],
)
def test_invalid_event_time_is_refused_in_one_line(
    spark: SparkSession, broker: Any, tmp_path: Path, time: str, message: str
) -> None:
    topic = create_topic(broker)
    with pytest.raises(OptionError, match=message) as error:
        archive(spark, tmp_path, Job(source(broker, topic), Columns(event_time=time)))
    assert "\n" not in str(error.value)


def test_offsets_deleted_by_retention_are_reported(
    spark: SparkSession, broker: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The job names the deleted offsets before it reads, or logs their number and continues."""
    topic = create_topic(broker)
    sent = send(broker, topic, range(10))
    archive(spark, tmp_path, Job(source(broker, topic)))
    sent += send(broker, topic, range(10, 30))
    delete_before(broker, topic, 15)
    gone = f"{topic}-0: offsets 10 to 14 are gone; the log starts at 15"
    with pytest.raises(PipelineError, match=f"{gone}; --no-fail-on-data-loss continues without them"):
        archive(spark, tmp_path, Job(source(broker, topic)))
    with caplog.at_level(logging.WARNING):
        archive(spark, tmp_path, Job(source(broker, topic, failOnDataLoss="false")))
    assert [record.getMessage() for record in caplog.records if "lost" in record.getMessage()] == [
        "5 offsets are lost in all"
    ]
    assert_whole(spark, tmp_path, topic, ids(sent[:10] + sent[15:]))
    text = Files(spark, str(tmp_path)).read(f"{manifest.COMMITS}/{manifest.commit_name(2)}")
    assert manifest.commit_from_json(text).offsets == {(topic, 0): (15, 30)}


def test_only_committed_records_are_archived(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """The batch ends after the aborted records and before open transactions."""
    topic = create_topic(broker)
    expected = undecided(broker, topic)["read_committed"]
    for _ in range(2):
        archive(spark, tmp_path, Job(source(broker, topic, kafka_isolation_level="read_committed")))
    frame = spark.read.parquet(str(tmp_path / f"topic={topic}")).orderBy("offset").selectExpr("string(value)")
    assert [row[0] for row in frame.collect()] == expected


@pytest.mark.long
def test_topics_pattern_finds_topics_created_later(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    stem = unique("later")
    job = Job({"kafka.bootstrap.servers": broker.bootstrap, "subscribePattern": stem})
    with pytest.raises(PipelineError, match=f"no topic matches '{stem}'"):
        archive(spark, tmp_path, job)
    sent = {}
    for _ in range(2):
        topic = create_topic(broker, stem)
        sent[topic] = send(broker, topic, range(3))
        archive(spark, tmp_path, job)
    for topic, records in sent.items():
        assert_whole(spark, tmp_path, topic, ids(records))


def is_visible(spark: SparkSession, folder: Path, topic: str, expected: Ids) -> bool:
    return visible(spark, folder, topic) == expected


@contextmanager
def running(spark: SparkSession, folder: Path, job: Job) -> Iterator[None]:
    """A continuous job in a thread, as the command runs it. Raises its error, if it ends with one."""
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(archive, spark, folder, job)
        try:
            yield
        finally:
            if ended.done():
                ended.result()
            for query in spark.streams.active:
                query.stop()
            ended.exception(WAIT)  # the error of a stopped batch


@pytest.mark.long
def test_continuous_archive_compacts_hours(
    spark: SparkSession, broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New records are archived until the stream is stopped; meanwhile, three small files of an hour become one.

    After the end of an hour, two files suffice.
    """
    topic, clock = create_topic(broker), [now_ms()]
    monkeypatch.setattr("odradek.pipeline.jobs.archive.job.now_ms", lambda: clock[-1])
    sent: list[Sent] = []
    with running(spark, tmp_path, Job(source(broker, topic), continuous=True, trigger_ms=0, several=3)):
        for number in range(4):
            sent += send(broker, topic, [number - 4 * HOUR])
            expected = ids(sent)
            wait_until(partial(is_visible, spark, tmp_path, topic, expected), WAIT, "the records are archived")
        wait_until(lambda: len(live(spark, tmp_path).files) == 2, WAIT, "three files become one")
        clock.append(now_ms() + HOUR * 1000)
        sent += send(broker, topic, [-9 * HOUR])
        expected = ids(sent)
        wait_until(partial(is_visible, spark, tmp_path, topic, expected), WAIT, "the records are archived")
        wait_until(lambda: len(live(spark, tmp_path).files) == 2, WAIT, "two files become one, next to the new one")
    assert_whole(spark, tmp_path, topic, ids(sent))


def test_number_of_remembered_batches_is_bounded() -> None:
    """A continuous job may have a million batches."""
    noted: dict[tuple[str, int], int] = {}
    for number in range(1000):
        note(noted, ("a", number), number)
    assert noted == {("a", number): number for number in range(900, 1000)}
