"""A single-partition topic on a real broker, its files, and the records that a consumer reads from chunks of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from odradek.pipeline.reading import segments
from odradek.pipeline.types import Chunk, Range, ReplicaPlace
from odradek.pipeline.wire.holes import Holes
from odradek.protocol.records import batch_v2, control, convert
from odradek.storage.files.checkpoints import read_meta_properties

from ..clients.admin import create_topic, topic_id, unique
from ..clients.raw.batches import batch
from ..clients.raw.calls import list_offsets, produce
from ..harness.broker import Broker

Row = tuple[int, bytes | None]
"""Offset and value."""


class Local:
    """Topic `name`, created with `config` (`_` stands for `.`)."""

    def __init__(self, broker: Broker, **config: Any) -> None:
        self.broker = broker
        self.name = create_topic(broker, "segments", **config)

    @property
    def directory(self) -> str:
        return str(self.broker.data_dir / f"{self.name}-0")

    @property
    def id(self) -> bytes:
        with self.broker.wire() as wire:
            return topic_id(wire, self.name).bytes

    def put(self, batches: Iterable[Iterable[bytes]], **fields: Any) -> None:
        """Produce each item as one batch."""
        with self.broker.wire() as wire:
            for values in batches:
                answer = produce(wire, self.name, batch(list(values), **fields))
                assert answer.error_code == 0, answer

    def end(self, committed: bool = False) -> int:
        """The high watermark, or the last stable offset."""
        with self.broker.wire() as wire:
            return int(list_offsets(wire, self.name, -1, isolation=int(committed)).offset)

    def range(self, start: int = 0, end: int | None = None, committed: bool = False) -> Range:
        return Range(self.name, 0, start, self.end(committed) if end is None else end)

    def chunks(self, start: int = 0, end: int | None = None, committed: bool = False) -> Iterator[Chunk]:
        """Copies: the reader gives the next chunk the memory of the last."""
        for chunk in self.read_range(self.range(start, end, committed), committed):
            yield chunk._replace(data=bytes(chunk.data))

    def read_range(self, what: Range, committed: bool = False, directory: Any = None) -> Iterator[Chunk]:
        """Read from the files of this topic's directory, or of another one."""
        with Holes({"bootstrap.servers": self.broker.bootstrap}, what) as holes:
            yield from segments.read(str(directory or self.directory), what, committed, holes)

    def read(self, start: int = 0, end: int | None = None, committed: bool = False) -> list[Row]:
        """The records that a consumer gets when it reads the range from the files."""
        what = self.range(start, end, committed)
        return rows(self.read_range(what, committed), what)

    def usable(self, **other: Any) -> bool:
        """Whether the files are usable; `other`: wrong values of cluster_id, leader_id, topic_id or directory."""
        identity = read_meta_properties(self.broker.data_dir)
        assert identity is not None
        right: dict[str, Any] = {"cluster_id": identity.cluster_id, "leader_id": identity.node_id, **other}
        place = ReplicaPlace(0, str(right.pop("directory", self.directory)))
        if "topic_id" not in right:
            right["topic_id"] = self.id
        return segments.usable(place, **right)

    def consumed(self, isolation: str = "read_uncommitted") -> list[Row]:
        """The records that a librdkafka consumer gets over the wire, up to the end."""
        from confluent_kafka import Consumer, TopicPartition

        config = {"group.id": unique("reader"), "enable.partition.eof": True, "isolation.level": isolation}
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "enable.auto.commit": False, **config})
        consumer.assign([TopicPartition(self.name, 0, 0)])
        found: list[Row] = []
        try:
            while (message := consumer.poll(60)) is not None:
                if message.error():
                    return found
                found.append((message.offset() or 0, message.value()))
            raise AssertionError("the consumer did not reach the end of the partition")
        finally:
            consumer.close()


def rows(chunks: Iterable[Chunk], what: Range) -> list[Row]:
    """The records of the range in its chunks; AssertionError if offsets do not rise or lie outside the range."""
    found: list[Row] = []
    after = what.start
    for chunk in chunks:
        for piece in convert.split(chunk.data):
            head = batch_v2.header(piece)
            assert after <= head.last_offset and head.base_offset < what.end, (after, head, what)
            assert after <= head.base_offset or after == what.start, (after, head)
            after = head.last_offset + 1
        assert sum(len(piece) for piece in convert.split(chunk.data)) == len(chunk.data), (
            "the chunk ends within a batch"
        )
        assert after <= chunk.until <= max(after, what.end)
        found += [row for row in _of_chunk(chunk) if what.start <= row[0] < what.end]
    return found


def _of_chunk(chunk: Chunk) -> Iterator[Row]:
    """As a consumer filters a fetch response: drop aborted records from their first offset up to their marker."""
    waiting, leaving = list(chunk.aborted), set()
    assert waiting == sorted(waiting, key=lambda one: one[1])
    for piece in convert.split(chunk.data):
        head = batch_v2.header(piece)
        while waiting and waiting[0][1] <= head.last_offset:
            leaving.add(waiting.pop(0)[0])
        if head.is_control:
            if head.num_records and control.read_marker(piece)[0] == control.ABORT:
                leaving.discard(head.producer_id)
        elif head.producer_id not in leaving:
            yield from ((row[0], row[3]) for row in batch_v2.iterate(piece))
