"""A log with offsets of every kind is archived and restored, and the process of each job dies once.

Other clients' account of each offset of the topic is compared with the result; none of the pipeline's code is used.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from odradek.pipeline.jobs import topics
from odradek.pipeline.jobs.archive.job import Job
from odradek.pipeline.jobs.audit.__main__ import command

from ...harness.process import wait_until
from ..accounting import ABORTED, CONTROL, RECORD, Account, Seen, account, consumed
from ..local import Local
from ..reads import seen
from ..test_accounting import written
from .archives import archive, live, source
from .test_archive_faults import killed
from .test_archive_skips import skipped
from .test_restore import Made, committed, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live

SECONDS = 200
WINDOW = GRACE = 1000  # ms
PERIOD = ["--window", "1s", "--grace", "1s"]
FATES = [
    ("write", "_spark_metadata/1", 1),  # the manifest has the batch, Spark's view and checkpoint do not
    ("rename", "group=", 1),  # two small files are compacted, and not yet replaced
]


@pytest.mark.long  # `faults.test_every_job` does the same in one session of Spark
@pytest.mark.timeout(900)  # eight jobs, each with a Spark of its own
def test_archived_and_restored_records_equal_the_log_despite_kills(
    spark: SparkSession, broker: Any, tmp_path: Path
) -> None:
    topic, rnd = Local(broker), random.Random(11)
    written(rnd, topic, 40, keyed=True)
    for fate in FATES:
        process = killed(broker, topic.name, tmp_path, fate)
        assert process.wait(SECONDS) == -signal.SIGKILL
        written(rnd, topic, 15, keyed=True)
    wanted = {**source(broker, topic.name), "kafka.isolation.level": "read_committed"}
    archive(spark, tmp_path, Job(wanted))
    known = account(broker, topic.name)
    assert {ABORTED, CONTROL, RECORD} <= {*known.fates}
    _archived(spark, tmp_path, topic.name, known)
    assert_audited(broker, topic.name, tmp_path, known)
    _restored(Made(spark, broker, topic.name, tmp_path), known)


def _archived(spark: SparkSession, folder: Path, topic: str, known: Account) -> None:
    """Each committed record is there once, and the manifest counts the other offsets."""
    state, fates = live(spark, folder), Counter(known.fates)
    tables = [pq.ParquetFile(folder / file.path).read() for file in state.of(topic)]
    rows = [row for table in tables for row in seen(table.to_batches())]
    assert sorted(rows) == known.committed
    assert skipped(state, topic) == {fate: fates[fate] for fate in (CONTROL, ABORTED)}


def assert_audited(broker: Any, topic: str, folder: Path, known: Account) -> None:
    """Log and archive have the same record counts, by windows of a second, after the last window has ended."""
    over = max(one.timestamp for one in known.committed) + 2 * WINDOW + GRACE
    wait_until(lambda: time.time() * 1000 > over, SECONDS, "the last window has ended")
    words = ["--bootstrap-server", broker.bootstrap, "--archive", folder.as_uri(), "--topics", topic]
    result = CliRunner().invoke(command, [*words, "--all", "--last", "1d", *PERIOD])
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 0, result.output
    count = len(known.committed)
    assert sum(row["counts"]["log"] for row in rows[:-1]) == count
    assert sum(row["counts"]["archive"] for row in rows[:-1]) == count
    assert (rows[-1]["summary"]["records"], rows[-1]["summary"]["missing"]) == (count, 0)


def _restored(made: Made, known: Account) -> None:
    """Each committed record once, in order, though the job is killed after it has restored some."""
    target = f"back-{made.topic}"
    topics.create({"bootstrap.servers": made.broker.bootstrap}, {target: 1}, {})
    with running(made, "back-", "--step", "10"):
        wait_until(partial(committed, made.broker, target), SECONDS, "some records are restored")
    half = len(consumed(made.broker, target, "read_committed")[0])
    assert half < len(known.committed), "the job died too late"
    made.restore("back-", step=10)
    assert plain(consumed(made.broker, target, "read_committed")[0]) == plain(known.committed)


def plain(records: list[Seen]) -> list[tuple[Any, ...]]:
    """Records without their offsets, which differ after the restore."""
    return [one[1:] for one in records]
