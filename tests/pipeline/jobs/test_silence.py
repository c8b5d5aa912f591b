"""A leader that sends nothing more, and says that all is well, is no end of a log: not for a job that reads as the
source does. What `verify` reads by is in test_consuming.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from odradek.pipeline.jobs.archive.formats.formats import Format, Formats
from odradek.pipeline.jobs.archive.job import Job
from odradek.pipeline.jobs.archive.sink.columns import Columns
from odradek.pipeline.jobs.audit.__main__ import command
from odradek.pipeline.jobs.causes import cause

from ...clients.admin import create_topic
from ..reads import SHORT
from ..stand_in import FETCH, LOG_DIRS, StandIn
from ..test_fetching import fill
from ..test_holes import silent_from
from .archives import archive, assert_whole, live, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES, SIZE = 20, 3
ALL = [(0, offset) for offset in range(BATCHES * SIZE)]
SILENT = 30  # the first offset that is not sent

pytestmark = pytest.mark.live


def nowhere(_: Any, true: Any) -> Any:
    """So that no task looks for the leader's files on this machine."""
    true.results = []
    return true


@contextmanager
def silent(broker: Any) -> Iterator[StandIn]:
    """The leader; AssertionError where a job has read past it, by another way."""
    with StandIn(broker.bootstrap, {FETCH: silent_from(SILENT), LOG_DIRS: nowhere}) as stand_in:
        yield stand_in
        fetches = [asked.topics[0].partitions[0] for _, asked in stand_in.asked if asked.API_KEY == FETCH]
        assert any(fetch.fetch_offset >= SILENT for fetch in fetches)


def expected(topic: str) -> str:
    return f"{topic}-0: the leader sends no batch with offsets {SILENT} to {len(ALL) - 1} or later"


@pytest.mark.parametrize("formats", [Formats(), Formats(values={"": Format("string")})], ids=["by tasks", "by Spark"])
def test_the_archive(spark: SparkSession, broker: Any, tmp_path: Path, formats: Formats) -> None:
    """Nothing of the batch is archived; all of it is when the leader sends it after all."""
    topic = create_topic(broker)
    fill(broker, topic, BATCHES, SIZE)
    with silent(broker) as stand_in:
        with pytest.raises(Exception) as told:
            archive(spark, tmp_path, Job({**source(stand_in, topic), **SHORT}, Columns(formats)))
        assert cause(told.value).startswith(expected(topic))
    state = live(spark, tmp_path)
    assert (state.files, state.offsets, state.skipped) == ({}, {}, {})
    archive(spark, tmp_path, Job(source(broker, topic), Columns(formats)))
    assert_whole(spark, tmp_path, topic, ALL)


def test_the_audit(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """It does not count what is there as all that there is."""
    topic = create_topic(broker)
    fill(broker, topic, BATCHES, SIZE)
    archive(spark, tmp_path, Job(source(broker, topic)))
    with silent(broker) as stand_in:
        words = ["--bootstrap-server", stand_in.bootstrap, "--archive", tmp_path.as_uri(), "--topics", topic]
        properties = [f"--property={name.removeprefix('kafka.')}={value}" for name, value in SHORT.items()]
        result = CliRunner().invoke(command, [*words, "--last", "1d", *properties])
    assert result.exception is not None
    assert cause(result.exception).startswith(expected(topic))
