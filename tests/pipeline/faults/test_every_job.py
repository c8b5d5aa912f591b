"""Each job once, with a fault between two of its effects, in one session of Spark: the pipeline's part of `make test`.

Other clients determine input and output. The other files of this folder test all effects, and what may change after
them; files in `jobs` test drivers in their own processes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from odradek.pipeline.jobs.archive.job import Job
from odradek.pipeline.jobs.archive.sink.columns import Columns
from odradek.pipeline.jobs.stages.analysis.analysis import analysed
from odradek.pipeline.jobs.stages.running.streams import Streams

from ...clients.admin import create_topic
from ...harness.process import wait_until
from ..accounting import ABORTED, CONTROL, RECORD, Account, account, consumed
from ..hidden import Hiding
from ..jobs.archives import archive, source
from ..jobs.stages import job_settings, pipeline, stage
from ..jobs.test_accounted import assert_audited, plain
from ..jobs.test_archive import is_visible, running
from ..jobs.test_restore import Made
from ..jobs.test_silence import nowhere
from ..local import Local
from ..stand_in import FETCH, LOG_DIRS, METADATA, StandIn
from ..test_accounting import written as log_written
from ..written import committed
from . import stream
from .checker import assert_accounted
from .redone import deaths, dies, read, redone, written
from .test_redo_archive import EFFECTS as STEPS
from .test_redo_archive import Ledger, begun, halted
from .test_redo_batches import FEWER, Batches, conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

ROWS = 160
SECONDS = 200


class Broken:
    """Closes the connection instead of sending those responses whose number, from 0 on, is `chosen`."""

    def __init__(self, chosen: Callable[[int], bool]) -> None:
        self._chosen = chosen
        self._count = self.broken = 0

    def __call__(self, _: Any, true: Any) -> Any:
        self._count += 1
        if not self._chosen(self._count - 1):
            return true
        self.broken += 1
        return None


@pytest.mark.smoke
def test_stream_survives_the_death_of_a_task(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """The task dies when its rows are on the broker, in an open transaction."""
    begin, target = create_topic(broker, partitions=2), create_topic(broker, partitions=2)
    sent = stream.feed(broker, begin, range(ROWS), 2)

    def start() -> StreamingQuery:
        return written(read(spark, broker, begin), broker, target, tmp_path)

    redone(spark, tmp_path, start, lambda _: None, ["sent"])
    assert_accounted(broker, sent, target)


def test_named_batch_survives_the_death_of_a_task(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """The task dies after the commit of one of its units; the repetition has other tasks."""
    batches = Batches(spark, broker)
    with deaths(spark, tmp_path):
        batches.die(tmp_path, "half")
        with conf(spark, **FEWER):
            batches.write()
    assert_accounted(broker, batches.sent, batches.target)


@pytest.mark.smoke
def test_stage_survives_a_death_before_the_checkpoint(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """The stage dies when all records and dead letters are written, and the checkpoint does not have the batch."""
    begin, to, dead = (create_topic(broker, partitions=2) for _ in range(3))
    file = pipeline(
        stage(from_=begin, to=to, json="id STRING", key="id"),
        kafka={"bootstrap.servers": broker.bootstrap},
        checkpoint=str(tmp_path / "checkpoint"),
        dead_letters=dead,
    )
    sent = stream.feed(broker, begin, range(ROWS), 2, lambda one: "" if one.endswith("7") else json.dumps({"id": one}))
    with job_settings(spark):
        known, mistakes = analysed(spark, file)
        assert not mistakes
        start = partial(Streams(spark, file, known).start, file.stages[0], availableNow=True)
        redone(spark, tmp_path, start, lambda _: None, ["told"])
    assert_accounted(broker, sent, to, dead)
    assert len(committed(broker, dead)) == ROWS // 10


class Archived(NamedTuple):
    """A topic with offsets of every kind, its archive, and other clients' account of its log."""

    topic: str
    folder: Path
    ledger: Ledger
    known: Account


@pytest.fixture(scope="module")
def archived(spark: SparkSession, broker: Any, tmp_path_factory: pytest.TempPathFactory) -> Archived:
    """Three runs; the second one dies when its files are in place and its manifest does not list them."""
    topic, rnd, folder = Local(broker), random.Random(18), tmp_path_factory.mktemp("archive")
    log_written(rnd, topic, 5, keyed=True)
    wanted = begun(spark, broker, topic.name, folder, Columns())
    log_written(rnd, topic, 15, keyed=True)
    halted(spark, folder, wanted, STEPS["renames"])
    archive(spark, folder, wanted)
    ledger = Ledger(broker, topic.name)
    ledger.update()
    return Archived(topic.name, folder, ledger, account(broker, topic.name))


@pytest.mark.smoke
def test_archive_survives_a_death_before_the_manifest(spark: SparkSession, archived: Archived) -> None:
    fates = archived.ledger.check(spark, archived.folder)
    assert fates[RECORD] and fates[ABORTED] and fates[CONTROL]


@pytest.mark.smoke
def test_audit_survives_broken_connections(spark: SparkSession, broker: Any, archived: Archived) -> None:
    """The connections of its tasks are closed."""
    broken = Broken(range(2).__contains__)
    with StandIn(broker.bootstrap, {FETCH: broken, LOG_DIRS: nowhere}) as stand_in:
        assert_audited(stand_in, archived.topic, archived.folder, archived.known)
    assert broken.broken == 2


@pytest.mark.smoke
def test_restore_survives_a_death_after_its_first_step(
    spark: SparkSession, broker: Any, archived: Archived, tmp_path: Path
) -> None:
    """The restore dies when its first step is written, and Spark does not know it."""
    made = Made(spark, broker, archived.topic, archived.folder)
    with deaths(spark, tmp_path), dies(tmp_path, "told"):
        made.restore("back-", step=60)
    target = f"back-{archived.topic}"
    assert 0 < len(consumed(broker, target, "read_committed")[0]) < len(archived.known.committed)
    made.restore("back-", step=60)
    assert plain(consumed(broker, target, "read_committed")[0]) == plain(archived.known.committed)


def test_continuous_archive_survives_a_death_and_broken_connections(
    spark: SparkSession, broker: Any, tmp_path: Path
) -> None:
    """The first run dies when its manifest has the batch, and readers do not see it. Connections of the next run are
    closed, and some metadata responses lack the topic.
    """
    topic = create_topic(broker, partitions=2)
    stream.feed(broker, topic, range(ROWS // 2), 2)
    broken, hiding = Broken(lambda number: number % 3 == 0), Hiding(topic, lambda number: number % 3 == 1)
    with StandIn(broker.bootstrap, {FETCH: broken, METADATA: hiding, LOG_DIRS: nowhere}) as stand_in:
        given = {**source(stand_in, topic), "failOnDataLoss": "false", "kafka.retry.backoff.ms": "20"}
        wanted = Job(given, continuous=True, trigger_ms=0)
        halted(spark, tmp_path, wanted, STEPS["manifest"])
        with running(spark, tmp_path, wanted):
            stream.feed(broker, topic, range(ROWS // 2, ROWS), 2)
            everything = [(partition, offset) for partition in range(2) for offset in range(ROWS // 2)]
            wait_until(partial(is_visible, spark, tmp_path, topic, everything), SECONDS, "all records are archived")
    assert broken.broken and hiding.hidden
    ledger = Ledger(broker, topic)
    ledger.update()
    assert ledger.check(spark, tmp_path) == {RECORD: ROWS}
