"""A batch of a stream is repeated after compaction has removed some of its records, written ones and others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ...clients.admin import create_topic
from ...clients.transactions import await_stable
from ..accounting import COMPACTED, account
from ..local import Local
from ..test_segments import CLEANER, compacted, configure
from . import stream
from .checker import compare, ids
from .redone import LIMIT, read, redone, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

KEYS, MORE = 60, 50  # a few records of a batch of 100 offsets survive the next 50
NEVER = 10**12  # ms


class Compacted:
    """A topic with one partition that is compacted only on request."""

    def __init__(self, broker: Any) -> None:
        self.log = Local(broker)
        self.sent: list[str] = []
        self._keep(NEVER)

    def send(self, count: int) -> None:
        numbers = range(len(self.sent), len(self.sent) + count)
        self.sent += stream.feed(self.log.broker, self.log.name, numbers, 1, key=self._key)

    def compact(self) -> None:
        """Compact all but the newest batch."""
        self._keep(0)
        compacted(self.log)
        self._keep(NEVER)

    def _keep(self, lag_ms: int) -> None:
        given = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01, "segment.bytes": 2000}
        configure(self.log, {**given, "min.compaction.lag.ms": lag_ms})

    @staticmethod
    def _key(one: str) -> str:
        return str(int(one.split()[1]) % KEYS)


def test_batch_repeated_after_compaction_is_written_once(
    spark: SparkSession, fresh_broker: Callable[..., Any], tmp_path: Path
) -> None:
    """Rows of the first write stay; the repetition adds the remaining records of the log, the newest of each key."""
    broker = fresh_broker(**CLEANER)
    source, target = Compacted(broker), create_topic(broker, partitions=2)
    source.send(LIMIT)

    def change(_: str) -> None:
        source.send(MORE)
        source.compact()
        source.send(LIMIT)

    def start() -> StreamingQuery:
        rows = read(spark, broker, source.log.name, minPartitions="2")  # two tasks in each batch
        return written(rows, broker, target, tmp_path)

    redone(spark, tmp_path, start, change)
    await_stable(broker, target)
    known = account(broker, source.log.name)
    found = compare(source.sent, ids(broker, target))
    assert COMPACTED in known.fates
    assert (found.doubled, found.strange) == ((), ())
    assert found.lost, "no batch was compacted before it was written"
    assert not {(one.value or b"").decode() for one in known.committed} & {*found.lost}
