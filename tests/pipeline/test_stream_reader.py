"""Stream readers as each version of PySpark calls them: a repeated first batch, and new partitions."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from odradek.pipeline.errors import DataLoss
from odradek.pipeline.reading.admission import AdmissionReader
from odradek.pipeline.reading.former import FormerStreamReader
from odradek.pipeline.reading.read_options import ReadOptions
from odradek.pipeline.reading.splits import Split

from ..clients.admin import create_named, create_topic, unique
from .hidden import Hiding, hidden
from .stand_in import METADATA, StandIn
from .topics import NOW, send

pytestmark = pytest.mark.live

RECORDS = 20
Offsets = dict[str, Any]


class FormerCalls:
    """The calls of PySpark 4.0 and 4.1."""

    def __init__(self, options: ReadOptions) -> None:
        self.reader = FormerStreamReader(options)

    def first(self) -> Offsets:
        """The end of a new stream's first batch."""
        return self.reader.latestOffset()

    def initial(self) -> Offsets:
        return self.reader.initialOffset()

    def next(self, at: Offsets) -> Offsets:
        return self.reader.latestOffset()

    def resume(self, end: Offsets) -> None:
        """Continue from a checkpoint that has the end of a batch."""
        assert self.reader.partitions(end, end) == []


class CurrentCalls:
    """The calls of PySpark 4.2 and later."""

    def __init__(self, options: ReadOptions) -> None:
        self.reader = AdmissionReader(options)

    def first(self) -> Offsets:
        return self.next(self.initial())

    def initial(self) -> Offsets:
        return self.reader.initialOffset()

    def next(self, at: Offsets) -> Offsets:
        return self.reader.latestOffset(at, self.reader.getDefaultReadLimit())

    def resume(self, end: Offsets) -> None:
        """These versions make no call."""


ReaderCalls = FormerCalls | CurrentCalls


@pytest.fixture(params=[FormerCalls, CurrentCalls])
def calls(request: pytest.FixtureRequest) -> type[ReaderCalls]:
    """One of these classes."""
    kind: type[ReaderCalls] = request.param
    return kind


@contextmanager
def again(calls: type[ReaderCalls], broker: Any, topic: str, end: Offsets, **options: str) -> Iterator[Again]:
    """A first batch that is repeated from a checkpoint with its end offsets only. Its use resolves the start."""
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "maxRecordsPerPartition": "5", **options}
    stream = calls(ReadOptions.parse(given, streaming=True))
    try:
        stream.resume(end)
        yield Again(stream, end)
    finally:
        stream.reader.stop()


class Again:
    """A repeated first batch."""

    def __init__(self, stream: ReaderCalls, end: Offsets) -> None:
        self.stream, self._end = stream, end

    def tasks(self) -> list[Split]:
        found = self.stream.reader.partitions(self.stream.initial(), self._end)
        return [each.value for each in found]

    def begins(self) -> dict[str, int]:
        """The first offset of each partition in the batch."""
        begins: dict[str, int] = {}
        for task in self.tasks():
            begins.setdefault(str(task.span.partition), task.span.start)
        return begins


@pytest.fixture
def topic(broker: Any) -> str:
    """Two partitions, then three; retention has deleted the first seven offsets of partition 1."""
    name = create_topic(broker, partitions=2)
    send(broker, name, range(RECORDS), 2)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(name, 3)])[name].result(30)
    admin.delete_records([TopicPartition(name, 1, 7)])[TopicPartition(name, 1)].result(30)
    return name


def test_repeated_batch_with_given_offsets_keeps_its_start(calls: type[ReaderCalls], broker: Any, topic: str) -> None:
    start, end = ({topic: {"0": offset, "1": offset}} for offset in (0, RECORDS // 2))
    lost = pytest.raises(DataLoss, match=f"^{topic}-1: offsets 0 to 6 are gone; the log starts at 7")
    with again(calls, broker, topic, end, startingOffsets=json.dumps(start)) as batch, lost:
        batch.tasks()


def test_repeated_batch_has_the_same_tasks_after_data_loss(calls: type[ReaderCalls], broker: Any, topic: str) -> None:
    """Spark identifies a task by its number, so a task without remaining records keeps its place."""
    start, end = ({topic: {"0": offset, "1": offset}} for offset in (0, RECORDS // 2))
    with again(calls, broker, topic, end, startingOffsets=json.dumps(start), failOnDataLoss="false") as batch:
        pieces = batch.tasks()
        assert [(each.span.start, each.span.end) for each in pieces] == [(0, 5), (5, 10), (5, 5), (7, 10)]
        assert [sum(rows.num_rows for rows in batch.stream.reader.read(InputPartition(each))) for each in pieces] == [
            5,
            5,
            0,
            3,
        ]


def test_unknown_start_of_a_repeated_batch_is_data_loss(
    calls: type[ReaderCalls], broker: Any, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Retention has moved `earliest`, and `latest` always moves. Offset 0 has not changed."""
    end = {topic: {"0": RECORDS // 2, "1": RECORDS // 2}}
    for word, places in (("earliest", f"{topic}-1"), ("latest", f"{topic}-0, {topic}-1")):
        unknown = pytest.raises(
            DataLoss, match=f"^the stream repeats its first batch.* start offsets of {places} are unknown"
        )
        with again(calls, broker, topic, end, startingOffsets=word) as batch, unknown:
            batch.tasks()
    with again(calls, broker, topic, end, startingOffsets="earliest", failOnDataLoss="false") as batch:
        assert batch.begins() == {"0": 0, "1": 7}
    assert [message for message in caplog.messages if f"the start offsets of {topic}-1 are unknown" in message]
    with again(calls, broker, topic, {topic: {"0": RECORDS // 2}}, startingOffsets="earliest") as batch:
        assert batch.begins() == {"0": 0}


def test_timestamp_start_of_a_repeated_batch_is_unchanged(calls: type[ReaderCalls], broker: Any, topic: str) -> None:
    """Unless retention has deleted records after this timestamp."""
    end = {topic: {"0": RECORDS // 2, "1": RECORDS // 2}}
    with again(calls, broker, topic, end, startingTimestamp=str(NOW + 17_000)) as batch:
        assert batch.begins() == {"0": 9, "1": 8}
    lost = again(calls, broker, topic, end, startingTimestamp=str(NOW + 1_000))
    with lost as batch, pytest.raises(DataLoss, match=f"the start offsets of {topic}-1 are unknown"):
        batch.tasks()


@pytest.mark.parametrize("word", ["earliest", "latest"])
def test_group_offsets_keep_the_start_of_the_first_batch(calls: type[ReaderCalls], broker: Any, word: str) -> None:
    """Also if the batch is repeated twice."""
    topic, group = create_topic(broker, partitions=2), unique("group")
    send(broker, topic, range(RECORDS), 2)
    options = {"startingOffsets": word, "odradek.commit.group": group, "failOnDataLoss": "false"}
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **options}
    begun = calls(ReadOptions.parse(given, streaming=True))
    begun.first()
    begun.reader.stop()
    send(broker, topic, range(4), 2)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_records([TopicPartition(topic, 1, 7)])[TopicPartition(topic, 1)].result(30)
    end = {topic: {"0": RECORDS // 2 + 2, "1": RECORDS // 2 + 2}}
    for _ in range(2):
        with again(calls, broker, topic, end, maxRecordsPerPartition="100", **options) as batch:
            assert batch.begins() == ({"0": 0, "1": 7} if word == "earliest" else dict.fromkeys("01", RECORDS // 2))


@pytest.mark.parametrize("option", ["startingOffsets", "startingOffsetsByTimestamp"])
def test_repeated_batch_excludes_partitions_added_later(calls: type[ReaderCalls], broker: Any, option: str) -> None:
    """The options' offsets are only those of the former partitions."""
    topic = create_topic(broker)
    send(broker, topic, range(RECORDS))
    at = 3 if option == "startingOffsets" else NOW + 3_000
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    with again(calls, broker, topic, {topic: {"0": RECORDS}}, **{option: json.dumps({topic: {"0": at}})}) as batch:
        assert batch.begins() == {"0": 3}


class Stream:
    """A stream whose batches are planned as by Spark; `read` has the offsets of each topic so far."""

    def __init__(self, calls: type[ReaderCalls], broker: Any, pattern: str, **options: str) -> None:
        given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribePattern": pattern, "odradek.local": "off"}
        given |= {"startingOffsets": "earliest", "failOnDataLoss": "false", "kafka.retry.backoff.ms": "20", **options}
        self.stream = calls(ReadOptions.parse(given, streaming=True))
        self.stream.first()
        self._at = self.stream.initial()
        self.read: dict[str, list[int]] = {}

    def batch(self) -> None:
        end = self.stream.next(self._at)
        for _ in range(2):  # a stream that is joined with itself reads each batch twice
            tasks = self.stream.reader.partitions(self._at, end)
        for task in tasks:
            for batch in self.stream.reader.read(task):
                for name, offset in zip(batch["topic"].to_pylist(), batch["offset"].to_pylist(), strict=True):
                    self.read.setdefault(name, []).append(offset)
        self._at = end

    def stop(self) -> None:
        self.stream.reader.stop()


@pytest.mark.parametrize("options", [{}, {"maxOffsetsPerTrigger": "3"}], ids=["all", "a few"])
def test_topic_missing_in_one_batch_is_not_read_again(
    calls: type[ReaderCalls], broker: Any, options: dict[str, str]
) -> None:
    stem = unique("seen")
    one, other = create_topic(broker, stem), create_topic(broker, stem)
    for name in (one, other):
        send(broker, name, range(6))
    with StandIn(broker.bootstrap) as stand_in:
        stream = Stream(calls, stand_in, stem, **options)
        for _ in range(3):
            stream.batch()
        with hidden(stand_in, one):
            stream.batch()
            send(broker, other, range(2))
            stream.batch()
        send(broker, one, range(4))
        for _ in range(5):
            stream.batch()
        stream.stop()
    assert stream.read == {one: list(range(10)), other: list(range(8))}


@pytest.mark.parametrize("fail", ["true", "false"])
def test_one_metadata_response_without_a_topic_loses_no_record(
    calls: type[ReaderCalls], broker: Any, fail: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each response to the driver and to the tasks lacks the topic once: a broker's metadata may be stale."""
    stem = unique("seen")
    one, other = create_topic(broker, stem), create_topic(broker, stem)
    send(broker, one, range(1))
    with StandIn(broker.bootstrap) as stand_in:
        stream = Stream(calls, stand_in, stem, failOnDataLoss=fail)
        for number in itertools.count():
            for name in (one, other):
                send(broker, name, range(2))
            stand_in.lies[METADATA] = lie = Hiding(one, {number}.__contains__)
            stream.batch()
            if not lie.hidden:
                break
        stream.stop()
    assert number > 3
    assert stream.read == {one: list(range(2 * number + 3)), other: list(range(2 * number + 2))}
    assert not [message for message in caplog.messages if "deleted" in message or "left out" in message]


def test_recreated_topic_is_read_from_its_start(calls: type[ReaderCalls], broker: Any) -> None:
    stem = unique("seen")
    one, other = create_topic(broker, stem), create_topic(broker, stem)
    for name in (one, other):
        send(broker, name, range(3))
    stream = Stream(calls, broker, stem)
    stream.batch()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([one])[one].result(30)
    send(broker, other, range(1))
    stream.batch()
    with broker.wire() as wire:
        create_named(wire, one)
    send(broker, one, range(5))
    stream.batch()
    stream.stop()
    assert stream.read == {one: [0, 1, 2, *range(5)], other: list(range(4))}


def test_available_now_excludes_later_records_and_partitions(broker: Any) -> None:
    """The next query reads them."""
    topic = create_topic(broker)
    send(broker, topic, range(RECORDS))
    stream = Stream(CurrentCalls, broker, topic, maxOffsetsPerTrigger="8", minOffsetsPerTrigger="7")
    stream.stop()
    stream = Stream(CurrentCalls, broker, topic, maxOffsetsPerTrigger="8", minOffsetsPerTrigger="7")
    reader = stream.stream.reader
    assert isinstance(reader, AdmissionReader)
    reader.prepareForTriggerAvailableNow()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    send(broker, topic, range(RECORDS), 2)
    counts = []
    for _ in range(5):
        stream.batch()
        counts.append(len(stream.read[topic]))
        assert reader.reportLatestOffset() == {topic: {"0": RECORDS}}
    assert counts == [8, 16, 20, 20, 20]
    stream.stop()


def test_topic_missing_when_available_now_fixes_its_end_loses_no_record(broker: Any) -> None:
    """The next batch reads the topic, and its records are neither lost nor read again."""
    stem = unique("seen")
    one, other = create_topic(broker, stem), create_topic(broker, stem)
    for name in (one, other):
        send(broker, name, range(4))
    with StandIn(broker.bootstrap) as stand_in:
        stream = Stream(CurrentCalls, stand_in, stem, failOnDataLoss="true")
        stream.batch()
        for name in (one, other):
            send(broker, name, range(3))
        stand_in.lies[METADATA] = Hiding(one, {0}.__contains__)
        assert isinstance(stream.stream.reader, AdmissionReader)
        stream.stream.reader.prepareForTriggerAvailableNow()
        stream.batch()
        stream.stop()
    assert stream.read == {one: list(range(7)), other: list(range(7))}


def test_trigger_once_ignores_max_offsets_per_trigger(broker: Any) -> None:
    """Trigger.Once reads all available records in one batch."""
    topic = create_topic(broker)
    send(broker, topic, range(RECORDS))
    stream = Stream(CurrentCalls, broker, topic, maxOffsetsPerTrigger="8", minOffsetsPerTrigger="8")
    reader = stream.stream.reader
    assert isinstance(reader, AdmissionReader)
    assert reader.getDefaultReadLimit() == ReadMaxRows(8)
    assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable()) == {topic: {"0": RECORDS}}
    stream.stop()
