"""Implements `odradek delete-records`; the output lines are those of Kafka's DeleteRecordsCommand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click
from kafka.protocol.admin import DeleteRecordsRequest

from odradek.broker.commands._shared.client import TIMEOUT_MS, Cluster, Partition
from odradek.broker.commands._shared.java_errors import java_error
from odradek.broker.commands._shared.partitions import by_topic, from_file, names, repeated
from odradek.broker.errors import OdradekError
from odradek.protocol.wire import INT64_MAX


def read_offsets(path: str) -> dict[Partition, int]:
    """The first offset to keep in each partition of a file."""
    rows = from_file(path)
    if twice := repeated([(topic, index) for topic, index, _ in rows]):
        raise OdradekError(f"Offset json file contains duplicate topic partitions: {names(twice)}")
    return {(topic, index): _offset(path, topic, index, row.get("offset")) for topic, index, row in rows}


def _offset(path: str, topic: str, index: int, value: Any) -> int:
    """Not what int() makes of true, 1e3 or "7": records are deleted by it. Kafka's decoder takes whole numbers only."""
    if type(value) is not int or not ~INT64_MAX <= value <= INT64_MAX:
        needs = 'each partition needs a number as "offset", whole and of 64 bits'
        raise OdradekError(f"{path}: {needs}: {topic}-{index} has {value!r}")
    return value


def delete(cluster: Cluster, offsets: Mapping[Partition, int]) -> None:
    """Delete the records before `offsets`, and print the new start of each log, or why it did not change."""
    click.echo("Executing records delete operation")
    leaders, failed = cluster.leaders(offsets)
    found = {one: f"error: {java_error(code)}" for one, code in failed.items()}
    for node, partitions in leaders.items():
        found |= _results(cluster.send(_request(partitions, offsets), node))
    click.echo("Records delete operation completed:")
    for (topic, index), text in sorted(found.items()):
        click.echo(f"partition: {topic}-{index}\t{text}")


def _request(partitions: Iterable[Partition], offsets: Mapping[Partition, int]) -> Any:
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    part = topic.DeleteRecordsPartition
    return DeleteRecordsRequest(
        topics=[
            topic(name=name, partitions=[part(partition_index=i, offset=offsets[name, i]) for i in indexes])
            for name, indexes in by_topic(partitions).items()
        ],
        timeout_ms=TIMEOUT_MS,
    )


def _results(response: Any) -> dict[Partition, str]:
    return {
        (topic.name, part.partition_index): f"error: {java_error(part.error_code)}"
        if part.error_code
        else f"low_watermark: {part.low_watermark}"
        for topic in response.topics
        for part in topic.partitions
    }
