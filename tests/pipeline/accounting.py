"""The fate of each offset of a partition, as other clients see it: librdkafka's consumers and kafka-python's batches.

The module uses no code of the pipeline, so its result is an independent check of the pipeline's reader.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition
from kafka.record.memory_records import MemoryRecords

from ..clients.admin import unique
from ..clients.raw.calls import fetch
from ..harness.cluster import Cluster

RECORD, ABORTED, CONTROL, COMPACTED, DELETED = "record", "aborted", "control", "compacted", "deleted"
WAIT = 60


class Seen(NamedTuple):
    """A record, as both sides can tell it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...]


class Account(NamedTuple):
    """The fate of each offset from 0 to the last stable offset, and the records at each isolation level."""

    fates: list[str]
    committed: list[Seen]
    uncommitted: list[Seen]

    @property
    def stable(self) -> int:
        return len(self.fates)


def account(broker: Any, topic: str, partition: int = 0) -> Account:
    """The account of a partition without active producers. AssertionError if the clients contradict each other."""
    where = TopicPartition(topic, partition)
    first, _ = _bounds(broker, where)
    committed, stable = consumed(broker, topic, "read_committed", partition)
    uncommitted, _ = consumed(broker, topic, "read_uncommitted", partition)
    control, batches = _batches(broker, where, first)
    shown, all_of_them = {one.offset for one in committed}, {one.offset for one in uncommitted}
    fates = [_fate(at, first, shown, all_of_them, control) for at in range(stable)]
    assert shown <= all_of_them
    assert not control & all_of_them
    assert all(at in batches for at, fate in enumerate(fates) if fate not in (COMPACTED, DELETED))
    return Account(fates, committed, [one for one in uncommitted if one.offset < stable])


def _fate(at: int, first: int, shown: set[int], all_of_them: set[int], control: set[int]) -> str:
    if at < first:
        return DELETED
    if at in control:
        return CONTROL
    if at in all_of_them:
        return RECORD if at in shown else ABORTED
    return COMPACTED


def consumed(broker: Any, topic: str, isolation: str, partition: int = 0) -> tuple[list[Seen], int]:
    """The records that a consumer of this isolation level gets from a partition, and its position at the end."""
    settings = {"group.id": unique("reader"), "enable.partition.eof": True, "isolation.level": isolation}
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "enable.auto.commit": False, "auto.offset.reset": "earliest"} | settings
    )
    consumer.assign([TopicPartition(topic, partition, _bounds(broker, TopicPartition(topic, partition))[0])])
    found: list[Seen] = []
    try:
        while (message := consumer.poll(WAIT)) is not None:
            offset, error = message.offset(), message.error()
            assert error is None or error.code() == KafkaError._PARTITION_EOF, error
            assert offset is not None
            if error is not None:
                return found, offset
            pairs: Any = message.headers() or ()  # the type also allows a dict
            headers = tuple((name, value) for name, value in pairs)
            found.append(Seen(offset, message.key(), message.value(), message.timestamp()[1], headers))
        raise AssertionError("the consumer did not reach the end of the partition")
    finally:
        consumer.close()


def _bounds(broker: Any, where: TopicPartition) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
    try:
        first, end = consumer.get_watermark_offsets(where, WAIT)
        return first, end
    finally:
        consumer.close()


def _batches(broker: Any, where: TopicPartition, first: int) -> tuple[set[int], set[int]]:
    """The offsets of control records, and all offsets that batches span, from the log start offset on."""
    control: set[int] = set()
    spanned: set[int] = set()
    at, end = first, _bounds(broker, where)[1]
    with _leader(broker, where).wire() as wire:
        while at < end:
            part = fetch(wire, where.topic, at, partition=where.partition)
            batches = list(MemoryRecords(bytes(part.records or b"")))
            if not batches:
                break
            for one in batches:
                assert one.validate_crc()
                spanned.update(range(one.base_offset, one.last_offset + 1))
                if one.is_control_batch:
                    control.update(range(one.base_offset, one.last_offset + 1))
            at = batches[-1].last_offset + 1
    return control, spanned


def _leader(broker: Any, where: TopicPartition) -> Any:
    """The single broker, or the leader in a cluster."""
    if not isinstance(broker, Cluster):
        return broker
    return broker.broker(broker.wait_leader(where.topic, where.partition))
