"""How far a job is: a bar on a terminal, else a line of JSON a batch, both on stderr; and names for Spark's UI."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def shown(spark: SparkSession, topics: Sequence[str]) -> Iterator[None]:
    """While inside, every batch of a stream of this session is told; `topics` name the job on a terminal."""
    listener = _listener(", ".join(topics))
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        spark.streams.removeListener(listener)


def done(job: str, **facts: Any) -> None:
    """A batch job, or a part of one, has ended; `facts` are what it did, in the words of its JSON."""
    if sys.stderr.isatty():
        click.echo(f"{job}: " + ", ".join(f"{_worded(value)} {name}" for name, value in facts.items()), err=True)
    else:
        click.echo(json.dumps({"job": job, **facts}), err=True)


@contextmanager
def described(spark: SparkSession, text: str) -> Iterator[None]:
    """Spark's UI names what is started inside by `text`."""
    context = spark.sparkContext
    before = context.getLocalProperty("spark.job.description")
    context.setJobDescription(text)
    try:
        yield
    finally:
        context.setLocalProperty("spark.job.description", before)  # type: ignore[arg-type]


def _worded(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _listener(label: str) -> Any:
    from pyspark.sql.streaming import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None: ...

        def onQueryProgress(self, event: Any) -> None:
            _tell(label, json.loads(event.progress.json))

        def onQueryIdle(self, event: Any) -> None: ...

        def onQueryTerminated(self, event: Any) -> None: ...

    return Listener()


def _tell(label: str, progress: dict[str, Any]) -> None:
    facts = batch(progress)
    if sys.stderr.isatty():
        click.echo(f"{facts['query'] or label}: batch {facts['batch']}, {facts['rows']:,} rows", err=True)
    else:
        click.echo(json.dumps(facts), err=True)


def batch(progress: dict[str, Any]) -> dict[str, Any]:
    """What is told of a batch, from Spark's own words for it."""
    seconds = progress.get("batchDuration", 0) / 1000
    rows = progress.get("numInputRows", 0)
    return {
        "query": progress.get("name"),
        "batch": progress["batchId"],
        "rows": rows,
        "rows_per_second": round(rows / seconds) if seconds else 0,
        "seconds": seconds,
        "offsets": [_offsets(source.get("endOffset")) for source in progress.get("sources", [])],
    }


def _offsets(told: Any) -> Any:
    return json.loads(told) if isinstance(told, str) else told
