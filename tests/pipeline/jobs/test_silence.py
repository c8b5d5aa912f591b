"""A leader that sends nothing more, and says that all is well, is no end of a log: not for a job that reads as the
source does. What `verify` reads by is in test_consuming.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from odradek.pipeline.jobs.archive.job import Job
from odradek.pipeline.jobs.audit.__main__ import command
from odradek.pipeline.jobs.causes import cause

from ...clients.admin import create_topic
from ..reads import SHORT
from ..stand_in import FETCH, LOG_DIRS, StandIn
from ..test_fetching import fill
from ..test_holes import silent_from
from .archives import archive, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live


def nowhere(_: Any, true: Any) -> Any:
    """So that no task looks for the leader's files on this machine."""
    true.results = []
    return true


def test_no_job_takes_silence_for_an_end(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    topic = create_topic(broker)
    fill(broker, topic, 20)
    whole, part = tmp_path / "whole", tmp_path / "part"
    archive(spark, whole, Job(source(broker, topic)))
    why = f"{topic}-0: the leader sends no batch with offsets 30 to 59"
    with StandIn(broker.bootstrap, {FETCH: silent_from(30), LOG_DIRS: nowhere}) as stand_in:
        options = {**source(stand_in, topic), **SHORT}
        with pytest.raises(Exception) as told:
            archive(spark, part, Job(options))
        assert cause(told.value).startswith(why)
        words = [
            "--bootstrap-server",
            stand_in.bootstrap,
            "--archive",
            whole.as_uri(),
            "--topics",
            topic,
            "--last",
            "1d",
        ]
        properties = [f"--property={name.removeprefix('kafka.')}={value}" for name, value in SHORT.items()]
        result = CliRunner().invoke(command, words + properties)
    assert result.exception is not None
    assert cause(result.exception).startswith(why)
