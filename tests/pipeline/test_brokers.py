"""Requests to real brokers before anything is read: topics, leaders, offsets, log directories, groups."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.pipeline.errors import OptionError, PipelineError, UnknownTopic
from odradek.pipeline.types import EARLIEST, LATEST
from odradek.pipeline.wire import retries
from odradek.pipeline.wire.brokers import Brokers
from odradek.pipeline.wire.retries import RetryLater, check

from ..clients.admin import create_topic, topic_id, unique
from ..harness.cluster import Cluster
from ..harness.played_time import PlayedTime
from ..harness.process import free_port, wait_until
from .topics import NOW, send, transaction

SHORT = {"default.api.timeout.ms": "700", "retry.backoff.ms": "20"}


def connected(broker: Any, **more: str) -> Brokers:
    return Brokers({"bootstrap.servers": broker.bootstrap, **more})


def delete_records_before(broker: Any, topic: str, before: int) -> None:
    """Delete the records of partition 0 before an offset."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_records([TopicPartition(topic, 0, before)])[TopicPartition(topic, 0)].result(30)


# -- topics and leaders


@pytest.mark.live
def test_topics_are_listed_with_their_partition_counts(broker: Any) -> None:
    one, three = create_topic(broker), create_topic(broker, partitions=3)
    with connected(broker) as brokers:
        found = brokers.topics()
    assert (found[one], found[three]) == (1, 3)


@pytest.mark.live
def test_leaders_have_their_address_and_topic_id(broker: Any) -> None:
    topic = create_topic(broker, partitions=2)
    with connected(broker) as brokers, broker.wire() as wire:
        found = brokers.leaders([topic])
        assert found == brokers.leaders_of([(topic, 0), (topic, 1)])
        assert sorted(found) == [(topic, 0), (topic, 1)]
        leader = found[topic, 1]
        assert (leader.host, leader.port) == (broker.host, broker.port)
        assert leader.topic_id == topic_id(wire, topic).bytes


class Counting(Brokers):
    """Counts the metadata requests for leaders."""

    asked = 0

    def ask_anybody(self, names: list[str] | None, *, create: bool = False) -> Any:
        self.asked += 1
        return super().ask_anybody(names, create=create)


@pytest.mark.live
def test_plan_requests_leaders_once(broker: Any) -> None:
    """Leaders are requested again after a failure, and for partitions that are not known yet."""
    one, two = create_topic(broker, partitions=2), create_topic(broker)
    with Counting({"bootstrap.servers": broker.bootstrap}) as brokers:
        with brokers.steady():
            for times, wanted in ((1, [(one, 0), (one, 1)]), (1, [(one, 1)]), (2, [(two, 0)])):
                assert brokers.offsets(wanted, LATEST) == dict.fromkeys(wanted, 0)
                assert brokers.asked == times
            brokers.drop((broker.host, broker.port))
            brokers.offsets([(two, 0)], LATEST)
            assert brokers.asked == 3
        brokers.offsets([(two, 0)], LATEST)
        assert brokers.asked == 4


@pytest.mark.live
def test_error_names_all_unknown_topics(broker: Any) -> None:
    topic = create_topic(broker)
    with connected(broker, **SHORT) as brokers:
        with pytest.raises(UnknownTopic, match=r"^no such topic: missing-a, missing-b$"):
            brokers.leaders(["missing-b", topic, "missing-a"])
        with pytest.raises(UnknownTopic, match=r"^no such topic: no name$"):
            brokers.leaders(["no name"])
        assert "missing-a" not in brokers.topics(), "the request created the topic"


@pytest.mark.live
def test_error_names_unknown_partitions(broker: Any) -> None:
    topic = create_topic(broker)
    absent = pytest.raises(UnknownTopic, match=f"^no such partition: {topic}-1, {topic}-7$")
    with connected(broker, **SHORT) as brokers, absent:
        brokers.offsets([(topic, 7), (topic, 0), (topic, 1)], LATEST)


@pytest.mark.live
def test_cluster_id_is_read(fresh_broker: Callable[..., Any]) -> None:
    broker = fresh_broker()
    written = Path(broker.data_dir, "meta.properties").read_text()
    with connected(broker) as brokers:
        assert brokers.cluster_id
        assert f"cluster.id={brokers.cluster_id}\n" in written


# -- offsets


@pytest.mark.live
def test_offsets_of_the_log_start_and_end(broker: Any) -> None:
    topic = create_topic(broker, partitions=2)
    send(broker, topic, range(21), partitions=2)
    delete_records_before(broker, topic, 4)
    both = [(topic, 0), (topic, 1)]
    with connected(broker) as brokers:
        assert brokers.offsets(both, EARLIEST) == {(topic, 0): 4, (topic, 1): 0}
        assert brokers.offsets(both, LATEST) == {(topic, 0): 11, (topic, 1): 10}
        assert brokers.offsets([], LATEST) == {}


@pytest.mark.live
def test_open_transaction_ends_the_committed_offsets(broker: Any) -> None:
    topic = create_topic(broker)
    send(broker, topic, range(3))
    with transaction(broker, unique("tx"), "abort") as producer:
        producer.produce(topic, b"?")
        assert not producer.flush(30)
        with connected(broker) as brokers:
            assert brokers.offsets([(topic, 0)], LATEST, committed=True) == {(topic, 0): 3}
            assert brokers.offsets([(topic, 0)], LATEST) == {(topic, 0): 4}


@pytest.mark.live
def test_offsets_for_timestamps(broker: Any) -> None:
    topic = create_topic(broker, partitions=2)
    send(broker, topic, range(10), partitions=2)
    with connected(broker) as brokers:
        times = {(topic, 0): NOW + 3500, (topic, 1): NOW + 9001}
        assert brokers.offsets_by_time(times) == {(topic, 0): 2, (topic, 1): None}


# -- places


@pytest.mark.live
def test_replica_places_have_directory_and_size(fresh_broker: Callable[..., Any]) -> None:
    broker = fresh_broker()
    topic = create_topic(broker, partitions=2)
    send(broker, topic, range(30), partitions=2)
    with connected(broker) as brokers:
        found = brokers.places([(topic, 0), (topic, 1)])
    for index in range(2):
        place = found[topic, index]
        assert place.directory == str(broker.data_dir / f"{topic}-{index}")
        assert place.bytes == sum(path.stat().st_size for path in Path(place.directory).glob("*.log")) > 0


# -- groups


@pytest.mark.live
def test_offsets_are_committed_for_a_group_without_members(broker: Any) -> None:
    topic, group = create_topic(broker, partitions=3), unique("group")
    keys = [(topic, index) for index in range(3)]
    with connected(broker) as brokers:
        assert brokers.committed(group, keys) == {}
        brokers.commit(group, {keys[0]: 5, keys[2]: 0})
        brokers.commit(group, {keys[0]: 7})
        assert brokers.committed(group, keys) == {keys[0]: 7, keys[2]: 0}
        brokers.commit(group, {})


@pytest.mark.live
def test_group_with_members_is_not_changed(broker: Any) -> None:
    topic, group = create_topic(broker), unique("group")
    member = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    member.subscribe([topic])
    send(broker, topic, range(1))
    assert member.poll(30) is not None
    try:
        with connected(broker) as brokers, pytest.raises(PipelineError, match=f"^group '{group}' has members"):
            brokers.commit(group, {(topic, 0): 1})
    finally:
        member.close()


def test_permanent_errors_fail_at_once() -> None:
    check(0, "t-0")
    with pytest.raises(RetryLater, match=r"^t-0: NotLeaderForPartitionError: "):
        check(6, "t-0")
    with pytest.raises(PipelineError, match=r"^t-0: TopicAuthorizationFailedError: "):
        check(29, "t-0")


# -- brokers that are not reachable


@pytest.mark.live
def test_one_of_the_bootstrap_servers_is_enough(broker: Any) -> None:
    topic = create_topic(broker)
    servers = f"127.0.0.1:{free_port()}, PLAINTEXT://{broker.bootstrap}"
    with Brokers({"bootstrap.servers": servers}) as brokers:
        assert brokers.offsets([(topic, 0)], LATEST) == {(topic, 0): 0}


def test_unreachable_brokers_are_an_error_that_names_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    port, clock = free_port(), PlayedTime()
    monkeypatch.setattr(retries, "time", clock)
    why = rf"^no broker responds; 127.0.0.1:{port}: .* \(tried for 0.7 s: kafka.default.api.timeout.ms\)$"
    unreachable = Brokers({"bootstrap.servers": f"127.0.0.1:{port}", **SHORT})
    with pytest.raises(PipelineError, match=why):
        unreachable.topics()
    assert 0.7 <= clock.now < 30  # the default is 60 s


def test_failed_request_goes_to_another_broker() -> None:
    """The error may come from the last broker, such as a former leader."""
    servers = [("a", 1), ("b", 2), ("c", 3)]
    brokers = Brokers({"bootstrap.servers": "a:1,b:2,c:3"})
    assert brokers.in_turn() == servers
    brokers.drop(("b", 2))
    assert brokers.in_turn() == servers[1:] + servers[:1]


@pytest.mark.live
def test_restarted_broker_gets_requests_again(fresh_broker: Callable[..., Any]) -> None:
    broker = fresh_broker()
    topic, group = create_topic(broker), unique("group")
    send(broker, topic, range(5))
    with connected(broker) as brokers:
        brokers.commit(group, {(topic, 0): 2})
        broker.restart(kill=True)
        assert brokers.offsets([(topic, 0)], LATEST) == {(topic, 0): 5}
        broker.restart()
        assert brokers.committed(group, [(topic, 0)]) == {(topic, 0): 2}


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
def test_requests_survive_the_death_of_leader_and_coordinator(tmp_path: Path) -> None:
    """Kill the leader of the partition and the coordinator of the group."""
    with Cluster(tmp_path) as cluster:
        topic, group = replicated(cluster), unique("group")
        send(cluster, topic, range(5), acks="all")
        with connected(cluster) as brokers:
            brokers.commit(group, {(topic, 0): 2})
            for _ in range(2):
                leader = cluster.leader(topic)
                assert brokers.offsets([(topic, 0)], LATEST) == {(topic, 0): 5}
                assert brokers.places([(topic, 0)])[topic, 0].directory.startswith(str(cluster.broker(leader).data_dir))
                cluster.kill(leader)
                assert brokers.offsets([(topic, 0)], LATEST) == {(topic, 0): 5}
                assert brokers.committed(group, [(topic, 0)]) == {(topic, 0): 2}
                cluster.restart(leader)
                cluster.wait_isr(topic, 0, 3)


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
def test_partition_without_leader_is_an_error_that_names_it(tmp_path: Path) -> None:
    with Cluster(tmp_path, 2) as cluster:
        topic = replicated(cluster, partitions=2, factor=1)
        send(cluster, topic, range(10), partitions=2)
        dead = cluster.leader(topic, 0)
        cluster.kill(dead)
        wait_until(lambda: cluster.leader(topic, 0) == -1, 60, "the partition has no leader")
        with connected(cluster, **SHORT) as brokers:
            with pytest.raises(PipelineError, match=f"^{topic}-0 has no leader"):
                brokers.leaders([topic])
            assert brokers.offsets([(topic, 1)], LATEST) == {(topic, 1): 5}
        cluster.restart(dead)
        with connected(cluster) as brokers:
            assert brokers.offsets([(topic, 0)], LATEST) == {(topic, 0): 5}


def replicated(cluster: Cluster, partitions: int = 1, factor: int = 3) -> str:
    """A new topic whose replicas are all in sync."""
    topic = unique("replicated")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic(topic, partitions, factor, config={"min.insync.replicas": str(min(factor, 2))})
    admin.create_topics([new])[topic].result(30)
    for index in range(partitions):
        cluster.wait_isr(topic, index, factor)
    return topic


# -- settings


@pytest.mark.parametrize(
    ("kafka", "message"),
    [
        ({}, "Option 'kafka.bootstrap.servers' must be specified"),
        ({"bootstrap.servers": "here"}, "kafka.bootstrap.servers has 'here': it must be host:port"),
        ({"bootstrap.servers": "h:1", "retry.backoff.ms": "soon"}, "kafka.retry.backoff.ms is 'soon'"),
        ({"bootstrap.servers": "h:1", "fetch.max.bytes": "-1"}, "kafka.fetch.max.bytes is '-1'"),
    ],
)
def test_invalid_client_settings_are_refused(kafka: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=f"^{message}"):
        Brokers(kafka)


@pytest.mark.parametrize("server", ["[::1]:9092", "SSL://[::1]:9092"])
def test_ipv6_bootstrap_servers(server: str) -> None:
    assert Brokers({"bootstrap.servers": server}).settings.servers == (("::1", 9092),)
