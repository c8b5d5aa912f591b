"""A run of the archive ends after one of its effects; before the next run its input and settings change.

Other clients determine the fate of each offset before the log loses it; the archive must have each committed record
once, and its manifest must count the other offsets.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from odradek.pipeline.jobs.archive.job import Job
from odradek.pipeline.jobs.archive.sink.columns import Columns

from ..accounting import ABORTED, COMPACTED, CONTROL, DELETED, RECORD, Seen, account
from ..jobs.archives import archive, live, source
from ..jobs.stores import Halting, after_death
from ..local import Local
from ..reads import seen
from ..test_accounting import written
from ..test_segments import CLEANER, compacted, configure
from ..test_source import delete_before
from . import stream
from .checker import partitions
from .test_changes import add_partitions
from .test_redo_batches import FEWER, MORE, OTHERS, conf

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

Step = tuple[str, str, int]
EFFECTS: dict[str, Step] = {  # the change of a file before which the run ends
    "tasks": ("create", "pending.json", 1),  # have committed their files
    "intent": ("rename", "topic=", 1),
    "a rename": ("rename", "topic=", 2),
    "renames": ("create", "commits/", 1),
    "manifest": ("write", "_spark_metadata", 1),
    "view": ("take away", "pending.json", 1),  # the state that Spark's readers see
}
SOME = ["tasks", "intent", "renames"]
CHANGES = [*OTHERS, FEWER, MORE]
BOTH = [Columns(), Columns(event_time="timestamp")]  # the first is written by the reading tasks, the second by Spark


class Ledger:
    """The fate of each offset of a topic and its committed records, including those that the log has lost since."""

    def __init__(self, broker: Any, topic: str) -> None:
        self._broker, self._topic = broker, topic
        self.fates: dict[tuple[int, int], str] = {}
        self.records: dict[tuple[int, int], Seen] = {}

    def update(self) -> None:
        for partition in range(partitions(self._broker, self._topic)):
            known = account(self._broker, self._topic, partition)
            news = {(partition, at): fate for at, fate in enumerate(known.fates) if fate != DELETED}
            self.fates |= news
            self.records |= {(partition, one.offset): one for one in known.committed}

    def check(self, spark: SparkSession, folder: Path) -> Counter[str]:
        """AssertionError if the archive differs; returns the number of offsets of each fate."""
        state = live(spark, folder)
        rows: list[tuple[int, Seen]] = []
        for file in state.of(self._topic):
            table = pq.ParquetFile(folder / file.path).read()
            rows += zip(table["partition"].to_pylist(), seen(table.to_batches()), strict=True)
        assert sorted(rows) == sorted((partition, one) for (partition, _), one in self.records.items())
        fates = Counter(self.fates.values())
        skipped = sum((Counter(found) for found in state.skipped.values()), Counter[str]())
        assert skipped == {fate: fates[fate] for fate in (CONTROL, ABORTED, COMPACTED) if fates[fate]}
        return fates


def halted(spark: SparkSession, folder: Path, wanted: Job, step: Step) -> None:
    """A run that ends before this step."""
    files = Halting(spark, str(folder), *step)
    with pytest.raises(Exception, match="the job has ended"):
        archive(spark, folder, wanted, files)
    assert files.halted
    after_death(folder)


def begun(spark: SparkSession, broker: Any, topic: str, folder: Path, columns: Columns, **options: str) -> Job:
    """The job, after a first run that creates the archive."""
    given = {**source(broker, topic), "kafka.isolation.level": "read_committed", **options}
    wanted = Job(given, columns, compact=False)
    archive(spark, folder, wanted)
    return wanted


@pytest.mark.parametrize(
    ("at", "effects"),
    [
        pytest.param(0, SOME, id="some, by tasks"),
        pytest.param(0, [*EFFECTS], id="by tasks", marks=pytest.mark.long),
        pytest.param(1, [*EFFECTS], id="by Spark", marks=pytest.mark.long),
    ],
)
def test_archive_run_ended_after_each_effect_loses_no_record(
    spark: SparkSession, broker: Any, tmp_path: Path, at: int, effects: list[str]
) -> None:
    """The log loses the records of the intent, and everything else may change: Spark's settings, tasks, partitions."""
    topic, rnd = Local(broker), random.Random(at)
    written(rnd, topic, 5, keyed=False)
    dying, again = (begun(spark, broker, topic.name, tmp_path, columns) for columns in (BOTH[at], BOTH[1 - at]))
    again.source["minPartitions"] = "7"
    ledger = Ledger(broker, topic.name)
    for number, effect in enumerate(effects):
        written(rnd, topic, 12, keyed=False)
        stream.feed(broker, topic.name, range(10), 1 + number)
        ledger.update()
        with conf(spark):
            halted(spark, tmp_path, dying, EFFECTS[effect])
        if effect != "tasks":
            delete_before(broker, topic.name, topic.end())
        add_partitions(broker, {topic.name: 2 + number})
        stream.feed(broker, topic.name, range(20), 2 + number)
        ledger.update()
        with conf(spark, **CHANGES[number % len(CHANGES)]):
            archive(spark, tmp_path, again)
    fates = ledger.check(spark, tmp_path)
    assert fates[RECORD] and fates[ABORTED] and fates[CONTROL]


def test_log_compacted_after_the_intent_loses_no_record(
    spark: SparkSession, fresh_broker: Callable[..., Any], tmp_path: Path
) -> None:
    """The archive keeps the records of the intent, and afterwards has what compaction has left."""
    topic, rnd = Local(fresh_broker(**CLEANER), segment_bytes=12_000), random.Random(3)
    written(rnd, topic, 5, keyed=True)
    wanted = begun(spark, topic.broker, topic.name, tmp_path, Columns())
    ledger = Ledger(topic.broker, topic.name)
    written(rnd, topic, 60, keyed=True)
    ledger.update()
    halted(spark, tmp_path, wanted, EFFECTS["renames"])
    records, fates = dict(ledger.records), dict(ledger.fates)
    configure(topic, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01, "segment.bytes": 12_000})
    written(rnd, topic, 20, keyed=True)
    compacted(topic)
    ledger.update()
    ledger.records |= records
    ledger.fates |= fates
    archive(spark, tmp_path, wanted)
    assert ledger.check(spark, tmp_path)[COMPACTED]
