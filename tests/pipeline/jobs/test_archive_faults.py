"""Each record is archived once, whoever dies."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from odradek.pipeline.jobs.archive.job import Job

from ...clients.admin import create_topic
from ...harness.process import die_with_parent
from ..topics import send
from . import dying_archive
from .archives import archive, assert_whole, source, visible

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOURS = range(-7200, 0, 61)  # two hours or three of records, each a minute apart
BATCH = ("rename", "_odradek/staging", 3)  # some files are in place
COMMITTED = ("write", "_spark_metadata/1", 1)  # it is in the manifest, and Spark does not know yet
COMPACTING = ("rename", "group=1", 1)
COMPACTED = ("delete", ".parquet", 2)  # of the files that were replaced


@pytest.mark.parametrize("fates", [(BATCH, COMPACTING), (COMMITTED, COMPACTED)], ids=["before", "after"])
def test_the_driver_is_killed(
    spark: SparkSession, broker: Any, tmp_path: Path, fates: list[tuple[str, str, int]]
) -> None:
    """Tasks are killed as well. Meanwhile a reader sees a batch or does not; it never sees a part."""
    topics = [create_topic(broker, partitions=2) for _ in fates]
    sent = {topic: send(broker, topic, HOURS, 2) for topic in topics}
    expected = {topic: [(one.partition, one.offset) for one in sent[topic]] for topic in topics}
    dying = [killed(broker, topic, tmp_path / topic, fate) for topic, fate in zip(topics, fates, strict=True)]
    while any(process.poll() is None for process in dying):
        for topic in topics:
            assert visible(spark, tmp_path / topic, topic) in ([], expected[topic])
    for topic, process in zip(topics, dying, strict=True):
        assert process.wait() == -signal.SIGKILL
        sent_later = send(broker, topic, range(10), 2)
        ids = sorted([*expected[topic], *((one.partition, one.offset) for one in sent_later)])
        archive(spark, tmp_path / topic, Job(source(broker, topic)))
        assert_whole(spark, tmp_path / topic, topic, ids)


def killed(broker: Any, topic: str, folder: Path, fate: tuple[str, str, int]) -> subprocess.Popen[bytes]:
    words = [broker.bootstrap, topic, str(folder), *map(str, fate)]
    command = [sys.executable, "-m", dying_archive.__name__, *words]
    return subprocess.Popen(command, preexec_fn=die_with_parent)
