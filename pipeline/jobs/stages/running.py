"""The queries of all stages: one after the other, each with what there is, or all at once until one ends."""

from __future__ import annotations

from odradek.pipeline.jobs import ending, progress
from odradek.pipeline.jobs.stages import cluster, lateness
from odradek.pipeline.jobs.stages.declaration import Stage
from odradek.pipeline.jobs.stages.streams import Streams


def run(streams: Streams, every_ms: int | None) -> None:
    """Once where `every_ms` is None, or for ever with a batch as often; raises what ended a query."""
    topics = [stage.to for stage in streams.pipeline.stages]
    with progress.shown(streams.spark, topics), lateness.told(streams.spark):
        if every_ms is not None:
            always(streams, every_ms)
            return
        for stage in streams.pipeline.stages:
            once(streams, stage)


def once(streams: Streams, stage: Stage) -> None:
    """Until it has what there is."""
    ending.started()  # a signal ends a query as if it were done: then there is no next one
    written = {topic for other in streams.pipeline.stages for topic in other.writes}
    cluster.settle(streams.pipeline.kafka, [topic for topic in stage.reads if topic in written])
    with progress.described(streams.spark, f"{', '.join(stage.sources)} -> {stage.to}"):
        streams.start(stage, availableNow=True).awaitTermination()


def always(streams: Streams, every_ms: int) -> None:
    """Until one query ends, which it does not by itself."""
    trigger = f"{every_ms} milliseconds"
    queries = [streams.start(stage, processingTime=trigger) for stage in streams.pipeline.stages]
    try:
        streams.spark.streams.awaitAnyTermination()
    finally:
        for query in queries:
            query.stop()
