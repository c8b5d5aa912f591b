"""A stream in the tests' own Spark whose batches die, each after another effect; a new query repeats them.
The same for named batches (`df.write`).

Of the two tasks of a batch, the first has committed its rows and the note of them. The second one

    begun       has done nothing
    sent        has rows on the broker, in an open transaction
    half        has committed one of its units (batches with a name; a stream's task is one unit)
    committed   has committed its rows, too, and Spark does not know it
    told        has, too, and Spark asks the sink to commit the batch; the checkpoint does not have it

SIGKILL ends the process of the task, and so the query. Brokers and checkpoint are then in the state that a dead driver
leaves (`test_deaths`): no process cleans up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from odradek.pipeline.source import OdradekDataSource

from .job import dying

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

EFFECTS = ("begun", "sent", "committed", "told")
OF_BATCHES = ("begun", "sent", "half", "committed", "told")
LIMIT = 100  # offsets of a batch
ROWS = 500  # enough for all batches that die, and one more
WAIT = 200  # seconds
Start = Callable[[], "StreamingQuery"]
"""Starts the query, which ends when it has read all available records."""


@contextmanager
def deaths(spark: SparkSession, folder: Path, effects: Sequence[str] = EFFECTS) -> Iterator[None]:
    """Batch 0 of a stream dies after the first effect, batch 1 after the second one, and so on, each once."""
    for name in ("died", "done"):
        (folder / name).mkdir(parents=True)
    points = {_point(batch, effect): effect for batch, effect in enumerate(effects)}
    spark.dataSource.register(dying(folder, points))
    try:
        yield
    finally:
        spark.dataSource.register(OdradekDataSource)


def redone(
    spark: SparkSession, folder: Path, start: Start, change: Callable[[str], Any], effects: Sequence[str] = EFFECTS
) -> None:
    """Let the query die after each effect and call `change` after each death; at the end the query reads everything."""
    died: set[str] = set()
    with deaths(spark, folder, effects):
        for batch, effect in enumerate(effects):
            with pytest.raises(Exception, match="exited unexpectedly"):
                run(start)
            died.add(_point(batch, effect))
            assert {path.name for path in (folder / "died").iterdir()} == died
            change(effect)
        run(start)


@contextmanager
def dies(folder: Path, effect: str) -> Iterator[None]:
    """Within `deaths`: a batch of `df.write` dies after that effect. It may have died this death before."""
    (folder / "armed").write_text(effect)
    with pytest.raises(Exception, match="exited unexpectedly"):
        yield
    assert not (folder / "armed").exists()


def read(spark: SparkSession, broker: Any, topic: str, **options: str) -> DataFrame:
    """The rows of a stream with batches of 100 rows."""
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    given |= {"maxOffsetsPerTrigger": str(LIMIT), "kafka.isolation.level": "read_committed", **options}
    return spark.readStream.format("odradek").options(**given).load().select("key", "value")


def written(rows: DataFrame, broker: Any, topic: str, folder: Path, **options: str) -> StreamingQuery:
    """The query that writes each row once."""
    given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, "odradek.transactional": "true", **options}
    given["checkpointLocation"] = str(folder / "checkpoint")
    return rows.writeStream.format("odradek").options(**given).trigger(availableNow=True).start()


def run(start: Start) -> None:
    """Run the query to its end; raises its error."""
    query = start()
    try:
        assert query.awaitTermination(WAIT)
    finally:
        query.stop()


def _point(batch: int, effect: str) -> str:
    """The name of the point of death, as in `job`."""
    return str(batch) if effect == "told" else f"{batch}-1"
