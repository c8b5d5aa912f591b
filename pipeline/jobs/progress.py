"""Report a job's progress on stderr: bars on a terminal, else a line of JSON per batch; describe jobs in Spark's UI."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.bars import Bars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

Rows = Mapping[tuple[str, int], int]
"""By a query's name and the number of its batch."""
_DESCRIPTION = "spark.job.description"


@contextmanager
def shown(
    spark: SparkSession, topics: Sequence[str], kafka: Mapping[str, str] | None = None, rows: Rows | None = None
) -> Iterator[None]:
    """Within the block, report every batch of a stream of this session.

    A query without a name is reported by its topics. With `kafka` (as for `.options`) the report includes the lag.
    `rows` has the records of batches for which Spark counts something else (odradek.parquet).
    """
    bars = Bars(spark, sys.stderr) if sys.stderr.isatty() else None
    listener = _listener(", ".join(topics), kafka or {}, {} if rows is None else rows, bars.tell if bars else _print)
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        _settle(spark, listener)
        if bars:
            bars.close()


def _settle(spark: SparkSession, listener: Any) -> None:
    """Wait until all finished batches are reported; after a signal Spark may already be gone."""
    try:
        context: Any = spark.sparkContext
        context._jsc.sc().listenerBus().waitUntilEmpty()
        spark.streams.removeListener(listener)
    except Exception as error:
        log.debug("the last batches may not be shown: %s", error)


def done(job: str, **facts: Any) -> None:
    """Report the end of a batch job, or of a part of one; `facts` are its results, with the names of its JSON."""
    if sys.stderr.isatty():
        said = ", ".join(f"{_worded(value)} {name.replace('_', ' ')}" for name, value in facts.items())
        click.echo(f"{job}: {said}", err=True)
    else:
        _print({"job": job, **facts})


@contextmanager
def described(spark: SparkSession, text: str) -> Iterator[None]:
    """Describe the jobs that this thread starts within the block by `text` in Spark's UI."""
    context: Any = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, text)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)


def _print(facts: Mapping[str, Any]) -> None:
    click.echo(json.dumps(facts), err=True)


def _worded(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _listener(label: str, kafka: Mapping[str, str], rows: Rows, tell: Callable[[dict[str, Any]], None]) -> Any:
    from pyspark.sql.streaming import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None: ...

        def onQueryProgress(self, event: Any) -> None:
            facts = batch(json.loads(event.progress.json), label, rows)
            tell(facts | _lag(kafka, facts["offsets"]))

        def onQueryIdle(self, event: Any) -> None: ...

        def onQueryTerminated(self, event: Any) -> None: ...

    return Listener()


def batch(progress: Mapping[str, Any], label: str, known: Rows = MappingProxyType({})) -> dict[str, Any]:
    """The report of a batch, from Spark's progress; `offsets` are where it ended."""
    seconds = progress.get("batchDuration", 0) / 1000
    rows = known.get((progress.get("name") or label, progress["batchId"]), progress.get("numInputRows", 0))
    offsets: dict[str, Any] = {}
    for source in progress.get("sources", ()):
        offsets |= _offsets(source)
    return {
        "query": progress.get("name") or label,
        "batch": progress["batchId"],
        "rows": rows,
        "rows_per_second": round(rows / seconds) if seconds else 0,
        "seconds": seconds,
        "offsets": offsets,
    }


def _offsets(source: Mapping[str, Any]) -> dict[str, Any]:
    """By topic and partition; a source other than a topic goes by its description."""
    end = source.get("endOffset")
    end = json.loads(end) if isinstance(end, str) else end
    return end if isinstance(end, dict) else {source.get("description", "source"): end}


def _lag(kafka: Mapping[str, str], ends: Mapping[str, Any]) -> dict[str, int]:
    """How many offsets lie behind these now; nothing where that is unknown."""
    from odradek.pipeline.options import bare
    from odradek.pipeline.reading import offsets
    from odradek.pipeline.types import LATEST
    from odradek.pipeline.wire.brokers import Brokers

    try:
        at = offsets.from_json(ends) if kafka else {}
        if not at:
            return {}
        with Brokers(bare(kafka)) as brokers:
            last = brokers.offsets(at, LATEST)
        return {"lag": sum(max(last[key] - offset, 0) for key, offset in at.items())}
    except (PipelineError, ValueError) as error:
        log.debug("lag: %s", error)
        return {}
