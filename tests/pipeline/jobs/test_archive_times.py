"""Timestamps out of range: such a record is archived without an hour and restored; no job fails."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from odradek.pipeline.jobs.archive.formats.formats import Format, Formats
from odradek.pipeline.jobs.archive.job import Job
from odradek.pipeline.jobs.archive.sink.columns import Columns
from odradek.pipeline.jobs.archive.verify.verify import verify
from odradek.pipeline.jobs.files import Files
from odradek.pipeline.jobs.restore import restore
from odradek.pipeline.jobs.restore.restoring import RestorePlan
from odradek.pipeline.types import LAST_MS

from ...clients.admin import create_topic
from ...clients.raw.batches import batch
from ...clients.raw.calls import produce
from ...clients.transactions import await_stable
from ..topics import NOW
from .archives import archive, assert_whole, source
from .test_restore import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live

NANOS = 1_800_000_000_000_000_000  # nanoseconds since 1970, sent as milliseconds
TIMES = [NANOS, -5, NOW, -1, 0, -(1 << 63)]
NONE = "date=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__"


@pytest.mark.parametrize("formats", [Formats(), Formats(values={"": Format("string")})], ids=["direct", "through Java"])
def test_timestamps_out_of_range_are_archived_and_restored(
    spark: SparkSession, broker: Any, tmp_path: Path, formats: Formats
) -> None:
    topic = create_topic(broker)
    with broker.wire() as wire:
        for at, time in enumerate(TIMES):
            assert produce(wire, topic, batch([b"%d" % at], timestamp=time)).error_code == 0
    archive(spark, tmp_path, Job(source(broker, topic), Columns(formats)))
    assert_whole(spark, tmp_path, topic, [(0, at) for at in range(len(TIMES))])
    rows = spark.read.parquet(f"{tmp_path}/topic={topic}").where("hour IS NULL")
    found = rows.selectExpr("offset", "unix_micros(timestamp) / 1000").orderBy("offset").collect()
    assert [tuple(row) for row in found] == [(0, LAST_MS), (3, -1), (5, -LAST_MS)]
    files = Files(spark, str(tmp_path))
    kafka = {"kafka.bootstrap.servers": broker.bootstrap}
    assert verify(spark, files, kafka, [topic]).differences == []
    restore.run(spark, files, kafka, RestorePlan((topic,), "again-"))
    await_stable(broker, f"again-{topic}")
    back = read(broker, f"again-{topic}")[0]
    assert [record.value for record in back] == [b"%d" % at for at in range(len(TIMES))]
    assert [record.timestamp[1] for record in back] == [LAST_MS, 1, NOW, -1, 1, 1]
