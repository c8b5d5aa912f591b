"""Stages as running queries: sources, sinks and checkpoints.

Exactly once: a task's records are in one transaction with the number of its batch, and the next stage reads only
committed records. See `writing.writer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.pipeline.jobs import topics
from odradek.pipeline.jobs.files import Files
from odradek.pipeline.jobs.stages.analysis.analysis import Known
from odradek.pipeline.jobs.stages.declaration.declaration import Pipeline, Stage
from odradek.pipeline.jobs.stages.running import start_offsets, whole_topic
from odradek.pipeline.jobs.stages.steps import enrich, plan, records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


_LARGE = {"kafka.max.request.size": str(32 << 20)}  # as large as the queue: the topic limits a record's size


@dataclass(frozen=True)
class Streams:
    """The queries of a checked file."""

    spark: SparkSession
    pipeline: Pipeline
    known: Mapping[str, Known]

    def start(self, stage: Stage, **trigger: Any) -> StreamingQuery:
        """The stage's query; `trigger` is `availableNow=True`, or `processingTime='10 seconds'`."""
        known = self.known[stage.name]
        rows = plan.cleaned(self._source(stage, "availableNow" not in trigger), stage, known.reading)
        tables = zip(stage.enrich, known.tables, strict=True)
        frames = [enrich.table(self._table(declared.topic), declared, reading) for declared, reading in tables]
        writer = plan.written(rows, stage, frames, known.output).writeStream.format("odradek").outputMode("append")
        writer = writer.queryName(stage.name).trigger(**trigger).options(**self._writing)
        writer = writer.option("odradek.transactional", "true").option("odradek.timestamps", "true")
        return writer.option("checkpointLocation", self.checkpoint(stage)).start()

    def checkpoint(self, stage: Stage) -> str:
        """The folder of the query's progress and state."""
        return f"{self.pipeline.checkpoint.rstrip('/')}/{stage.name}"

    @property
    def _reading(self) -> dict[str, str]:
        return _options(self.pipeline.kafka) | {"kafka.isolation.level": "read_committed", "includeHeaders": "true"}

    @property
    def _writing(self) -> dict[str, str]:
        return _LARGE | _options(topics.writers(self.pipeline.kafka))

    def _source(self, stage: Stage, limited: bool) -> DataFrame:
        reader = self.spark.readStream.format("odradek").options(**self._reading)
        start = start_offsets.noted(Files(self.spark, self.pipeline.checkpoint), stage, self.pipeline.kafka)
        reader = reader.option("subscribe", ",".join(stage.sources)).option("startingOffsets", start)
        reader = reader.option("failOnDataLoss", str(stage.fail_on_data_loss).lower())
        if limited and stage.max_offsets:
            reader = reader.option("maxOffsetsPerTrigger", str(stage.max_offsets))
        return records.received(reader.load())

    def _table(self, topic: str) -> DataFrame:
        return records.received(whole_topic.table(self.spark, self._reading | {"subscribe": topic}))


def _options(kafka: Mapping[str, str]) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in kafka.items()}
