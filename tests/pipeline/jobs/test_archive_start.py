"""The start of a run: at the archived offsets, and only for the same topics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient

from odradek.pipeline.errors import DataLoss, PipelineError
from odradek.pipeline.jobs.archive.job import Job
from odradek.pipeline.jobs.archive.sink import start
from odradek.pipeline.jobs.archive.sink.columns import Columns
from odradek.pipeline.jobs.archive.sink.sink import Sink
from odradek.pipeline.jobs.archive.sink.sink import _check as check_written
from odradek.pipeline.jobs.archive.store.manifest import File, Span, State
from odradek.pipeline.jobs.archive.store.store import Store
from odradek.pipeline.jobs.files import Files
from odradek.pipeline.reading.read_options import ReadOptions

from ...clients.admin import create_named, create_topic, topic_id, unique
from ..test_source import delete_before
from ..topics import WAIT, send, undecided
from .archives import archive, assert_whole, ids, live, source, visible

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live


def options(broker: Any, *topics: str, **more: str) -> ReadOptions:
    return Job(source(broker, *topics, **more)).options


def recreate(broker: Any, topic: str) -> None:
    """Delete the topic and create it with the same number of partitions."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(WAIT)
    with broker.wire() as wire:
        create_named(wire, topic)


def known(broker: Any, topic: str) -> dict[str, str]:
    with broker.wire() as wire:
        return {topic: topic_id(wire, topic).hex}


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("records", [3, 30])
def test_recreated_topic_is_refused(broker: Any, fail: str, records: int) -> None:
    """Even with failOnDataLoss=false, with more or fewer records than the archived topic."""
    topic, other = create_topic(broker), create_topic(broker)
    send(broker, topic, range(10))
    archived = State(1, {}, {(topic, 0): 10}, known(broker, topic))
    read = options(broker, topic, other, failOnDataLoss=fail)
    assert start.find(read, archived).ids == known(broker, topic) | known(broker, other)
    recreate(broker, topic)
    send(broker, topic, range(records))
    with pytest.raises(PipelineError, match=f"^{topic}: recreated since it was archived, .*--to"):
        start.find(read, archived)
    if records == 30:
        assert start.find(read, State(1, {}, archived.offsets)).begin[topic, 0] == 10, "an archive without ids"


def test_log_end_before_the_archived_offset_is_data_loss(broker: Any) -> None:
    """Records read with read_uncommitted may still be in an open transaction: they are not archived twice."""
    topic = create_topic(broker)
    undecided(broker, topic)
    end = start.find(options(broker, topic), State()).end[topic, 0]
    archived = State(1, {}, {(topic, 0): end}, known(broker, topic))
    committed = {"kafka_isolation_level": "read_committed"}
    with pytest.raises(DataLoss, match=f"^{topic}-0 is archived up to offset {end} and now ends at .*--no-fail"):
        start.find(options(broker, topic, **committed), archived)
    found = start.find(options(broker, topic, failOnDataLoss="false", **committed), archived)
    assert found.begin[topic, 0] == end > found.end[topic, 0]
    assert sum(loss.offsets for loss in found.lost) == 0


def test_deleted_offsets_are_data_loss(broker: Any) -> None:
    topic = create_topic(broker)
    send(broker, topic, range(10))
    delete_before(broker, topic, 5)
    with pytest.raises(DataLoss, match=f"^{topic}-0: offsets 3 to 4 are gone"):
        start.find(options(broker, topic), State(1, {}, {(topic, 0): 3}))
    found = start.find(options(broker, topic, failOnDataLoss="false"), State(1, {}, {(topic, 0): 3}))
    assert (found.begin, found.end, found.lost[0].offsets) == ({(topic, 0): 5}, {(topic, 0): 10}, 2)
    assert start.find(options(broker, topic), State()).begin == {(topic, 0): 5}


def test_topic_recreated_during_a_run_is_refused(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """A batch is committed only if its topics have the ids of the start, or of their first batch."""
    topic, late, other = create_topic(broker), create_topic(broker), create_topic(broker)
    with Store(Files(spark, str(tmp_path))) as store:
        read = options(broker, topic)
        sink = Sink(store, start.find(read, store.state), Columns(), read, {})
        assert sink._new([(topic, 0), (late, 0)]) == known(broker, topic) | known(broker, late)
        for name in (topic, late):
            recreate(broker, name)
            with pytest.raises(PipelineError, match=f"^{name}: recreated since"):
                sink._new([(topic, 0), (late, 0), (other, 0)])
            sink._ids = known(broker, topic) | {late: sink._ids[late]}


def test_recreated_topic_of_a_pattern_does_not_stop_the_others(
    spark: SparkSession, broker: Any, tmp_path: Path
) -> None:
    """The other topics are archived before the error; a pattern that matches only this topic fails at once."""
    prefix = unique("made")
    topic, other = f"{prefix}.again", f"{prefix}.other"
    with broker.wire() as wire:
        create_named(wire, topic)
        create_named(wire, other)
    send(broker, topic, range(5))
    both = Job({"kafka.bootstrap.servers": broker.bootstrap, "subscribePattern": f"^{prefix}"})
    archive(spark, tmp_path, both)
    recreate(broker, topic)
    send(broker, topic, range(9))
    sent = send(broker, other, range(7))
    with pytest.raises(PipelineError, match=f"^{topic}: recreated since"):
        archive(spark, tmp_path, both)
    assert visible(spark, tmp_path, other) == ids(sent)
    assert len(visible(spark, tmp_path, topic)) == 5
    alone = Job({"kafka.bootstrap.servers": broker.bootstrap, "subscribePattern": f"^{topic}"})
    with pytest.raises(PipelineError, match=f"^{topic}: recreated since"):
        start.find(alone.options, live(spark, tmp_path))


@pytest.mark.long
def test_log_end_before_the_archived_offset_does_not_stop_other_topics(
    spark: SparkSession, broker: Any, tmp_path: Path
) -> None:
    """Also, the archive has the ids of its topics."""
    topic, other = create_topic(broker), create_topic(broker)
    undecided(broker, topic)
    state = archive(spark, tmp_path, Job(source(broker, topic, other)))
    archived = visible(spark, tmp_path, topic)
    assert state.ids == known(broker, topic) | known(broker, other)
    sent = send(broker, other, range(3))
    now = source(broker, topic, other, kafka_isolation_level="read_committed", failOnDataLoss="false")
    state = archive(spark, tmp_path, Job(now))
    assert_whole(spark, tmp_path, topic, archived)
    assert_whole(spark, tmp_path, other, ids(sent))
    assert state.offsets[topic, 0] == archived[-1][1] + 1


def test_partition_missing_at_the_start_is_not_archived_again(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """The stream reads such a partition as a new one from its start, so the check of the batch must fail."""
    topic, other = create_topic(broker), create_topic(broker)
    send(broker, topic, range(10))
    send(broker, other, range(3))
    archive(spark, tmp_path, Job(source(broker, topic, other)))
    with Store(Files(spark, str(tmp_path))) as store:
        sink = Sink(store, start.find(options(broker, other), store.state), Columns(), options(broker, other), {})
        ranges = sink._ranges({(topic, 0): 12, (other, 0): 3})
    assert ranges == {(topic, 0): (10, 12), (other, 0): (3, 3)}
    with pytest.raises(PipelineError, match=f"^{topic}-0: offsets 0 to 11 were written instead of 10 to 11"):
        check_written([File("f", topic, {0: Span(12, 0, 11)}, 1, 1, "")], ranges)
