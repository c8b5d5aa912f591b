"""Register the schemas of results before any result is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.stages.analysis.analysis import Known
from odradek.pipeline.jobs.stages.declaration.declaration import Pipeline, Stage
from odradek.pipeline.jobs.stages.declaration.mistakes import Mistakes
from odradek.pipeline.registry import client


def registered(pipeline: Pipeline, known: Mapping[str, Known]) -> dict[str, Known]:
    """Add the ids from the registry. Raises Mistakes: a line for each schema that it refused."""
    mistakes: list[str] = []
    found = {stage.name: _registered(stage, known[stage.name], mistakes) for stage in pipeline.stages}
    Mistakes.check(mistakes)
    return found


def _registered(stage: Stage, known: Known, mistakes: list[str]) -> Known:
    if stage.write is None or known.output is None:
        return known
    try:
        number = client.register(stage.write.registry, stage.write.subject, known.output.schema)
    except PipelineError as error:
        mistakes.append(f"stage {stage.name}: write: {error}")
        return known
    return replace(known, output=replace(known.output, id=number))
