"""A stage as a streaming query: its steps one after the other; one query writes good and bad records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.pipeline.jobs.stages.declaration.declaration import Stage
from odradek.pipeline.jobs.stages.declaration.sql import REASON
from odradek.pipeline.jobs.stages.steps import records
from odradek.pipeline.jobs.stages.steps.aggregate import aggregated
from odradek.pipeline.jobs.stages.steps.avro_results import Output
from odradek.pipeline.jobs.stages.steps.deduplicate import deduplicated
from odradek.pipeline.jobs.stages.steps.enrich import enriched
from odradek.pipeline.jobs.stages.steps.normalise import normalised
from odradek.pipeline.jobs.stages.steps.parse import Reading, parsed
from odradek.pipeline.jobs.stages.steps.timing import stamped, timed, watched
from odradek.pipeline.jobs.stages.steps.validate import validated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def cleaned(rows: DataFrame, stage: Stage, reading: Reading) -> DataFrame:
    """Good and bad rows from rows with `record`, up to the first stateful step."""
    rows = validated(parsed(rows, reading), stage.validate)
    rows = normalised(rows, stage.normalise, stage.drop)
    return timed(rows, stage) if stage.stateful else rows


def finished(rows: DataFrame, stage: Stage, tables: Sequence[DataFrame]) -> DataFrame:
    """The results of `cleaned` rows; only the good ones where the stage is stateful."""
    return aggregated(joined(remembered(rows, stage), stage, tables), stage.aggregate)


def remembered(rows: DataFrame, stage: Stage) -> DataFrame:
    """Add the watermark, and deduplicate."""
    return deduplicated(watched(rows, stage), stage.deduplicate) if stage.stateful else rows


def joined(rows: DataFrame, stage: Stage, tables: Sequence[DataFrame]) -> DataFrame:
    """Add the tables' columns."""
    for declared, table in zip(stage.enrich, tables, strict=True):
        rows = enriched(rows, declared, table)
    return rows


def written(rows: DataFrame, stage: Stage, tables: Sequence[DataFrame], output: Output | None = None) -> DataFrame:
    """The records to write for `cleaned` rows: JSON, unless there is an `output`.

    Bad rows cannot pass through stateful steps: they are added separately.
    """
    done = stamped(finished(rows, stage, tables), stage)
    frame = (records.results if stage.aggregate else records.both)(done, stage, output)
    if not stage.stateful:
        return frame
    return frame.unionByName(records.dead_letters(rows.where(f"{REASON} IS NOT NULL"), stage))
