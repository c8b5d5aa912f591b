"""An archive on HDFS: a run repairs it after its driver was killed; then it is verified and restored."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from odradek.pipeline.jobs.archive.job import Job
from odradek.pipeline.jobs.archive.verify.verify import verify
from odradek.pipeline.jobs.files import Files
from odradek.pipeline.jobs.restore import restore
from odradek.pipeline.jobs.restore.restoring import RestorePlan

from ..clients.admin import create_topic
from ..clients.transactions import await_stable
from ..harness.hdfs import Hdfs
from .jobs.archives import archive, ids, seen, source
from .jobs.test_archive_faults import FATES, HOURS, killed
from .jobs.test_restore import read
from .topics import send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.needs("hdfs"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with Hdfs(tmp_path_factory.mktemp("hdfs")) as running:
        yield running


def test_archive_on_hdfs_is_repaired_and_restored_after_a_kill(spark: SparkSession, broker: Any, hdfs: Hdfs) -> None:
    """The kill is during compaction of small files. Each record is there once, no file is outside the manifest."""
    topic = create_topic(broker, partitions=2)
    uri, sent = f"{hdfs.uri}/{topic}", send(broker, topic, HOURS, 2)
    assert killed(broker, topic, uri, FATES[-1]).wait(120) == -signal.SIGKILL
    sent += send(broker, topic, range(10), 2)
    state = archive(spark, uri, Job(source(broker, topic)))
    assert seen(spark, uri, topic) == ids(sent)
    files, kafka = Files(spark, uri), {"kafka.bootstrap.servers": broker.bootstrap}
    stored = {entry.path for entry in files.list(f"topic={topic}") if entry.path.endswith(".parquet")}
    assert stored == set(state.files)
    report = verify(spark, files, kafka, [topic])
    assert (report.differences, report.records) == ([], len(sent))
    restore.run(spark, files, kafka, RestorePlan((topic,), "restored-"))
    await_stable(broker, f"restored-{topic}")
    assert read(broker, f"restored-{topic}") == read(broker, topic)
