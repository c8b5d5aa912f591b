"""Each record is archived once, despite kills."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from odradek.pipeline.jobs.archive.job import Job

from ...clients.admin import create_topic
from ...harness.process import die_with_parent
from ..topics import send
from . import dying_archive
from .archives import archive, assert_whole, ids, source, visible

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live

Fate = tuple[str, str, int]
HOURS = range(-7200, 0, 61)  # two hours of records, each a minute apart
FATES = [
    ("write", "_spark_metadata/1", 1),  # the manifest has the batch, Spark's view and checkpoint do not
    ("rename", "group=1", 1),  # compaction; one new file is in place, so its records exist twice
]


@pytest.mark.long  # test_every_job has one death of an archive job
def test_killed_drivers_and_tasks_lose_no_record(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """Meanwhile, a reader sees all of a batch or nothing."""
    topics = [create_topic(broker, partitions=2) for _ in FATES]
    sent = {topic: ids(send(broker, topic, HOURS, 2)) for topic in topics}
    dying = [killed(broker, topic, tmp_path / topic, fate) for topic, fate in zip(topics, FATES, strict=True)]
    try:
        while any(process.poll() is None for process in dying):
            for topic in topics:
                assert visible(spark, tmp_path / topic, topic) in ([], sent[topic])
            time.sleep(0.5)
    finally:
        for process in dying:
            process.kill()
    for topic, process in zip(topics, dying, strict=True):
        assert process.wait() == -signal.SIGKILL
        expected = sorted(sent[topic] + ids(send(broker, topic, range(10), 2)))
        archive(spark, tmp_path / topic, Job(source(broker, topic)))
        assert_whole(spark, tmp_path / topic, topic, expected)


def killed(
    broker: Any, topic: str, folder: Path | str, fate: tuple[str, str, int], *more: str
) -> subprocess.Popen[bytes]:
    words = [broker.bootstrap, topic, str(folder), *map(str, fate), *more]
    command = [sys.executable, "-m", dying_archive.__name__, *words]
    return subprocess.Popen(command, preexec_fn=die_with_parent)
