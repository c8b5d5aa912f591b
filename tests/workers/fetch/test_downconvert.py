"""Fetches of old clients: down-conversion is bounded in each request, and all records are read over several."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest

from odradek.storage.log.partition import Partition
from odradek.workers.fetch import downconvert

from ...storage.live import batch, put
from ..inprocess import Bench, Client

PARTITIONS = 12
RECORDS = 40


def partition_of(bench: Bench, index: int, topic: str = "many") -> Partition:
    found = bench.worker.catalog.log.get(topic, index)
    assert found is not None
    return found


@pytest.fixture
def many(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Partitions of `RECORDS` batches of 1 KB each."""
    monkeypatch.setattr(downconvert, "SHARE", 10_000, raising=False)
    bench.topic("many", PARTITIONS)
    bench.turn(2)
    for index in range(PARTITIONS):
        put(partition_of(bench, index), *[batch(b"%d-%d" % (index, n) + b"." * 1000) for n in range(RECORDS)])
    return bench


def request(version: int, offsets: dict[int, int], *, max_bytes: int = 1 << 20, **options: Any) -> Any:
    asked = {"max_wait_ms": 0, "min_bytes": 1, **options}
    if version >= 3:
        asked["max_bytes"] = 50 << 20
    topic = FetchRequest.FetchTopic
    parts = [
        topic.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
        for index, offset in offsets.items()
    ]
    return FetchRequest[version](replica_id=-1, topics=[topic(topic="many", partitions=parts)], **asked)


def messages(data: bytes) -> list[int]:
    """The offsets of the complete messages of a set."""
    found, at = [], 0
    while at + 12 <= len(data):
        offset, size = struct.unpack_from(">qi", data, at)
        at += 12 + size
        if at <= len(data):
            found.append(offset)
    return found


def fetched(client: Client, asked: Any) -> dict[int, bytes]:
    (topic,) = client.call(asked).responses
    return {part.partition_index: bytes(part.records or b"") for part in topic.partitions}


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_requests_convert_at_most_a_share_each(many: Bench, client: Client, version: int) -> None:
    offsets = dict.fromkeys(range(PARTITIONS), 0)
    rounds = 0
    while any(offset < RECORDS for offset in offsets.values()):
        found = fetched(client, request(version, offsets))
        size = sum(map(len, found.values()))
        assert 0 < size <= downconvert.SHARE + 1200
        assert list(found) == list(offsets), "partitions are in the order of the request"
        for index, data in found.items():
            got = messages(data)
            assert got == list(range(offsets[index], offsets[index] + len(got)))
            offsets[index] += len(got)
        rounds += 1
    assert rounds <= PARTITIONS * RECORDS * 1200 // downconvert.SHARE + PARTITIONS


def test_every_partition_is_served_within_a_few_requests(many: Bench, client: Client) -> None:
    offsets = dict.fromkeys(range(PARTITIONS), 0)
    seen = set()
    for _ in range(PARTITIONS):
        seen |= {index for index, data in fetched(client, request(1, offsets)).items() if data}
    assert seen == set(offsets)


def test_message_larger_than_the_share_is_sent_whole(many: Bench, client: Client) -> None:
    put(partition_of(many, 0), batch(b"x" * 50_000))
    assert messages(fetched(client, request(1, {0: RECORDS}))[0]) == [RECORDS]


def test_partition_max_bytes_is_a_hard_limit_before_kip_74(many: Bench, client: Client) -> None:
    found = fetched(client, request(1, {0: 0}, max_bytes=500))
    assert len(found[0]) == 500
    assert messages(found[0]) == []


def test_fetch_is_answered_when_the_share_is_spent(many: Bench, client: Client) -> None:
    """No request gets `min_bytes` here, and `max_wait_ms` is longer than this test may take."""
    found = fetched(client, request(1, {0: 0, 1: 0}, min_bytes=1 << 20, max_wait_ms=600_000))
    assert sum(map(len, found.values())) > 0


def test_fetch_waits_if_the_log_has_less_than_min_bytes(many: Bench, client: Client) -> None:
    client.send(client.frame(request(1, {0: RECORDS - 2}, min_bytes=5000, max_wait_ms=600_000)))
    many.turn(20)
    assert client.frames() == []
    put(partition_of(many, 0), *[batch(b"y" * 1000) for _ in range(4)])
    (answer,) = client.answers(1)
    assert answer
