"""The queries of all stages: one after the other, each with what there is, or all at once until one ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek.pipeline.jobs import ending, progress
from odradek.pipeline.jobs.stages import cluster, lateness
from odradek.pipeline.jobs.stages.declaration import Stage
from odradek.pipeline.jobs.stages.streams import Streams


def run(streams: Streams, trigger: Mapping[str, Any]) -> None:
    """Until all is done, or for ever; raises what ended a query."""
    topics = [stage.to for stage in streams.pipeline.stages]
    with progress.shown(streams.spark, topics), lateness.told(streams.spark):
        if "availableNow" in trigger:
            for stage in streams.pipeline.stages:
                _once(streams, stage, trigger)
        else:
            _always(streams, trigger)


def _once(streams: Streams, stage: Stage, trigger: Mapping[str, Any]) -> None:
    ending.started()  # a signal ends a query as if it were done
    written = {other.to for other in streams.pipeline.stages}
    cluster.settle(streams.pipeline.kafka, [topic for topic in stage.reads if topic in written])
    streams.start(stage, **trigger).awaitTermination()


def _always(streams: Streams, trigger: Mapping[str, Any]) -> None:
    queries = [streams.start(stage, **trigger) for stage in streams.pipeline.stages]
    try:
        streams.spark.streams.awaitAnyTermination()
    finally:
        for query in queries:
            query.stop()
