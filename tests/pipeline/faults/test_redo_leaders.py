"""A batch is repeated with other leaders: of its source, its target, its transactions and its notes.

A batch of a stream, a named batch, or a run of the archive.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from odradek.pipeline.jobs.archive.sink.columns import Columns
from odradek.pipeline.writing.transactions import PREFIX

from ...cluster.clients import coordinator, make_topic
from ...harness.cluster import Cluster
from ..accounting import RECORD
from ..jobs.archives import archive
from . import stream
from .checker import assert_accounted
from .redone import ROWS, deaths, read, redone, written
from .test_brokers import INTERNAL
from .test_redo_archive import EFFECTS as STEPS
from .test_redo_archive import Ledger, begun, halted
from .test_redo_batches import Batches, conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1"), pytest.mark.timeout(600)]

GROUP, TRANSACTION = 0, 1  # the coordinator types of FindCoordinator
AFAR = {"odradek.local": "off"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), transaction_state_log_min_isr=2, **INTERNAL) as running:
        yield running


class LeaderKiller:
    """Kills the leader for another role each time; the broker that was killed before is restarted first.

    A context manager: at its end all brokers run. `unit` returns the transactional id of the rows.
    """

    def __init__(self, cluster: Cluster, source: str, target: str, unit: Callable[[], str]) -> None:
        self._cluster, self._source, self._target, self._unit = cluster, source, target, unit
        self.dead: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def __call__(self, effect: str) -> None:
        self.end()
        self.dead = {
            "begun": lambda: self._cluster.leader(self._source, 1),
            "sent": lambda: coordinator(self._cluster, self._unit(), TRANSACTION),
            "half": lambda: coordinator(self._cluster, self._unit(), GROUP),
            "committed": lambda: coordinator(self._cluster, self._unit(), GROUP),
            "told": lambda: self._cluster.leader(self._target),
        }[effect]()
        self._cluster.kill(self.dead)
        for topic, partition in self._partitions:
            assert self._cluster.wait_leader(topic, partition, other_than=self.dead) != self.dead

    def end(self) -> None:
        """All brokers run again."""
        if self.dead is not None:
            self._cluster.restart(self.dead)
            for topic, partition in self._partitions:
                self._cluster.wait_isr(topic, partition, 3)
        self.dead = None

    @property
    def _partitions(self) -> list[tuple[str, int]]:
        return [(topic, partition) for topic in {self._source, self._target} for partition in range(2)]


@pytest.mark.long
def test_stream_batch_repeated_with_new_leaders_is_written_once(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    source, target = make_topic(cluster, 2), make_topic(cluster, 2)
    sent = stream.feed(cluster, source, range(ROWS), 2)

    def unit() -> str:
        """The transactional id of the query's second task."""
        return f"{PREFIX}{json.loads((tmp_path / 'checkpoint/metadata').read_text())['id']}-1"

    def start() -> StreamingQuery:
        return written(read(spark, cluster, source, **AFAR), cluster, target, tmp_path)

    with LeaderKiller(cluster, source, target, unit) as killer:
        redone(spark, tmp_path, start, killer)
    assert_accounted(cluster, sent, target)


@pytest.mark.parametrize(
    "effects", [("sent", "half"), pytest.param(("begun", "committed", "told"), marks=pytest.mark.long)], ids="-".join
)
def test_named_batch_repeated_with_new_leaders_is_written_once(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, effects: tuple[str, ...]
) -> None:
    """A new coordinator reads the digest of the written rows from the log of its partition."""
    source, target = make_topic(cluster, 2), make_topic(cluster, 2)
    batches = Batches(spark, cluster, source, target, **AFAR)
    with LeaderKiller(cluster, source, target, partial(batches.unit, 0)) as killer, deaths(spark, tmp_path):
        for effect in effects:
            batches.die(tmp_path, effect)
            killer(effect)
            with conf(spark):
                batches.write()
    assert_accounted(cluster, batches.sent, target)


@pytest.mark.parametrize("effect", ["tasks", pytest.param("intent", marks=pytest.mark.long)])
def test_archive_run_repeated_with_a_new_leader_loses_no_record(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, effect: str
) -> None:
    """Before the intent, tasks read the records again; after it, only later records are read."""
    topic = make_topic(cluster, 2)
    stream.feed(cluster, topic, range(20), 2)
    wanted = begun(spark, cluster, topic, tmp_path, Columns(), **AFAR)
    stream.feed(cluster, topic, range(20, 60), 2)
    halted(spark, tmp_path, wanted, STEPS[effect])
    with LeaderKiller(cluster, topic, topic, str) as killer:
        killer("begun")
        stream.feed(cluster, topic, range(60, 80), 2)
        archive(spark, tmp_path, wanted)
    ledger = Ledger(cluster, topic)
    ledger.update()
    assert ledger.check(spark, tmp_path) == {RECORD: 80}
