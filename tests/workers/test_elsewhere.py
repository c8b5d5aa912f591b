"""Answers of a broker on partitions that it does not lead or has no replica of, and on the brokers of a cluster."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from odradek.ipc import slots
from odradek.protocol import errors

from ..clients.raw import batches, calls
from . import inprocess
from .inprocess import Bench, Client
from .leading import lead, publish

HERE, OTHER, GONE = 0, 1, 2  # broker ids; GONE is not alive


@pytest.fixture
def cluster(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Topic `far` with partition 0 only on broker 1, and 1 led there but followed here."""
    other = {"id": OTHER, "rack": "east", "endpoints": {"PLAINTEXT": ["o", 2]}}
    monkeypatch.setattr(inprocess, "BROKERS", [*inprocess.BROKERS, other])
    bench.topic("far", 2)
    away, followed = bench._topics["far"]["partitions"]
    away[:] = [-1, 0, OTHER, 3, [OTHER, GONE], [OTHER], 0]
    followed[2:6] = [OTHER, 3, [OTHER, HERE], [OTHER, HERE]]
    bench._publish()
    publish(bench, "far", 1, state=slots.FOLLOWER, leader_epoch=3, led_since=-1)
    return bench


def _produce(client: Client, bench: Bench, index: int, version: int) -> int:
    topic: Any = uuid.UUID(bytes=bench.id_of("far")) if version >= 13 else "far"
    asked = calls.produce_request(topic, batches.batch([b"v"]), version=version, partition=index)
    return client.call(asked).responses[0].partition_responses[0].error_code


def _fetch(client: Client, bench: Bench, index: int, version: int) -> int:
    topic: Any = uuid.UUID(bytes=bench.id_of("far")) if version >= 13 else "far"
    asked = calls.fetch_request(topic, 0, version=version, partition=index, wait_ms=0)
    return client.call(asked).responses[0].partitions[0].error_code


def _list_offsets(client: Client, index: int, timestamp: int = -1, version: int = 5, replica: int = -1) -> Any:
    from kafka.protocol.consumer import ListOffsetsRequest as Request

    asked = Request.ListOffsetsTopic.ListOffsetsPartition(
        partition_index=index, current_leader_epoch=-1, timestamp=timestamp, max_num_offsets=10
    )
    topics = [Request.ListOffsetsTopic(name="far", partitions=[asked])]
    return client.call(Request[version](replica_id=replica, isolation_level=0, topics=topics)).topics[0].partitions[0]


def _delete_records(client: Client, index: int) -> int:
    from kafka.protocol.admin import DeleteRecordsRequest as Request

    parts = [Request.DeleteRecordsTopic.DeleteRecordsPartition(partition_index=index, offset=0)]
    topics = [Request.DeleteRecordsTopic(name="far", partitions=parts)]
    return client.call(Request[1](topics=topics, timeout_ms=1000)).topics[0].partitions[0].error_code


def _leader_epoch(client: Client, index: int) -> int:
    from kafka.protocol.consumer import OffsetForLeaderEpochRequest as Request

    parts = [Request.OffsetForLeaderTopic.OffsetForLeaderPartition(
        partition=index, current_leader_epoch=-1, leader_epoch=0
    )]  # fmt: skip
    topics = [Request.OffsetForLeaderTopic(topic="far", partitions=parts)]
    return client.call(Request[3](replica_id=-1, topics=topics)).topics[0].partitions[0].error_code


def _producers(client: Client, index: int) -> int:
    from kafka.protocol.admin import DescribeProducersRequest as Request

    topics = [Request.TopicRequest(name="far", partition_indexes=[index])]
    return client.call(Request[0](topics=topics)).topics[0].partitions[0].error_code


@pytest.mark.parametrize(
    ("index", "error"),
    [(0, errors.NOT_LEADER_OR_FOLLOWER), (1, errors.NOT_LEADER_OR_FOLLOWER), (2, errors.UNKNOWN_TOPIC_OR_PARTITION)],
)
def test_partition_led_by_another_broker_is_refused(cluster: Bench, client: Client, index: int, error: int) -> None:
    for version in (0, 7, 13):
        assert _produce(client, cluster, index, version) == error
    assert _fetch(client, cluster, index, 4) == _fetch(client, cluster, index, 10) == error
    assert _list_offsets(client, index).error_code == error
    assert _delete_records(client, index) == error
    assert _leader_epoch(client, index) == error
    assert _producers(client, index) == error


def test_unknown_topic_id_is_not_a_partition_of_another_broker(cluster: Bench, client: Client) -> None:
    unknown = uuid.UUID(int=5)
    asked = calls.fetch_request(unknown, 0, version=13, wait_ms=0)
    assert client.call(asked).responses[0].partitions[0].error_code == errors.UNKNOWN_TOPIC_ID
    produced = calls.produce_request(unknown, batches.batch([b"v"]), version=13)
    assert client.call(produced).responses[0].partition_responses[0].error_code == errors.UNKNOWN_TOPIC_ID


# -- ListOffsets


def test_list_offsets_of_a_follower_returns_the_log_end(cluster: Bench, client: Client) -> None:
    lead(cluster, [OTHER], [OTHER], topic="far", index=1)
    publish(cluster, "far", 1, leo=9, hw=4)
    assert _list_offsets(client, 1).offset == 4
    assert _list_offsets(client, 1, replica=OTHER).offset == 9


def test_follower_answers_list_offsets_only_for_the_debugging_replica(cluster: Bench, client: Client) -> None:
    publish(cluster, "far", 1, leo=9, hw=4)
    assert _list_offsets(client, 1, replica=OTHER).error_code == errors.NOT_LEADER_OR_FOLLOWER
    assert _list_offsets(client, 1, replica=-2).offset == 9


@pytest.mark.parametrize(("version", "error"), [(5, errors.OFFSET_NOT_AVAILABLE), (4, errors.LEADER_NOT_AVAILABLE)])
def test_new_leader_has_no_latest_offset_below_its_epoch_start(
    cluster: Bench, client: Client, version: int, error: int
) -> None:
    lead(cluster, [OTHER], [OTHER], epoch=4, topic="far", index=1)
    publish(cluster, "far", 1, leo=9, hw=4, epoch_start=6)
    assert _list_offsets(client, 1, version=version).error_code == error
    assert _list_offsets(client, 1, -2, version=version).error_code == 0
    assert _list_offsets(client, 1, -1, version=version, replica=OTHER).offset == 9
    publish(cluster, "far", 1, hw=6)
    assert _list_offsets(client, 1, version=version).offset == 6


# -- Metadata


def _metadata(client: Client, version: int) -> Any:
    from kafka.protocol.metadata import MetadataRequest as Request

    fields: dict[str, Any] = {"allow_auto_topic_creation": False} if version >= 4 else {}
    topics = [Request.MetadataRequestTopic(name="far")]
    answer = client.call(Request[version](topics=topics, **fields))
    assert sorted(broker.node_id for broker in answer.brokers) == [HERE, OTHER]
    return sorted(answer.topics[0].partitions, key=lambda part: part.partition_index)


@pytest.mark.parametrize("version", [0, 1, 5, 8])
def test_metadata_of_a_partition_with_an_offline_replica(cluster: Bench, client: Client, version: int) -> None:
    """Version 0 omits the replica and returns an error; later ones list it, and from version 5 on also as offline."""
    away, followed = _metadata(client, version)
    old = version == 0
    assert (away.error_code, away.leader_id) == (errors.REPLICA_NOT_AVAILABLE if old else 0, OTHER)
    assert list(away.replica_nodes) == ([OTHER] if old else [OTHER, GONE])
    assert list(away.isr_nodes) == [OTHER]
    assert (followed.error_code, list(followed.replica_nodes)) == (0, [OTHER, HERE])
    if version >= 5:
        assert (list(away.offline_replicas), list(followed.offline_replicas)) == ([GONE], [])


@pytest.mark.parametrize("version", [0, 1, 8])
@pytest.mark.parametrize("leader", [-1, GONE])
def test_metadata_of_a_partition_without_a_leader(cluster: Bench, client: Client, version: int, leader: int) -> None:
    cluster._topics["far"]["partitions"][0][2] = leader
    cluster._publish()
    away, _ = _metadata(client, version)
    assert (away.error_code, away.leader_id) == (errors.LEADER_NOT_AVAILABLE, -1)
    assert list(away.replica_nodes) == ([OTHER] if version == 0 else [OTHER, GONE])


@pytest.mark.parametrize(("version", "error"), [(1, errors.LEADER_NOT_AVAILABLE), (6, 72)])
def test_metadata_of_a_leader_without_the_clients_listener(
    cluster: Bench, client: Client, version: int, error: int
) -> None:
    inprocess.BROKERS[1]["endpoints"] = {"INTERNAL": ["o", 2]}
    cluster._publish()
    from kafka.protocol.metadata import MetadataRequest as Request

    fields: dict[str, Any] = {"allow_auto_topic_creation": False} if version >= 4 else {}
    answer = client.call(Request[version](topics=[Request.MetadataRequestTopic(name="far")], **fields))
    assert [broker.node_id for broker in answer.brokers] == [HERE]
    assert {(part.error_code, part.leader_id) for part in answer.topics[0].partitions} == {(error, -1)}
