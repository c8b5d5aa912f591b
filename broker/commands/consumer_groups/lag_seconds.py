"""`odradek consumer-groups --describe --lag-seconds`: the age of the record that a group reads next.

The same number as `odradek_consumer_group_lag_seconds` of the exporter (broker/exporter/group_lag.py), over the wire,
so that it is exact with any broker: Fetch returns the batch at the committed offset, and its record has the time.

Requests go to all leaders at once, each for many partitions. A first pass asks for little of each partition. A broker
leaves out a batch that is larger, except the first of a response (KIP-74), so later passes ask for more of fewer
partitions, the last one for a single one: none holds more than a response of _RESPONSE, or one batch.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import click
from kafka.errors import KafkaError, OffsetOutOfRangeError
from kafka.protocol.consumer import FetchRequest

from odradek.broker.commands._shared.client import Cluster, Partition, explain
from odradek.broker.commands._shared.partitions import by_topic
from odradek.protocol.records.errors import RecordError
from odradek.protocol.records.record_times import first_entry, timestamp_at

_RESPONSE = 8 << 20  # bytes: of records in one response
_PASSES = (4 << 10, 64 << 10, 1 << 20, _RESPONSE)  # bytes of each partition
_MOST = 1000  # partitions of one request
_EARLIEST = -2
_NO_TIME = -1

Offsets = Mapping[Partition, int]


class Found(NamedTuple):
    """Timestamps in ms since 1970, _NO_TIME where there is no record to read; and what failed, and why."""

    times: dict[Partition, int]
    failed: dict[Partition, str]


def lag_seconds(cluster: Cluster, committed: Offsets, ends: Offsets) -> dict[Partition, float | None]:
    """The lag in seconds of each partition: 0 where all is read, None where it is not known, which is warned of."""
    behind = {one: offset for one, offset in committed.items() if offset < ends.get(one, offset)}
    found = timestamps(cluster, behind)
    _warn(found.failed)
    now_ms = int(time.time() * 1000)
    known = {one: max(0, now_ms - ms) / 1000 for one, ms in found.times.items() if ms > _NO_TIME}
    return {one: known.get(one) if one in behind else 0.0 for one in committed if one in ends}


def _warn(failed: Mapping[Partition, str]) -> None:
    """One line for each topic and reason: a group may have thousands of partitions."""
    reasons: dict[tuple[str, str], int] = {}
    for (topic, _), why in sorted(failed.items()):
        reasons[topic, why] = reasons.get((topic, why), 0) + 1
    for (topic, why), count in reasons.items():
        click.echo(f"Warning: no lag in seconds of {count} partition(s) of {topic}: {why}", err=True)


def timestamps(cluster: Cluster, offsets: Offsets) -> Found:
    """The timestamp of the first record of each partition from its offset on; of the log start if that is later."""
    found, gone = _fetched(cluster, offsets)
    if gone:  # retention has deleted what the group would read next
        starts, failed = cluster.offsets(dict.fromkeys(gone, _EARLIEST))
        later, still = _fetched(cluster, {one: offset for one, (offset, _) in starts.items()})
        texts = {one: explain(code) for one, code in failed.items()}
        texts |= dict.fromkeys(still, explain(OffsetOutOfRangeError.errno))
        found = Found(found.times | later.times, found.failed | later.failed | texts)
    return found


def _fetched(cluster: Cluster, offsets: Offsets) -> tuple[Found, list[Partition]]:
    """The timestamps, and the partitions that do not have the offset (OFFSET_OUT_OF_RANGE)."""
    if not offsets:
        return Found({}, {}), []
    leaders, codes = cluster.leaders(offsets)
    search = _Search(offsets, {one: explain(code) for one, code in codes.items()})
    left = leaders
    for limit in _PASSES:
        for requests in _rounds(left, max(1, min(_MOST, _RESPONSE // limit))):
            answers = cluster.send_each({n: _request(some, offsets, limit) for n, some in requests.items()})
            search.record(requests, answers)
        left = {node: search.open(partitions) for node, partitions in left.items()}
    times = {one: search.times.get(one, _NO_TIME) for some in leaders.values() for one in some}
    return Found({one: ms for one, ms in times.items() if one not in search.closed}, search.failed), search.gone


def _rounds(left: Mapping[int, Sequence[Partition]], most: int) -> Iterator[dict[int, Sequence[Partition]]]:
    """The partitions of each leader in pieces of at most `most`, the first pieces of all leaders together."""
    pieces = {node: [some[at : at + most] for at in range(0, len(some), most)] for node, some in left.items()}
    for turn in range(max(map(len, pieces.values()), default=0)):
        yield {node: some[turn] for node, some in pieces.items() if turn < len(some)}


def _request(partitions: Iterable[Partition], offsets: Offsets, limit: int) -> Any:
    """A Fetch that does not wait, of at most `limit` bytes a partition, as a consumer sends it."""
    topic = FetchRequest.FetchTopic
    part = topic.FetchPartition
    topics = [
        topic(
            topic=name,
            partitions=[
                part(partition=i, fetch_offset=offsets[name, i], log_start_offset=-1, partition_max_bytes=limit)
                for i in indexes
            ],
        )
        for name, indexes in by_topic(partitions).items()
    ]
    return FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=_RESPONSE, topics=topics, forgotten_topics_data=[],
        min_version=4, max_version=12,  # from 13 on topics have ids instead of names
    )  # fmt: skip


class _Search:
    """What responses have said so far; without sockets."""

    def __init__(self, offsets: Offsets, failed: dict[Partition, str]) -> None:
        self.times: dict[Partition, int] = {}
        self.failed = failed
        self.gone: list[Partition] = []
        self.closed: set[Partition] = set()  # failed or gone
        self._offsets = offsets

    def open(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Those of the partitions whose batch no response has had."""
        return [one for one in partitions if one not in self.times and one not in self.closed]

    def record(self, requests: Mapping[int, Iterable[Partition]], answers: Mapping[int, Any]) -> None:
        """Take the answers of a round, or the KafkaErrors in their places."""
        for node, answer in answers.items():
            if isinstance(answer, KafkaError):
                self._fail(dict.fromkeys(requests[node], str(answer)))
            else:
                self._record_all(requests[node], answer.responses)

    def _record_all(self, partitions: Iterable[Partition], topics: Any) -> None:
        """Where no partition has records, there are none: the first batch comes whatever its size."""
        parts = [((topic.topic, part.partition_index), part) for topic in topics for part in topic.partitions]
        for one, part in parts:
            self._record(one, part)
        if not any(part.records for _, part in parts):
            self.times |= dict.fromkeys(self.open(partitions), _NO_TIME)

    def _record(self, one: Partition, part: Any) -> None:
        if part.error_code == OffsetOutOfRangeError.errno:
            self.gone.append(one)
            self.closed.add(one)
        elif part.error_code:
            self._fail({one: explain(part.error_code)})
        elif batch := first_entry(bytes(part.records or b"")):
            self._read(one, batch)

    def _read(self, one: Partition, batch: bytes) -> None:
        try:
            self.times[one] = timestamp_at(batch, self._offsets[one])
        except (RecordError, struct.error) as error:
            self._fail({one: str(error)})

    def _fail(self, failed: Mapping[Partition, str]) -> None:
        self.failed |= failed
        self.closed |= failed.keys()
