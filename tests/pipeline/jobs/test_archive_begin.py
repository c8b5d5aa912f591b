"""Topics created between the job's own lookup and the stream's."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from odradek.pipeline.jobs.archive.job import Job
from odradek.pipeline.jobs.archive.sink import start
from odradek.pipeline.jobs.archive.sink.start import Start

from ...clients.admin import create_topic, unique
from ...harness.process import wait_until
from ..topics import WAIT, send
from .archives import assert_whole, ids
from .test_archive import is_visible, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live


@pytest.mark.parametrize("continuous", [False, True])
def test_topic_created_during_the_start_is_archived(
    spark: SparkSession, broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, continuous: bool
) -> None:
    stem = unique("made")
    topic = create_topic(broker, stem)
    sent, look = {topic: send(broker, topic, range(3))}, start.find

    def look_and_make(*given: Any) -> Start:
        found = look(*given)
        if len(sent) == 1:
            topic = create_topic(broker, stem)
            sent[topic] = send(broker, topic, range(5))
        return found

    monkeypatch.setattr(start, "find", look_and_make)
    source = {"kafka.bootstrap.servers": broker.bootstrap, "subscribePattern": stem}
    with running(spark, tmp_path, Job(source, continuous=continuous, trigger_ms=0)):
        wait_until(lambda: len(sent) == 2, WAIT, "the topic is created")
        for topic, records in sent.items():
            wait_until(partial(is_visible, spark, tmp_path, topic, ids(records)), WAIT, "the records are archived")
    for topic, records in sent.items():
        assert_whole(spark, tmp_path, topic, ids(records))
