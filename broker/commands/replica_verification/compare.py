"""Implements `odradek replica-verification`.

Each round fetches from each broker from the same offsets on, and compares the batches that all replicas returned.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import takewhile
from typing import Any, NamedTuple

import click
from kafka.errors import KafkaError
from kafka.protocol.consumer import FetchRequest

from odradek.broker.commands._shared.client import Cluster, Partition, explain
from odradek.broker.commands._shared.filters import TopicFilter
from odradek.broker.commands._shared.partitions import by_topic
from odradek.broker.errors import OdradekError

_DEBUGGING = -2  # as replica id: followers answer it too
_LATEST = -1
_PAUSE = 0.2  # s after a round without new records, for brokers that do not wait


class Batch(NamedTuple):
    """The compared fields of a batch."""

    last_offset: int
    checksum: int


class ReplicaResponse(NamedTuple):
    """One replica's response from an offset on."""

    high_watermark: int
    batches: list[Batch]


def run(cluster: Cluster, topic_filter: TopicFilter, options: Mapping[str, Any]) -> None:
    """Compare until the process ends. Raises OdradekError when replicas have different offsets."""
    replicas = _replicas(cluster, topic_filter)
    if not replicas:
        raise OdradekError("no topic matches")
    offsets = _offsets(cluster, replicas, options["time"])
    _say("verification process is started")
    reported = time.monotonic()
    while True:
        found = _fetch(cluster, replicas, offsets, options)
        moved = {one: _compare(one, of_each, offsets[one]) for one, of_each in found.items()}
        idle = moved == {one: offsets[one] for one in moved}
        offsets |= moved
        if time.monotonic() - reported >= options["report_interval_ms"] / 1000:
            _report(found, offsets)
            reported = time.monotonic()
        if idle:
            time.sleep(_PAUSE)


def _replicas(cluster: Cluster, topic_filter: TopicFilter) -> dict[Partition, list[int]]:
    return {
        (topic.name, part.partition_index): list(part.replica_nodes)
        for topic in cluster.metadata().topics
        if topic_filter(topic.name)
        for part in topic.partitions
    }


def _offsets(cluster: Cluster, partitions: Mapping[Partition, Any], timestamp: int) -> dict[Partition, int]:
    """The start offsets; the log end where there is no later record."""
    found, failed = cluster.offsets(dict.fromkeys(partitions, timestamp))
    late = [one for one, (offset, _) in found.items() if offset < 0]
    if late:
        ends, more = cluster.offsets(dict.fromkeys(late, _LATEST))
        found, failed = found | ends, failed | more
    for (topic, index), code in failed.items():
        raise OdradekError(f"{topic}-{index}: {explain(code)}")
    return {one: offset for one, (offset, _) in found.items()}


def _fetch(
    cluster: Cluster, replicas: Mapping[Partition, list[int]], offsets: Mapping[Partition, int],
    options: Mapping[str, Any],
) -> dict[Partition, dict[int, ReplicaResponse]]:  # fmt: skip
    """The records of each replica by its broker; none where a broker does not answer or returns an error."""
    brokers = sorted({broker for one in replicas.values() for broker in one})
    requests = {
        broker: _request({o: offsets[o] for o in replicas if broker in replicas[o]}, options) for broker in brokers
    }
    found = {one: dict.fromkeys(of, ReplicaResponse(-1, [])) for one, of in replicas.items()}
    for broker, response in cluster.send_each(requests).items():
        if isinstance(response, KafkaError):
            _say(f"broker {broker} does not respond: {response}")
            continue
        for topic in response.responses:
            for part in topic.partitions:
                found[topic.topic, part.partition_index][broker] = _found(broker, topic.topic, part)
    return found


def _request(offsets: Mapping[Partition, int], options: Mapping[str, Any]) -> Any:
    make = FetchRequest.FetchTopic
    topics = [
        make(
            topic=topic,
            partitions=[
                make.FetchPartition(
                    partition=index,
                    fetch_offset=offsets[topic, index],
                    log_start_offset=-1,
                    partition_max_bytes=options["fetch_size"],
                )
                for index in indexes
            ],
        )
        for topic, indexes in by_topic(offsets).items()
    ]
    return FetchRequest(
        replica_id=_DEBUGGING, max_wait_ms=options["max_wait_ms"], min_bytes=1, topics=topics, forgotten_topics_data=[],
        min_version=4, max_version=12,  # from 13 on topics have ids instead of names
    )  # fmt: skip


def _found(broker: int, topic: str, part: Any) -> ReplicaResponse:
    if part.error_code:
        _say(
            f"partition {topic}-{part.partition_index}: replica {broker} returned an error: {explain(part.error_code)}"
        )
        return ReplicaResponse(-1, [])
    return ReplicaResponse(part.high_watermark, list(_batches(bytes(part.records or b""))))


def _batches(data: bytes) -> Iterator[Batch]:
    """Whole batches, or messages from before 0.11; the last one is often truncated."""
    position = 0
    while position + 17 <= len(data):
        offset, size = int.from_bytes(data[position : position + 8]), int.from_bytes(data[position + 8 : position + 12])
        body = data[position + 12 : position + 12 + size]
        if len(body) < size:
            return
        if body[4] >= 2:  # magic: epoch, magic, CRC, attributes, last offset's distance
            yield Batch(offset + int.from_bytes(body[11:15]), int.from_bytes(body[5:9]))
        else:
            yield Batch(offset, int.from_bytes(body[:4]))
        position += 12 + size


def _compare(partition: Partition, of_each: Mapping[int, ReplicaResponse], offset: int) -> int:
    """Report differences; returns the offset after the last batch below all replicas' high watermarks."""
    comparable = [
        [(broker, batch) for batch in takewhile(_committed(found), found.batches)] for broker, found in of_each.items()
    ]
    for row in zip(*comparable, strict=False):
        (first, expected), *others = row
        for broker, batch in others:
            _check(partition, first, expected, broker, batch)
        offset = expected.last_offset + 1
    return offset


def _committed(found: ReplicaResponse) -> Any:
    return lambda batch: batch.last_offset < found.high_watermark


def _check(partition: Partition, first: int, expected: Batch, broker: int, batch: Batch) -> None:
    name = f"partition {partition[0]}-{partition[1]}"
    if batch.last_offset != expected.last_offset:
        _say(
            f"{name}: replica {first}'s offset {expected.last_offset} doesn't match "
            f"replica {broker}'s offset {batch.last_offset}"
        )
        raise OdradekError(f"the replicas of {name} have different offsets")
    if batch.checksum != expected.checksum:
        _say(
            f"{name} has unmatched checksum at offset {batch.last_offset}; replica {first}'s checksum "
            f"{expected.checksum}; replica {broker}'s checksum {batch.checksum}"
        )


def _report(found: Mapping[Partition, Mapping[int, ReplicaResponse]], offsets: Mapping[Partition, int]) -> None:
    """Print the partition with the largest lag, and its lag."""
    lags = {
        one: max(replica.high_watermark for replica in of_each.values()) - offsets[one]
        for one, of_each in found.items()
    }
    worst = max(lags, key=lambda one: lags[one])
    _say(
        f"max lag is {lags[worst]} for partition {worst[0]}-{worst[1]} at offset {offsets[worst]} "
        f"among {len(found)} partitions"
    )


def _say(text: str) -> None:
    """Print a line with the time in Kafka's format."""
    click.echo(f"{datetime.now():%Y-%m-%d %H:%M:%S,%f}"[:-3] + f": {text}")
