"""Each offset of an archive is accounted for: it has a record, or the manifest has the reason."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from odradek.pipeline.jobs.archive.job import Job
from odradek.pipeline.jobs.archive.sink import skips
from odradek.pipeline.jobs.archive.sink.columns import Columns
from odradek.pipeline.jobs.archive.store import manifest
from odradek.pipeline.jobs.archive.store.manifest import State
from odradek.pipeline.jobs.archive.verify.verify import verify
from odradek.pipeline.jobs.causes import cause
from odradek.pipeline.jobs.files import Files
from odradek.pipeline.types import Range

from ...clients.admin import create_topic
from ...clients.raw.batches import batch, record
from ...clients.raw.calls import produce
from ..accounting import ABORTED, COMPACTED, CONTROL, RECORD, account
from ..local import Local
from ..reads import SHORT
from ..stand_in import FETCH, LOG_DIRS, StandIn
from ..test_accounting import written
from ..test_fetching import fill
from ..test_holes import silent_from
from ..test_segments import CLEANER, compacted, keyed
from ..test_segments import COMPACTED as COMPACTING
from ..topics import send
from .archives import archive, source
from .losing import losing
from .test_silence import nowhere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live

STEP = 45  # offsets of a batch


def skipped(state: State, topic: str) -> dict[str, int]:
    return dict(state.skipped.get((topic, 0), {}))


def check(spark: SparkSession, topic: Local, folder: Path, columns: Columns) -> Counter[str]:
    """Compare the manifest with other clients' account; returns the number of offsets of each fate."""
    wanted = Job(source(topic.broker, topic.name), columns, max_offsets=STEP, compact=False)
    wanted.source["kafka.isolation.level"] = "read_committed"
    state = archive(spark, folder, wanted)
    fates = Counter(account(topic.broker, topic.name).fates)
    assert skipped(state, topic.name) == {fate: fates[fate] for fate in (CONTROL, ABORTED, COMPACTED) if fates[fate]}
    assert sum(file.rows for file in state.files.values()) == fates[RECORD]
    assert state.begun == {(topic.name, 0): 0}
    assert state.number > 1
    return fates


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param(Columns(), id="by tasks"),
        pytest.param(Columns(event_time="timestamp"), id="by Spark", marks=pytest.mark.long),
    ],
)
def test_aborted_and_control_records_are_counted(
    spark: SparkSession, broker: Any, tmp_path: Path, columns: Columns
) -> None:
    """Batches of the stream begin and end within batches of the log."""
    topic = Local(broker)
    written(random.Random(7), topic, 40, keyed=False)
    fates = check(spark, topic, tmp_path, columns)
    assert fates[ABORTED] and fates[CONTROL] and not fates[COMPACTED]


def test_compacted_offsets_are_counted(spark: SparkSession, fresh_broker: Callable[..., Any], tmp_path: Path) -> None:
    topic = Local(fresh_broker(**CLEANER), **COMPACTING | {"segment_bytes": 12_000})
    written(random.Random(7), topic, 100, keyed=True)
    compacted(topic)
    assert check(spark, topic, tmp_path, Columns())[COMPACTED] > 20


def test_lost_offsets_are_counted(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """A leader sends no more records, and failOnDataLoss=false continues without them."""
    topic = Local(broker)
    fill(broker, topic.name, 20)
    with StandIn(broker.bootstrap, {FETCH: silent_from(30), LOG_DIRS: nowhere}) as stand_in:
        options = {**source(stand_in, topic.name), **SHORT, "failOnDataLoss": "false"}
        state = archive(spark, tmp_path, Job(options))
    assert skipped(state, topic.name) == {manifest.LOST: 30}


def test_verify_finds_offsets_without_a_reason(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    topic = Local(broker)
    written(random.Random(7), topic, 9, keyed=False)
    archive(spark, tmp_path, Job({**source(broker, topic.name), "kafka.isolation.level": "read_committed"}))
    [path] = (tmp_path / manifest.COMMITS).glob("*1.json")
    text = path.read_text()
    kafka = {"kafka.bootstrap.servers": broker.bootstrap}
    assert verify(spark, Files(spark, str(tmp_path)), kafka, [topic.name]).differences == []
    begin = text.index('"skipped"')
    path.write_text(text[:begin] + text[begin:].replace(f'"{topic.name}":', '"another":'))
    [line] = verify(spark, Files(spark, str(tmp_path)), kafka, [topic.name]).differences
    assert line.startswith(f"{topic.name}: partition 0: the manifest covers ")


def test_records_lost_by_tasks_are_an_error(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """A log without compaction has no reason for the gap, which the reader itself would not accept either."""
    topic = create_topic(broker, partitions=2)
    send(broker, topic, range(40), 2)
    why = f"{topic}-1: 2 of the offsets 0 to 19 have neither a record nor a reason"
    with losing(spark), pytest.raises(Exception) as told:
        archive(spark, tmp_path, Job(source(broker, topic)))
    assert cause(told.value).startswith(why)
    state = archive(spark, tmp_path, Job(source(broker, topic)))
    assert (sum(file.rows for file in state.files.values()), dict(state.skipped)) == (40, {})


def test_reasons_of_a_deleted_topic_are_unknown(spark: SparkSession, broker: Any) -> None:
    """The read records are archived; the manifest marks the reasons of the rest as unknown."""
    topic = create_topic(broker)
    options = Job(source(broker, topic)).options
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    found = skips.reasons(spark, options, {Range(topic, 0, 0, 9): 3}, lambda _: False)
    assert found == {(topic, 0): {manifest.UNKNOWN: 3}}


@pytest.mark.long
def test_offsets_of_a_formerly_compacted_topic_are_compacted(
    spark: SparkSession, fresh_broker: Callable[..., Any], tmp_path: Path
) -> None:
    """The topic has another policy now; offsets missing in a batch with other records are no loss."""
    topic = Local(fresh_broker(**CLEANER), **COMPACTING)
    put(topic, [b"a", b"b", b"c", b"d"])
    put(topic, [b"b", b"c"])
    keyed(topic, [b"%d" % at for at in range(60)], 6)
    compacted(topic)
    policy = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic.name, incremental_configs=[policy])
    admin = AdminClient({"bootstrap.servers": topic.broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)
    fates = Counter(account(topic.broker, topic.name).fates)
    assert fates == {RECORD: 64, COMPACTED: 2}
    state = archive(spark, tmp_path, Job(source(topic.broker, topic.name)))
    assert skipped(state, topic.name) == {COMPACTED: 2}


def put(topic: Local, keys: list[bytes]) -> None:
    """Produce one batch with a record of each key."""
    body = b"".join(record(at, b"x", key) for at, key in enumerate(keys))
    with topic.broker.wire() as wire:
        assert produce(wire, topic.name, batch(keys, payload=body)).error_code == 0
