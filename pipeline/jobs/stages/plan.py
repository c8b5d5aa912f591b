"""A stage as a streaming query: its steps one after the other, and both kinds of records written by the one query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.pipeline.jobs.stages import records
from odradek.pipeline.jobs.stages.aggregate import aggregated
from odradek.pipeline.jobs.stages.avro_results import Output
from odradek.pipeline.jobs.stages.declaration import Stage
from odradek.pipeline.jobs.stages.deduplicate import deduplicated
from odradek.pipeline.jobs.stages.enrich import enriched
from odradek.pipeline.jobs.stages.normalise import normalised
from odradek.pipeline.jobs.stages.parse import Reading, parsed
from odradek.pipeline.jobs.stages.sql import REASON
from odradek.pipeline.jobs.stages.timing import stamped, timed, watched
from odradek.pipeline.jobs.stages.validate import validated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def cleaned(rows: DataFrame, stage: Stage, reading: Reading) -> DataFrame:
    """Good and bad rows, up to where a step may remember something, of rows with `record`."""
    rows = validated(parsed(rows, reading), stage.validate)
    rows = normalised(rows, stage.normalise, stage.drop)
    return timed(rows, stage) if stage.stateful else rows


def finished(rows: DataFrame, stage: Stage, tables: Sequence[DataFrame]) -> DataFrame:
    """What `cleaned` rows come to; only the good ones where the stage is stateful."""
    return aggregated(joined(remembered(rows, stage), stage, tables), stage.aggregate)


def remembered(rows: DataFrame, stage: Stage) -> DataFrame:
    """With the watermark, and each once."""
    return deduplicated(watched(rows, stage), stage.deduplicate) if stage.stateful else rows


def joined(rows: DataFrame, stage: Stage, tables: Sequence[DataFrame]) -> DataFrame:
    """With the columns of the tables."""
    for declared, table in zip(stage.enrich, tables, strict=True):
        rows = enriched(rows, declared, table)
    return rows


def written(rows: DataFrame, stage: Stage, tables: Sequence[DataFrame], output: Output | None = None) -> DataFrame:
    """What `cleaned` rows are written as: JSON, unless there is an `output`.

    Bad ones cannot go through what remembers: they take a way of their own.
    """
    done = stamped(finished(rows, stage, tables), stage)
    frame = (records.results if stage.aggregate else records.both)(done, stage, output)
    if not stage.stateful:
        return frame
    return frame.unionByName(records.dead_letters(rows.where(f"{REASON} IS NOT NULL"), stage))
