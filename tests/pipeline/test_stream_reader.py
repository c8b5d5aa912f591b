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

from ..clients.admin import create_topic
from .topics import send

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
