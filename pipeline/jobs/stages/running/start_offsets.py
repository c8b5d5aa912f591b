"""The start offsets of a stage's query: recorded in its checkpoint's folder, because Spark records only the first end.

A first batch that was interrupted is done again, and its offsets decide how it is cut into tasks, some of which have
written already. `earliest` requested again could be a later offset, because of retention; the recorded offsets show
which records are gone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from odradek.pipeline.jobs.files import Files
from odradek.pipeline.jobs.stages.declaration.declaration import Stage
from odradek.pipeline.reading import offsets
from odradek.pipeline.reading.offsets import All
from odradek.pipeline.reading.subscription import Subscription
from odradek.pipeline.types import EARLIEST, LATEST
from odradek.pipeline.wire.brokers import Brokers

_NOTE = "odradek-start.json"


def noted(files: Files, stage: Stage, kafka: Mapping[str, str]) -> str:
    """The option `startingOffsets` of a query whose checkpoint is in the folder of the stage's name.

    It is determined again as long as no batch has begun.
    """
    path = f"{stage.name}/{_NOTE}"
    if files.empty(f"{stage.name}/offsets"):
        files.write(path, json.dumps(_now(stage, kafka)))
    return files.read(path) if files.exists(path) else stage.starting_offsets


def _now(stage: Stage, kafka: Mapping[str, str]) -> dict[str, dict[str, int]]:
    at = All(LATEST if stage.starting_offsets == "latest" else EARLIEST)
    with Brokers(kafka) as brokers:
        keys = Subscription(topics=stage.sources).partitions(brokers.topics())
        return offsets.as_json(offsets.resolve(at, keys, brokers, True, "starting"))
