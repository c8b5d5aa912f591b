"""Stages against a broker: repeated batches, large records, readers of dead letters."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.pipeline.jobs.stages.analysis.analysis import analysed
from odradek.pipeline.jobs.stages.running.streams import Streams

from ...clients.admin import create_topic, unique
from ..written import committed
from . import orders
from .stages import job_settings, pipeline, stage
from .test_stages import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live

LARGEST = 1_048_588 - 100  # bytes: the default max.message.bytes less the header of the batch


def test_deleted_offsets_of_a_repeated_first_batch_are_named(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """The driver died after the writes. The start is known, so deleted offsets are named, or skipped on request."""
    source, to = create_topic(broker, partitions=2), create_topic(broker)
    values = [b'{"id":%d}' % at for at in range(20)]

    def once(**more: Any) -> None:
        table = stage(from_=source, to=to, dead_letters=to + "-dead", json="id BIGINT", **more)
        kafka = {"bootstrap.servers": broker.bootstrap}
        file = pipeline(table, kafka=kafka, checkpoint=str(tmp_path))
        known, mistakes = analysed(spark, file)
        assert not mistakes
        Streams(spark, file, known).start(file.stages[0], availableNow=True).awaitTermination()

    with job_settings(spark):
        orders.send(broker.bootstrap, source, values, values)  # keys, for both partitions
        once()
        shutil.rmtree(tmp_path / "one" / "commits")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        [done] = admin.delete_records([TopicPartition(source, 1, 3)]).values()
        done.result(30)
        with pytest.raises(Exception, match=f"{source}-1: offsets 0 to 2 are gone; the log starts at 3"):
            once()
        once(fail_on_data_loss=False)
    assert sorted(record.value or b"" for record in committed(broker, to)) == sorted(values)


TOML = """
checkpoint = "file://{folder}/checkpoint"
partitions = 1
kafka = {{ bootstrap.servers = "{bootstrap}" }}

[[stage]]
name = "again"
from = "{stem}-dead"
to = "{stem}-saved"
dead_letters = "{stem}-worse"
parse = {{ format = "string" }}
normalise = {{ size = "length(value)" }}
drop = ["value"]

[[stage]]
name = "cleaned"
from = "{source}"
to = "{stem}-cleaned"
dead_letters = "{stem}-dead"
parse = {{ format = "json", schema = "id BIGINT" }}
timestamp = "timestamp_millis(id)"
"""


def test_dead_letters_of_any_size_are_written_and_read(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """Their headers come on top of a value that fills the topic's limit; the job creates their topic accordingly."""
    source, stem = create_topic(broker), unique("large")
    file = tmp_path / "stages.toml"
    file.write_text(TOML.format(folder=tmp_path, bootstrap=broker.bootstrap, source=source, stem=stem))
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 2 << 20})
    good = b'{"id":%d}' % (time.time() * 1000)
    for value in (good, b"x" * LARGEST, b'{"id":-5}'):
        producer.produce(source, value)
        assert not producer.flush(30)  # each in its own batch
    with job_settings(spark):
        assert run(file, "--once").exit_code == 0
    found = {name: [each.value for each in committed(broker, f"{stem}-{name}")] for name in NAMES}
    assert found["cleaned"] == [good]
    assert [len(value or b"") for value in found["dead"]] == [LARGEST, 9]
    assert found["saved"] == [b'{"size":%d}' % LARGEST, b'{"size":9}']


NAMES = ("cleaned", "dead", "saved")


def test_unwritable_checkpoint_is_reported_before_spark_starts(tmp_path: Path) -> None:
    file = tmp_path / "stages.toml"
    file.write_text(TOML.format(folder=file, bootstrap="localhost:1", source="raw", stem="x"))
    told = str(run(file).exception)
    assert told == f"checkpoint: cannot write {file}/checkpoint: {file} is not a folder that this user may write to"
