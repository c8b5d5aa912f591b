"""Run the queries of all stages: one after the other, each to the current end, or all at once until one ends."""

from __future__ import annotations

from odradek.pipeline.jobs import ending, progress
from odradek.pipeline.jobs.stages.declaration.declaration import Stage
from odradek.pipeline.jobs.stages.running import cluster, lateness
from odradek.pipeline.jobs.stages.running.streams import Streams


def run(streams: Streams, every_ms: int | None) -> None:
    """Once where `every_ms` is None, otherwise for ever with a batch that often; raises a query's error."""
    topics = [stage.to for stage in streams.pipeline.stages]
    with progress.shown(streams.spark, topics), lateness.told(streams.spark):
        if every_ms is not None:
            always(streams, every_ms)
            return
        for stage in streams.pipeline.stages:
            once(streams, stage)


def once(streams: Streams, stage: Stage) -> None:
    """Run until the query has read what exists now."""
    ending.started()  # a signal ends a query as if it were done: then start no next one
    written = {topic for other in streams.pipeline.stages for topic in other.writes}
    cluster.settle(streams.pipeline.kafka, [topic for topic in stage.reads if topic in written])
    with progress.described(streams.spark, f"{', '.join(stage.sources)} -> {stage.to}"):
        streams.start(stage, availableNow=True).awaitTermination()


def always(streams: Streams, every_ms: int) -> None:
    """Run until one query ends, which it does only by an error or a stop."""
    trigger = f"{every_ms} milliseconds"
    queries = [streams.start(stage, processingTime=trigger) for stage in streams.pipeline.stages]
    try:
        streams.spark.streams.awaitAnyTermination()
    finally:
        for query in queries:
            query.stop()
