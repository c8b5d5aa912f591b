"""Restore returns each archived record once, unchanged and in order, despite kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from odradek.pipeline.errors import OptionError, PipelineError
from odradek.pipeline.jobs import topics
from odradek.pipeline.jobs.archive.formats.formats import Format, Formats
from odradek.pipeline.jobs.archive.job import Job
from odradek.pipeline.jobs.archive.sink.columns import Columns
from odradek.pipeline.jobs.files import Files
from odradek.pipeline.jobs.restore import restore
from odradek.pipeline.jobs.restore.restoring import RestorePlan
from odradek.pipeline.types import LATEST
from odradek.pipeline.wire.brokers import Brokers

from ...clients.admin import create_topic, unique
from ...clients.transactions import await_stable
from ...harness.process import die_with_parent, wait_until
from ..topics import NOW, WAIT
from .archives import archive, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS = Formats({"": Format("string")}, {"": Format("json", "id BIGINT, name STRING")})


class Record(NamedTuple):
    """A record as a consumer sees it, without its offset."""

    key: bytes | None
    value: bytes | None
    headers: Any
    timestamp: tuple[int, int]  # type, ms


Log = dict[int, list[Record]]
"""Records by partition, in order."""


def produce(broker: Any, topic: str, numbers: range, partitions: int = 2) -> None:
    """All kinds of records: binary keys and values, nulls, duplicate header names, unordered timestamps."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    texts = (b"plain", b'{"id":1}', b'{"id": 1, "name":"\\xc3\\xa4"}', b"\xff\x00", b"", None)
    for number in numbers:
        headers: list[tuple[str, str | bytes | None]] = [
            ("h", b"%d" % number), ("h", b"\x80"), ("none", None), ("", b""),
        ]  # fmt: skip
        producer.produce(
            topic,
            texts[number % 6],
            (b"key %d" % (number % 7), None, b"\xfe", b"")[number % 4],
            number % partitions,
            timestamp=NOW - (number * 7_919_000) % 10_000_000,
            headers=headers[: number % 5],
        )
    assert not producer.flush(WAIT)


def read(broker: Any, topic: str) -> Log:
    """All committed records."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
    try:
        found: Log = {index: [] for index in consumer.list_topics(topic, WAIT).topics[topic].partitions}
        consumer.assign([TopicPartition(topic, index, 0) for index in found])
        left = set(found)
        while left:
            for message in consumer.consume(1000, 0.2):
                _take(message, found, left)
        return found
    finally:
        consumer.close()


def _take(message: Message, found: Log, left: set[int]) -> None:
    partition: Any = message.partition()
    error = message.error()
    if error is not None:
        assert error.code() == KafkaError._PARTITION_EOF, error
        left.discard(partition)
        return
    record = Record(message.key(), message.value(), message.headers(), message.timestamp())
    found[partition].append(record)


def kafka(broker: Any) -> dict[str, str]:
    """Settings of a file that serves all clients."""
    return {f"kafka.{name}": "10000" for name in ("fetch.max.bytes", "group.id", "request.timeout.ms")} | {
        "kafka.bootstrap.servers": broker.bootstrap,
        "kafka.isolation.level": "read_committed",
    }


class Made(NamedTuple):
    """A topic that is archived in `folder`."""

    spark: SparkSession
    broker: Any
    topic: str
    folder: Path

    def restore(self, prefix: str, **wish: Any) -> Log:
        """Restore the topic; returns the records of the target."""
        files = Files(self.spark, str(self.folder))
        restore.run(self.spark, files, kafka(self.broker), RestorePlan((self.topic,), prefix, **wish))
        await_stable(self.broker, f"{prefix}{self.topic}")
        return read(self.broker, f"{prefix}{self.topic}")


def make(
    spark: SparkSession, broker: Any, folder: Path, count: int = 60, formats: Formats = FORMATS, partitions: int = 2
) -> Made:
    topic = create_topic(broker, partitions=partitions)
    produce(broker, topic, range(count), partitions)
    archive(spark, folder, Job(source(broker, topic), Columns(formats)))
    return Made(spark, broker, topic, folder)


@pytest.fixture(scope="module")
def made(spark: SparkSession, broker: Any, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """60 records in three partitions; most keys are in several of them."""
    return make(spark, broker, tmp_path_factory.mktemp("archive") / "with a blank", partitions=3)


@pytest.mark.live
def test_restored_records_equal_the_archived_ones(made: Made) -> None:
    """In one step and in many; a second restore adds records only with append."""
    log = read(made.broker, made.topic)
    assert sum(map(len, log.values())) == 60
    assert made.restore("one-") == log
    assert made.restore("many-", step=16) == log
    assert made.restore("many-", step=16) == log
    twice = made.restore("many-", step=16, append=True, id="again")
    assert twice == {index: records * 2 for index, records in log.items()}


@pytest.mark.live
def test_records_are_restored_into_a_topic_with_more_partitions(
    spark: SparkSession, broker: Any, tmp_path: Path
) -> None:
    made = make(spark, broker, tmp_path, 20, Formats())
    topics.create({"bootstrap.servers": broker.bootstrap}, {f"wide-{made.topic}": 3}, {})
    assert made.restore("wide-") == {**read(broker, made.topic), 2: []}


@pytest.mark.live
def test_by_key_keeps_the_order_of_each_key(made: Made) -> None:
    """With fewer partitions than the archived topic, but several: each key is in one of them."""
    wanted = by_level(read(made.broker, made.topic))
    topics.create({"bootstrap.servers": made.broker.bootstrap}, {f"keys-{made.topic}": 2}, {})
    found = made.restore("keys-", by_key=True)
    assert all(found.values())
    for key in {record.key for record in wanted} - {None, b""}:  # a producer may write these to any partition
        [records] = [rows for part in found.values() if (rows := [one for one in part if one.key == key])]
        assert records == [one for one in wanted if one.key == key]
    assert sorted(found[0] + found[1], key=repr) == sorted(wanted, key=repr)


def by_level(log: Log) -> list[Record]:
    """The order of a restore by key: by the latest time in the partition so far, the partition and the offset."""
    rows = []
    for index, records in log.items():
        latest = accumulate((record.timestamp[1] for record in records), max)
        rows += [(level, index, at) for at, level in enumerate(latest)]
    return [log[index][at] for _, index, at in sorted(rows)]


@pytest.mark.live
@pytest.mark.long
def test_by_key_orders_keys_that_changed_partitions_by_timestamp(
    spark: SparkSession, broker: Any, tmp_path: Path
) -> None:
    """One key moved to a partition that comes first in the archive."""
    topic = create_topic(broker, partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(40):
        moved = number % 4 == 0
        key, partition = (b"moved", int(number < 20)) if moved else (b"stayed", 0)
        producer.produce(topic, b"%d" % number, key, partition, timestamp=NOW - 100_000 + number)
    assert not producer.flush(WAIT)
    archive(spark, tmp_path, Job(source(broker, topic)))
    made = Made(spark, broker, topic, tmp_path)
    topics.create({"bootstrap.servers": broker.bootstrap}, {f"merged-{topic}": 1}, {})
    [found] = made.restore("merged-", by_key=True, step=8).values()
    values = [int(record.value or b"") for record in found]
    assert sorted(values) == list(range(40))
    assert [number for number in values if number % 4 == 0] == list(range(0, 40, 4))
    assert [number for number in values if number % 4] == [number for number in range(40) if number % 4]


@pytest.mark.live
def test_created_target_accepts_large_and_future_records(
    spark: SparkSession, fresh_broker: Callable[..., Any], tmp_path: Path
) -> None:
    """More than one MiB, and of next year; the created topic is compacted, as the archived one."""
    broker = fresh_broker(log_message_timestamp_after_max_ms=3_600_000)  # the default of Kafka 4
    kept = {"cleanup.policy": "compact", "max.message.bytes": "5000000", "segment.ms": "77777777"}
    topic = unique("t")
    ever = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    topics.create({"bootstrap.servers": broker.bootstrap}, {topic: 1}, {**kept, **ever, "retention.ms": "99"})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 5_000_000})
    year = 365 * 24 * 3_600_000
    for number in range(3):
        producer.produce(topic, bytes(number * 2_000_000), b"%d" % number, 0, timestamp=NOW + number * year)
    assert not producer.flush(WAIT)
    archive(spark, tmp_path, Job(source(broker, topic)))
    made = Made(spark, broker, topic, tmp_path)
    assert made.restore("large-") == read(broker, topic)
    found = topics.configs({"bootstrap.servers": broker.bootstrap}, [f"large-{topic}"])[f"large-{topic}"]
    assert found.items() >= {**kept, **ever, "retention.ms": "-1"}.items()


@pytest.mark.live
@pytest.mark.long
def test_record_that_fits_only_compressed_is_restored_with_compression(
    spark: SparkSession, broker: Any, tmp_path: Path
) -> None:
    topic = create_topic(broker, max_message_bytes=2000)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "zstd"})
    producer.produce(topic, bytes(50_000), b"key", 0, timestamp=NOW)
    assert not producer.flush(WAIT)
    archive(spark, tmp_path, Job(source(broker, topic)))
    made = Made(spark, broker, topic, tmp_path)
    with pytest.raises(Exception, match="MSG_SIZE_TOO_LARGE"):
        made.restore("plain-")
    files, plan = Files(spark, str(tmp_path)), RestorePlan((topic,), "packed-")
    restore.run(spark, files, kafka(broker) | {"kafka.compression.type": "zstd"}, plan)
    assert read(broker, f"packed-{topic}") == read(broker, topic)


@pytest.mark.live
def test_restore_is_limited_by_since_and_until(made: Made) -> None:
    since, until = NOW - 6_000_000, NOW - 2_000_000
    log = read(made.broker, made.topic)
    expected = {
        index: [record for record in records if since <= record.timestamp[1] < until] for index, records in log.items()
    }
    assert 0 < len(expected[0]) < len(log[0])
    assert made.restore("some-", since=since, until=until) == expected


@pytest.mark.live
def test_invalid_restores_are_refused(made: Made, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=f"^{made.topic} has records: --append appends to them, --prefix"):
        made.restore("")
    with pytest.raises(PipelineError, match=f"^the archive has no topic other; it has {made.topic}$"):
        made._replace(topic="other").restore("x-")
    topics.create({"bootstrap.servers": made.broker.bootstrap}, {f"narrow-{made.topic}": 1}, {})
    with pytest.raises(PipelineError, match=f"narrow-{made.topic} has 1 partitions, the archive 3: .*--by-key"):
        made.restore("narrow-")
    with pytest.raises(PipelineError, match="is not an archive"):
        made._replace(folder=tmp_path).restore("x-")


@pytest.mark.live
def test_damaged_archive_is_refused_before_any_write(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    made = make(spark, broker, tmp_path, 10, Formats())
    next(tmp_path.glob("topic=*/**/*.parquet")).unlink()
    with pytest.raises(PipelineError, match=f"the archive .* is damaged: topic={made.topic}/.* is missing"):
        made.restore("never-")
    assert read(broker, f"never-{made.topic}") == {0: [], 1: []}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--since", "yesterday"], "--since must be a time such as 2026-11-23T01:00 .UTC., not 'yesterday'"),
        (
            ["--since", "2026-11-23T02:00", "--until", "2026-11-23T03:00+01:00"],
            "--since 2026-11-23T02:00 is not before",
        ),
        (["--topics", ""], "must be topic names, separated by commas; there is none in ''"),
        (["--step", "0"], "--step must be a whole number above 0, not '0'"),
        (["--property", "akcs=all"], "unknown producer setting kafka.akcs"),
        (["--property", "acks=some"], r"kafka\.\*: .*acks"),
        (["--property", "transactional.id=mine"], "odradek.transactional=true gives each task its own"),
        (["--property", "default.api.timeout.ms=300", "--property", "group.id=x"], "127.0.0.1:1"),
    ],
)
def test_invalid_arguments_are_refused_before_spark_starts(words: list[str], said: str) -> None:
    done = CliRunner().invoke(restore.command, ["--from", "/a", "--bootstrap-server", "127.0.0.1:1", *words])
    assert isinstance(done.exception, PipelineError | OptionError)
    with pytest.raises(PipelineError, match=said):
        raise done.exception


# -- kills


@contextmanager
def running(made: Made, prefix: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command in its own process group, which is killed at the end."""
    command = [sys.executable, "-m", "odradek.pipeline", "restore", "--from", f"file:{made.folder}", "--prefix", prefix]
    command += ["--topics", made.topic, "--bootstrap-server", made.broker.bootstrap, "--master", "local[2]", *words]
    quiet = ["--conf", "spark.ui.enabled=false", "--conf", "spark.driver.memory=512m"]
    process = subprocess.Popen([*command, *quiet], cwd=made.folder, start_new_session=True, preexec_fn=die_with_parent)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def committed(broker: Any, topic: str) -> bool:
    """Whether the topic has a committed record."""
    with Brokers({"bootstrap.servers": broker.bootstrap}) as brokers:
        return brokers.offsets([(topic, 0)], LATEST, committed=True)[topic, 0] > 0


@pytest.mark.long
@pytest.mark.live
def test_killed_restore_continues_with_its_plan(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """Before the second start, the archive gets more records and other files."""
    made = make(spark, broker, tmp_path / "archive", 120)
    log = read(broker, made.topic)
    target = f"killed-{made.topic}"
    topics.create({"bootstrap.servers": broker.bootstrap}, {target: 2}, {})
    with running(made, "killed-", "--step", "10"):
        wait_until(partial(committed, broker, target), 200, "some records are restored")
    assert len(read(broker, target)[0]) < len(log[0])
    produce(broker, made.topic, range(120, 130))
    archive(spark, made.folder, Job(source(broker, made.topic), Columns(FORMATS)))
    assert made.restore("killed-", step=10) == log
