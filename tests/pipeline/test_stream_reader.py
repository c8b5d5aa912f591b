"""A stream's first batch done again, as Spark asks for it: the reader is told where it ends, says where it began."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from odradek.pipeline.errors import DataLoss
from odradek.pipeline.options import ReadOptions
from odradek.pipeline.reading.reader import StreamReader
from odradek.pipeline.reading.splits import Split

from ..clients.admin import create_named, create_topic, unique
from .stand_in import METADATA, StandIn
from .topics import NOW, send

RECORDS = 20


@contextmanager
def again(broker: Any, topic: str, end: dict[str, Any], **options: str) -> Iterator[StreamReader]:
    """One that goes on from a checkpoint that has the end of batch 0 alone."""
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "maxRecordsPerPartition": "5", **options}
    reader = StreamReader(ReadOptions.parse(given, streaming=True))
    try:
        assert reader.partitions(end, end) == []
        yield reader
    finally:
        reader.stop()


@pytest.fixture
def topic(broker: Any) -> str:
    """Of two partitions, then three; retention has removed the first seven offsets of one of them."""
    name = create_topic(broker, partitions=2)
    send(broker, name, range(RECORDS), 2)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(name, 3)])[name].result(30)
    admin.delete_records([TopicPartition(name, 1, 7)])[TopicPartition(name, 1)].result(30)
    return name


def test_it_begins_where_it_began(broker: Any, topic: str) -> None:
    start, end = ({topic: {"0": offset, "1": offset}} for offset in (0, RECORDS // 2))
    with again(broker, topic, end, startingOffsets=json.dumps(start)) as reader:
        assert reader.initialOffset() == start
        with pytest.raises(DataLoss, match=f"^{topic}-1: offsets 0 to 6 are gone, the log begins at 7"):
            reader.partitions(start, end)


def test_the_cut_is_the_same_though_something_is_lost(broker: Any, topic: str) -> None:
    """A task is known by its number: one without anything left keeps its place."""
    start, end = ({topic: {"0": offset, "1": offset}} for offset in (0, RECORDS // 2))
    with again(broker, topic, end, startingOffsets=json.dumps(start), failOnDataLoss="false") as reader:
        pieces = [piece for piece in reader.partitions(start, end) if isinstance(piece, Split)]
        assert [(each.span.start, each.span.end) for each in pieces] == [(0, 5), (5, 10), (5, 5), (7, 10)]
        assert [sum(batch.num_rows for batch in reader.read(each)) for each in pieces] == [5, 5, 0, 3]


def test_where_it_began_may_be_unknown(broker: Any, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    """Retention has moved `earliest`; `latest` always moves. Offset 0 is where it was."""
    end = {topic: {"0": RECORDS // 2, "1": RECORDS // 2}}
    for word, places in (("earliest", f"{topic}-1"), ("latest", f"{topic}-0, {topic}-1")):
        unknown = pytest.raises(DataLoss, match=f"^the stream's first batch .* where it began in {places} is not known")
        with again(broker, topic, end, startingOffsets=word) as reader, unknown:
            reader.initialOffset()
    with again(broker, topic, end, startingOffsets="earliest", failOnDataLoss="false") as reader:
        assert reader.initialOffset() == {topic: {"0": 0, "1": 7}}
    assert [message for message in caplog.messages if f"where it began in {topic}-1 is not known" in message]
    with again(broker, topic, {topic: {"0": RECORDS // 2}}, startingOffsets="earliest") as reader:
        assert reader.initialOffset() == {topic: {"0": 0}}


def test_a_time_is_where_it_was(broker: Any, topic: str) -> None:
    """Unless the log has lost its front behind it."""
    end = {topic: {"0": RECORDS // 2, "1": RECORDS // 2}}
    with again(broker, topic, end, startingTimestamp=str(NOW + 17_000)) as reader:
        assert reader.initialOffset() == {topic: {"0": 9, "1": 8}}
    lost = again(broker, topic, end, startingTimestamp=str(NOW + 1_000))
    with lost as reader, pytest.raises(DataLoss, match=f"where it began in {topic}-1 is not known any more"):
        reader.initialOffset()


@pytest.mark.parametrize("word", ["earliest", "latest"])
def test_the_group_has_noted_where_it_began(broker: Any, word: str) -> None:
    topic, group = create_topic(broker, partitions=2), unique("group")
    send(broker, topic, range(RECORDS), 2)
    options = {"startingOffsets": word, "odradek.commit.group": group}
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **options}
    begun = StreamReader(ReadOptions.parse(given, streaming=True))
    begun.latestOffset()
    start = begun.initialOffset()
    begun.stop()
    send(broker, topic, range(4), 2)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_records([TopicPartition(topic, 1, 7)])[TopicPartition(topic, 1)].result(30)
    end = {topic: {"0": RECORDS // 2 + 2, "1": RECORDS // 2 + 2}}
    with again(broker, topic, end, **options) as reader:
        assert (
            reader.initialOffset() == start == {topic: dict.fromkeys("01", 0 if word == "earliest" else RECORDS // 2)}
        )


@contextmanager
def hidden(stand_in: StandIn, topic: str) -> Iterator[None]:
    """Metadata answers leave the topic out, as a broker's may that has just begun."""

    def lie(_: Any, true: Any) -> Any:
        true.topics = [one for one in true.topics if one.name != topic]
        return true

    stand_in.lies[METADATA] = lie
    yield
    del stand_in.lies[METADATA]


class Stream:
    """Batches as Spark plans them; `read` are the offsets of each topic so far."""

    def __init__(self, broker: Any, pattern: str, **options: str) -> None:
        given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribePattern": pattern, "odradek.local": "off"}
        given |= {"startingOffsets": "earliest", "failOnDataLoss": "false", **options}
        self.reader = StreamReader(ReadOptions.parse(given, streaming=True))
        self.reader.latestOffset()
        self._at = self.reader.initialOffset()
        self.read: dict[str, list[int]] = {}

    def batch(self) -> None:
        end = self.reader.latestOffset()
        for _ in range(2):  # as where the stream is joined with itself
            tasks = self.reader.partitions(self._at, end)
        for task in tasks:
            for batch in self.reader.read(task):
                for name, offset in zip(batch["topic"].to_pylist(), batch["offset"].to_pylist(), strict=True):
                    self.read.setdefault(name, []).append(offset)
        self._at = end


@pytest.mark.parametrize("options", [{}, {"maxOffsetsPerTrigger": "3"}], ids=["all", "a few"])
def test_a_partition_that_is_missing_for_once_is_not_new(broker: Any, options: dict[str, str]) -> None:
    stem = unique("seen")
    one, other = create_topic(broker, stem), create_topic(broker, stem)
    for name in (one, other):
        send(broker, name, range(6))
    with StandIn(broker.bootstrap) as stand_in:
        stream = Stream(stand_in, stem, **options)
        for _ in range(3):
            stream.batch()
        with hidden(stand_in, one):
            stream.batch()
            send(broker, other, range(2))
            stream.batch()
        send(broker, one, range(4))
        for _ in range(5):
            stream.batch()
        stream.reader.stop()
    assert stream.read == {one: list(range(10)), other: list(range(8))}


def test_a_partition_of_a_topic_made_anew_is_new(broker: Any) -> None:
    stem = unique("seen")
    one, other = create_topic(broker, stem), create_topic(broker, stem)
    for name in (one, other):
        send(broker, name, range(3))
    stream = Stream(broker, stem)
    stream.batch()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([one])[one].result(30)
    send(broker, other, range(1))
    stream.batch()
    with broker.wire() as wire:
        create_named(wire, one)
    send(broker, one, range(5))
    stream.batch()
    stream.reader.stop()
    assert stream.read == {one: [0, 1, 2, *range(5)], other: list(range(4))}
