"""Empty fetch responses without an error are not the end of a log for jobs that read through the source. For the
consumer of `verify` see test_consuming.
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
SILENT = 30  # the first offset that the leader does not send

pytestmark = pytest.mark.live


def nowhere(_: Any, true: Any) -> Any:
    """Return no log directories, so that no task reads the leader's files on this machine."""
    true.results = []
    return true


@contextmanager
def silent(broker: Any) -> Iterator[StandIn]:
    """A silent leader; AssertionError if no fetch has reached the silent offsets."""
    with StandIn(broker.bootstrap, {FETCH: silent_from(SILENT), LOG_DIRS: nowhere}) as stand_in:
        yield stand_in
        fetches = [asked.topics[0].partitions[0] for _, asked in stand_in.asked if asked.API_KEY == FETCH]
        assert any(fetch.fetch_offset >= SILENT for fetch in fetches)


def expected(topic: str) -> str:
    return f"{topic}-0: the leader sends no batch with offsets {SILENT} to {len(ALL) - 1} or later"


@pytest.mark.parametrize("formats", [Formats(), Formats(values={"": Format("string")})], ids=["by tasks", "by Spark"])
def test_archive_stops_at_missing_offsets(spark: SparkSession, broker: Any, tmp_path: Path, formats: Formats) -> None:
    """The job archives nothing of the batch, and everything when the leader sends the records later."""
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


def test_audit_stops_at_missing_offsets(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """The audit does not count the partial log as complete."""
    topic = create_topic(broker)
    fill(broker, topic, BATCHES, SIZE)
    archive(spark, tmp_path, Job(source(broker, topic)))
    with silent(broker) as stand_in:
        words = ["--bootstrap-server", stand_in.bootstrap, "--archive", tmp_path.as_uri(), "--topics", topic]
        properties = [f"--property={name.removeprefix('kafka.')}={value}" for name, value in SHORT.items()]
        result = CliRunner().invoke(command, [*words, "--last", "1d", *properties])
    assert result.exception is not None
    assert cause(result.exception).startswith(expected(topic))
