"""Implements `odradek verifiable-consumer`; the events are those of Kafka's VerifiableConsumer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click
from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import FencedInstanceIdError, KafkaError
from kafka.structs import OffsetAndMetadata

from odradek.broker.commands._shared.codecs import register
from odradek.broker.commands._shared.consumer import open_consumer
from odradek.broker.commands._shared.events import emit
from odradek.broker.commands._shared.properties import client_config

POLL_MS = 500
_ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
    "org.apache.kafka.clients.consumer.RangeAssignor": RangePartitionAssignor,
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": RoundRobinPartitionAssignor,
    "org.apache.kafka.clients.consumer.StickyAssignor": StickyPartitionAssignor,
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": CooperativeStickyAssignor,
}

Batch = tuple[TopicPartition, Sequence[Any]]


def run(options: Mapping[str, Any], properties: Mapping[str, str]) -> None:
    """Read until the options' limit or a signal."""
    consumer = open_consumer(options["bootstrap_server"], _config(options, properties))
    try:
        emit("startup_complete")
        consumer.partitions_for_topic(options["topic"])  # else it may join without knowing them, and is assigned none
        consumer.subscribe([options["topic"]], listener=Rebalances())
        _read(consumer, options)
    finally:
        consumer.close()
        emit("shutdown_complete")


def _config(options: Mapping[str, Any], properties: Mapping[str, str]) -> dict[str, Any]:
    """As in Kafka's tool, the options override the file."""
    register()
    strategy = options["assignment_strategy"]
    if strategy not in _ASSIGNORS:
        raise click.UsageError(f"--assignment-strategy must be one of {', '.join(_ASSIGNORS)}, not '{strategy}'")
    config = client_config(properties, KafkaConsumer.DEFAULT_CONFIG)
    config.setdefault("metrics_enabled", False)
    if options["group_instance_id"]:
        config["group_instance_id"] = options["group_instance_id"]
    return config | {
        "group_id": options["group_id"],
        "enable_auto_commit": options["enable_autocommit"],
        "auto_offset_reset": options["reset_policy"],
        "session_timeout_ms": options["session_timeout"],
        "partition_assignment_strategy": (_ASSIGNORS[strategy],),
    }


def _read(consumer: KafkaConsumer, options: Mapping[str, Any]) -> None:
    left = options["max_messages"]
    while left:
        polled = consumer.poll(POLL_MS)
        if not polled:
            continue
        batches = list(_limited(polled, left))
        _emit_batches(batches, sum(map(len, polled.values())), verbose=options["verbose"])
        if not options["enable_autocommit"]:
            _commit(consumer, batches)
        if left > 0:
            left -= sum(len(records) for _, records in batches)


def _limited(polled: Mapping[TopicPartition, Sequence[Any]], left: int) -> Iterator[Batch]:
    """The records of each partition, no more than `left` in all unless that is negative."""
    for partition, records in polled.items():
        taken = records if left < 0 else records[:left]
        if left > 0:
            left -= len(taken)
        if taken:
            yield partition, taken
        if left == 0:
            return


def _emit_batches(batches: Iterable[Batch], count: int, *, verbose: bool) -> None:
    if verbose:
        for _, records in batches:
            for record in records:
                _emit_record(record)
    summaries = [
        _where(partition) | {"count": len(records), "minOffset": records[0].offset, "maxOffset": records[-1].offset}
        for partition, records in batches
    ]
    emit("records_consumed", count=count, partitions=summaries)


def _emit_record(record: Any) -> None:
    emit("record_data", key=_text(record.key), value=_text(record.value), **_where(record), offset=record.offset)


def _commit(consumer: KafkaConsumer, batches: Iterable[Batch]) -> None:
    offsets = {partition: records[-1].offset + 1 for partition, records in batches}
    done: dict[str, Any] = {"offsets": [_where(one) | {"offset": offset} for one, offset in offsets.items()]}
    try:
        consumer.commit({one: OffsetAndMetadata(offset, "", -1) for one, offset in offsets.items()})
    except FencedInstanceIdError:
        raise
    except KafkaError as error:
        emit("offsets_committed", **done, error=str(error), success=False)
    else:
        emit("offsets_committed", **done, success=True)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")


def _where(one: Any) -> dict[str, Any]:
    return {"topic": one.topic, "partition": one.partition}


class Rebalances(ConsumerRebalanceListener):  # type: ignore[misc]  # the library has no types
    """Prints an event for each assignment."""

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """After a rebalance."""
        emit("partitions_assigned", partitions=[_where(one) for one in sorted(assigned)])

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Before a rebalance; without partitions, before the first one, there is nothing to print."""
        if revoked:
            emit("partitions_revoked", partitions=[_where(one) for one in sorted(revoked)])
