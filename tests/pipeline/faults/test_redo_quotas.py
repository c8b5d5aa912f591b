"""A batch is repeated under new quotas: Apache Kafka throttles its fetch and produce requests.

A batch of a stream, a named batch, or a run of the archive. The stand-in forges no response. It records the throttle
times in the broker's responses (KIP-219).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from odradek.pipeline.jobs.archive.sink.columns import Columns

from ...clients.admin import create_topic, unique
from ...harness.apache import Apache
from ...harness.broker import ExternalBroker
from ..accounting import RECORD
from ..jobs.archives import archive
from ..stand_in import FETCH, PRODUCE, StandIn
from ..test_throttled import set_quota
from . import stream
from .checker import assert_accounted
from .redone import EFFECTS, ROWS, deaths, read, redone, written
from .test_redo_archive import EFFECTS as STEPS
from .test_redo_archive import Ledger, begun, halted
from .test_redo_batches import Batches, conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1"), pytest.mark.timeout(600)]

RATES = {"consumer_byte_rate": 2000, "producer_byte_rate": 500}  # bytes per second, over four seconds


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExternalBroker]:
    running = Apache("3.9.1", tmp_path_factory.mktemp("apache"), quota_window_num=4).start()
    try:
        yield ExternalBroker(running.bootstrap)
    finally:
        running.stop()


class Throttled:
    """A client of a broker through a stand-in, and the throttle milliseconds in the responses of each API."""

    def __init__(self, broker: ExternalBroker, stand_in: StandIn) -> None:
        self._broker, self.stand_in = broker, stand_in
        self._client = unique("throttled")
        self.ms = Counter[int]()
        stand_in.lies = {FETCH: self._seen, PRODUCE: self._seen}

    @property
    def sink(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.stand_in.bootstrap, "kafka.client.id": self._client}

    @property
    def source(self) -> dict[str, str]:
        return {**self.sink, "odradek.local": "off"}

    def limit(self, less: int = 0) -> None:
        """Set the quotas, this many bytes per second below RATES."""
        set_quota(self._broker, self._client, **{name: rate - less for name, rate in RATES.items()})

    def _seen(self, request: Any, true: Any) -> Any:
        self.ms[request.API_KEY] += true.throttle_time_ms
        return true


@pytest.fixture
def throttled(apache: ExternalBroker) -> Iterator[Throttled]:
    with StandIn(apache.bootstrap) as stand_in:
        yield Throttled(apache, stand_in)


@pytest.mark.long
def test_stream_batch_repeated_under_quotas_is_written_once(
    spark: SparkSession, apache: ExternalBroker, throttled: Throttled, tmp_path: Path
) -> None:
    """The quotas of each turn are lower than those before."""
    source, target = create_topic(apache, partitions=2), create_topic(apache, partitions=2)
    sent = stream.feed(apache, source, range(ROWS), 2)

    def change(effect: str) -> None:
        if EFFECTS.index(effect) == 0:
            assert not throttled.ms.total()
        throttled.limit(EFFECTS.index(effect))

    def start() -> StreamingQuery:
        rows = read(spark, throttled.stand_in, source, **throttled.source)
        return written(rows, throttled.stand_in, target, tmp_path, **throttled.sink)

    redone(spark, tmp_path, start, change)
    assert throttled.ms[FETCH] > 0
    assert throttled.ms[PRODUCE] > 0
    assert_accounted(apache, sent, target)


@pytest.mark.parametrize("effect", ["half", pytest.param("sent", marks=pytest.mark.long)])
def test_named_batch_repeated_under_quotas_is_written_once(
    spark: SparkSession, apache: ExternalBroker, throttled: Throttled, tmp_path: Path, effect: str
) -> None:
    batches = Batches(spark, apache, **throttled.source)
    batches.sink = throttled.sink
    with deaths(spark, tmp_path):
        batches.die(tmp_path, effect)
        assert not throttled.ms.total()
        throttled.limit(400)  # the rest of the batch is two requests of a few hundred bytes, perhaps seconds apart
        with conf(spark):
            batches.write()
    assert throttled.ms[PRODUCE] > 0
    assert_accounted(apache, batches.sent, batches.target)


def test_archive_run_repeated_under_quotas_loses_no_record(
    spark: SparkSession, apache: ExternalBroker, throttled: Throttled, tmp_path: Path
) -> None:
    """The first run's tasks have read everything and nothing is committed, so the next run reads it again."""
    topic = create_topic(apache, partitions=2)
    stream.feed(apache, topic, range(20), 2)
    wanted = begun(spark, apache, topic, tmp_path, Columns(), **throttled.source)
    stream.feed(apache, topic, range(20, ROWS), 2)
    halted(spark, tmp_path, wanted, STEPS["tasks"])
    assert not throttled.ms.total()
    throttled.limit()
    archive(spark, tmp_path, wanted)
    assert throttled.ms[FETCH] > 0
    ledger = Ledger(apache, topic)
    ledger.update()
    assert ledger.check(spark, tmp_path) == {RECORD: ROWS}
