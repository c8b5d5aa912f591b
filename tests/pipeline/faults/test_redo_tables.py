"""A stage's batch is repeated after its enriching table has changed: rows would go to other topics then."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from odradek.pipeline.jobs.stages.analysis.analysis import analysed
from odradek.pipeline.jobs.stages.running.streams import Streams

from ...clients.admin import create_topic
from ..jobs import orders
from ..jobs.stages import job_settings, pipeline, stage
from ..written import committed
from . import stream
from .checker import assert_accounted
from .redone import EFFECTS, LIMIT, redone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

PEOPLE = 7
GOOD, BAD = int(time.time() * 1000) - 1000, -5  # timestamps of records: no topic accepts those before 1970


def tell(broker: Any, people: str, turn: int) -> None:
    """Write the timestamp of each person; in each turn every other person makes dead letters."""
    times = [GOOD if (at + turn) % 2 else BAD for at in range(PEOPLE)]
    values = [json.dumps({"at": time}).encode() for time in times]
    orders.send(broker.bootstrap, people, values, [b"%d" % at for at in range(PEOPLE)])


def body(one: str) -> str:
    return json.dumps({"id": one, "who": str(int(one.split()[1]) % PEOPLE)})


@pytest.mark.long
def test_stage_batch_repeated_with_a_changed_table_is_written_once(
    spark: SparkSession, broker: Any, tmp_path: Path
) -> None:
    """Rows of the first write stay in their topics; the other rows follow the changed table."""
    source, to, dead = (create_topic(broker, partitions=2) for _ in range(3))
    people = create_topic(broker, cleanup_policy="compact")
    enrich = {"with": people, "on": "who", "as": "person", "parse": {"format": "json", "schema": "at BIGINT"}}
    times = {"timestamp": "timestamp_millis(person.at)", "key": "id"}
    file = pipeline(
        stage(from_=source, to=to, json="id STRING, who STRING", enrich=enrich, **times),
        kafka={"bootstrap.servers": broker.bootstrap},
        checkpoint=str(tmp_path / "checkpoint"),
        dead_letters=dead,
    )
    tell(broker, people, 0)
    sent = stream.feed(broker, source, range(LIMIT), 2, body)

    def change(effect: str) -> None:
        turn = EFFECTS.index(effect) + 1
        tell(broker, people, turn)
        sent.extend(stream.feed(broker, source, range(turn * LIMIT, (turn + 1) * LIMIT), 2, body))

    with job_settings(spark):
        known, mistakes = analysed(spark, file)
        assert not mistakes

        def start() -> StreamingQuery:
            return Streams(spark, file, known).start(file.stages[0], availableNow=True)

        redone(spark, tmp_path, start, change)
    assert_accounted(broker, sent, to, dead)
    assert committed(broker, to) and committed(broker, dead)
