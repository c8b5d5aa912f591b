"""Requests of thousands of elements to a worker: each turn of its loop is short, and others are served between."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.library import message_class
from odradek.storage.log import timestamp_queries, trim
from odradek.workers.apis import k00_produce, k01_fetch, k02_list_offsets, k03_metadata
from odradek.workers.fetch import fetching
from odradek.workers.net import time_slices

from ..clients.raw import batches, calls
from ..harness import effort
from ..harness.wire import decode_response
from .inprocess import Bench, Client, correlations, raw
from .inprocess import bench as make

MANY = 1000
NAMES = [f"no{at}" for at in range(MANY)]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A worker that does one step a turn."""
    monkeypatch.setattr(time_slices, "SLICE_S", 0.0)
    with make(tmp_path, auto_create_topics_enable=False) as made:
        yield made


def list_offsets(version: int) -> Any:
    request = message_class("ListOffsetsRequest")
    topic = request.ListOffsetsTopic
    part = topic.ListOffsetsPartition
    parts = [part(partition_index=at, timestamp=-1, max_num_offsets=1) for at in range(MANY)]
    return request[version](replica_id=-1, isolation_level=0, topics=[topic(name="t", partitions=parts)])


def metadata() -> Any:
    request = message_class("MetadataRequest")
    topics = [request.MetadataRequestTopic(name=name) for name in NAMES]
    return request[9](topics=topics, allow_auto_topic_creation=True)


def topic_partitions() -> Any:
    request = message_class("DescribeTopicPartitionsRequest")
    return request[0](topics=[request.TopicRequest(name=name) for name in NAMES], response_partition_limit=10)


def leader_epochs() -> Any:
    request = message_class("OffsetForLeaderEpochRequest")
    topic = request.OffsetForLeaderTopic
    parts = [
        topic.OffsetForLeaderPartition(partition=at, current_leader_epoch=-1, leader_epoch=0) for at in range(MANY)
    ]
    return request[3](replica_id=-1, topics=[topic(topic="t", partitions=parts)])


def delete_records() -> Any:
    request = message_class("DeleteRecordsRequest")
    topic = request.DeleteRecordsTopic
    parts = [topic.DeleteRecordsPartition(partition_index=at, offset=0) for at in range(MANY)]
    return request[1](topics=[topic(name="t", partitions=parts)], timeout_ms=1000)


def producers() -> Any:
    request = message_class("DescribeProducersRequest")
    return request[0](topics=[request.TopicRequest(name="t", partition_indexes=list(range(MANY)))])


def configs() -> Any:
    request = message_class("DescribeConfigsRequest")
    resources = [
        request.DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None) for name in NAMES
    ]
    return request[1](resources=resources, include_synonyms=False)


def several() -> Any:
    """A Produce to many partitions, of which one exists."""
    request = message_class("ProduceRequest")
    topic = request.TopicProduceData
    data = topic.PartitionProduceData
    parts = [data(index=at, records=batches.batch([b"v"])) for at in range(MANY)]
    topics = [topic(name="t", partition_data=parts)]
    return request[7](transactional_id=None, acks=1, timeout_ms=1000, topic_data=topics)


def turns(bench: Bench, client: Client, frame: bytes) -> list[int]:
    """The lines of code of each turn until a request is answered."""
    client.send(frame)
    found: list[int] = []
    while not client.frames():
        assert not client.closed
        found.append(effort.lines(bench.turn))
    return found


@pytest.mark.parametrize(
    "request_",
    [
        list_offsets(0), list_offsets(7), metadata(), topic_partitions(), leader_epochs(), delete_records(),
        producers(), configs(),
    ],
    ids=lambda one: f"{one.name}-{one.API_VERSION}",
)  # fmt: skip
def test_no_turn_is_a_large_part_of_a_request(bench: Bench, client: Client, request_: Any) -> None:
    found = turns(bench, client, client.frame(request_))
    assert max(found) * 5 < sum(found)


def test_no_turn_is_a_large_part_of_a_produce_to_many_partitions(bench: Bench, client: Client) -> None:
    """Each record is stored or refused, and later requests wait."""
    asked = several()
    found = turns(bench, client, client.frame(asked))
    assert max(found) * 3 < sum(found)  # parsing it, and encoding the answer, are one step each
    client.send(client.frame(asked) + raw(18, 0, 77))
    answers = client.answers(2)
    assert correlations(answers) == [2, 77]
    parts = decode_response(asked, answers[0]).responses[0].partition_responses
    assert [(part.index, part.error_code) for part in parts] == [(0, 0), *((at, 3) for at in range(1, MANY))]
    assert bench.slot("t").state().leo == 2


@pytest.mark.parametrize(("version", "timestamp"), [(0, 1 << 60), (7, 1 << 60), (7, -3)])
def test_no_turn_is_a_large_part_of_a_timestamp_query(
    bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch, version: int, timestamp: int
) -> None:
    """If the log changes between two turns, the query continues in the new files."""
    monkeypatch.setattr(timestamp_queries, "SEGMENTS", 2)
    bench.topic("t", segment_bytes="100")
    for at in range(60):
        records = batches.batch([b"%d" % at])
        assert client.call(calls.produce_request("t", records)).responses[0].partition_responses[0].error_code == 0
    request = message_class("ListOffsetsRequest")
    topic = request.ListOffsetsTopic
    part = topic.ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=100)
    asked = request[version](replica_id=-1, isolation_level=0, topics=[topic(name="t", partitions=[part])])
    found = turns(bench, client, client.frame(asked))
    assert max(found) * 4 < sum(found)
    client.send(client.frame(asked))
    bench.turn(5)
    partition = bench.worker.partition_of(b"t", 0, False)
    assert partition is not None
    with partition.locked() as values:
        trim.advance(partition, values, 30)
    (frame,) = client.answers()
    answer = decode_response(asked, frame).topics[0].partitions[0]
    assert answer.error_code == 0
    if version:
        assert answer.offset == (-1 if timestamp > 0 else 30)
    else:
        assert answer.old_style_offsets == list(range(60, 29, -1))


@pytest.mark.slow
@pytest.mark.parametrize("version", [3, 11])
def test_fetch_of_many_partitions_takes_several_turns(
    bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """A later turn answers or delays it, but not for a client that has disconnected meanwhile."""
    monkeypatch.setattr(k01_fetch, "_MANY", 100)
    bench.topic("many", 90)
    parts = [calls.part(at, 0) for at in range(90)]
    known, unknown = [("many", parts)], [("many", parts), ("no", parts)]
    asked = calls.session_request(unknown, version=version, wait_ms=100)
    found = turns(bench, client, client.frame(asked))
    assert len(found) >= 2
    monkeypatch.setattr(k01_fetch, "_MANY", 1)
    client.send(client.frame(calls.session_request(known, version=version, wait_ms=60_000)))
    bench.turn(200)
    assert len(bench.worker.purgatory) == 1
    other = bench.connect()
    other.send(other.frame(calls.session_request(known, version=version, wait_ms=60_000)))
    monkeypatch.setattr(fetching, "pieces", lambda items: [[item] for item in items])
    bench.turn(3)
    other.sock.close()
    bench.turn(200)
    assert len(bench.worker.purgatory) == 1


def test_exception_in_a_later_turn_closes_the_connection(
    bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the client would wait for ever."""
    client.send(client.frame(list_offsets(7)))
    bench.turn(20)
    monkeypatch.setattr(k02_list_offsets, "_answer", lambda *_: 1 // 0)
    assert client.gone()
    other = bench.connect()
    other.send(raw(18, 0, 1))
    assert correlations(other.answers()) == [1]


def test_exception_in_a_later_turn_of_a_produce_closes_the_connection(
    bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.send(client.frame(several()))
    bench.turn(20)
    monkeypatch.setattr(k00_produce.TakenParts, "_take", lambda *_: 1 // 0)
    assert client.gone()


@pytest.mark.slow
def test_equal_metadata_requests_share_the_work(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change, all clients request the metadata at once."""
    for name in NAMES[:300]:
        bench._topics[name] = {**bench._topics["t"], "id": secrets.token_hex(16), "partitions": []}
    bench._publish()
    described: list[str] = []
    real = k03_metadata._topic
    monkeypatch.setattr(
        k03_metadata, "_topic", lambda snapshot, name, *rest: described.append(name) or real(snapshot, name, *rest)
    )
    request = message_class("MetadataRequest")
    others = [bench.connect() for _ in range(20)]
    for other in others:
        other.send(other.frame(request[4](topics=None)))
    assert {len(other.answers()) for other in others} == {1}
    assert len(described) == len(set(described)) == 301


# -- Many requests at once


def test_other_clients_are_served_between_many_requests_of_one(bench: Bench, client: Client) -> None:
    other = bench.connect()
    client.send(b"".join(raw(18, 0, at) for at in range(500)))
    other.send(raw(18, 0, 1))
    bench.turn(3)
    assert correlations(other.frames()) == [1]
    early = client.frames()
    assert len(early) < 50
    assert correlations(early + client.answers(500 - len(early))) == list(range(500))


@pytest.mark.parametrize("config", [{}, {"compression_type": "gzip"}], ids=["kept", "recompressed"])
def test_other_clients_are_served_between_compressed_batches_of_one(
    bench: Bench, client: Client, config: dict[str, Any]
) -> None:
    """A few bytes may unpack to a megabyte, so a batch takes as long as its records."""
    bench.topic("packed", **config)
    other = bench.connect()
    records = batches.compressed([b"v"] * 10, "lz4")
    frames = [client.frame(calls.produce_request("packed", records)) for _ in range(500)]
    client.send(b"".join(frames) + raw(18, 0, 501))
    other.send(raw(18, 0, 1))
    bench.turn(3)
    assert correlations(other.frames()) == [1]
    early = client.frames()
    assert len(early) < 50
    assert correlations(early + client.answers(501 - len(early))) == list(range(1, 502))
    assert bench.slot("packed").state().leo == 5000


@pytest.mark.slow
def test_many_requests_of_many_clients_keep_turns_short(bench: Bench) -> None:
    clients = [bench.connect() for _ in range(50)]
    for one in clients:
        one.send(b"".join(raw(18, 0, at) for at in range(100)))
    bench.turn(2)
    found = [effort.lines(bench.turn) for _ in range(5)]
    assert max(found) < 1_000  # each request takes about sixty
    for one in clients:
        assert correlations(one.answers(100)) == list(range(100))


@pytest.mark.slow
def test_the_overhead_of_undecided_requests_is_bounded(bench: Bench, client: Client) -> None:
    data, sent = b"".join(client.frame(several()) for _ in range(10)), 0
    with bench.held("t"):
        for _ in range(10 * MANY):
            try:
                sent += client.sock.send(data[sent:])
            except BlockingIOError:
                pass
            bench.turn()
        assert len(bench.connection(client).in_flight) < 5
    client.send(data[sent:])
    assert correlations(client.answers(10)) == list(range(1, 11))


def test_connection_that_epoll_refuses_is_not_kept(
    bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fs.epoll.max_user_watches can cause it. A kept connection would be closed twice, which ends the worker."""

    class Full:
        def register(self, fd: int, events: int) -> None:
            raise OSError("no space left")

    connection = bench.connection(client)
    kept = bench.worker.loop.connections.pop(connection.fd)
    with monkeypatch.context() as patch:
        patch.setattr(bench.worker.loop, "_epoll", Full())
        with pytest.raises(OSError, match="no space"):
            bench.worker.loop.add(connection)
    assert connection.fd not in bench.worker.loop.connections
    bench.worker.loop.connections[kept.fd] = kept
