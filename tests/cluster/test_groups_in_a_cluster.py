"""Groups whose coordinator fails: another broker continues, and no committed offset decreases."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..harness.broker import Broker
from ..harness.cluster import Cluster
from ..harness.process import family, living, wait_until
from .clients import Commits, Feed, Member, Observer, coordinator, make_topic, running

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

OFFSETS = "__consumer_offsets"
NOT_AVAILABLE, NOT_COORDINATOR = 15, 16
PARTITIONS = 4  # of __consumer_offsets, by the harness


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("groups")
    with Cluster(folder, replica_lag_time_max_ms=3000) as running:
        coordinator(running, "any")  # this creates the topic
        in_sync(running)
        yield running


@pytest.fixture(autouse=True)
def healed(cluster: Cluster) -> Iterator[None]:
    """Each test begins with all three brokers."""
    yield
    for number, broker in enumerate(cluster.brokers):
        if broker.process is None:
            cluster.restart(number)


def in_sync(cluster: Cluster) -> None:
    for partition in range(PARTITIONS):
        cluster.wait_isr(OFFSETS, partition, 3)


def kill_coordinator(cluster: Cluster, group: str, observer: Observer, members: list[Member]) -> None:
    """Kill the coordinator, wait until all members continue, start it again."""
    victim, answers, before = coordinator(cluster, group), observer.answers, [len(one.seen) for one in members]
    cluster.kill(victim)
    coordinator(cluster, group, other_than=victim)
    wait_until(lambda: observer.answers > answers + 10, 60, "offsets from another coordinator")
    wait_until(
        lambda: all(len(one.seen) > n for one, n in zip(members, before, strict=True)), 60, "records at all members"
    )
    cluster.restart(victim)
    in_sync(cluster)


def test_group_continues_when_its_coordinators_are_killed(cluster: Cluster) -> None:
    topic, group, commits = make_topic(cluster), "g", Commits()
    coordinator(cluster, group)
    in_sync(cluster)
    feed, observer = Feed(cluster, topic), Observer(cluster, topic, group, commits)
    members = [Member(cluster, topic, group, commits) for _ in range(3)]
    with running(feed, observer, *members):
        wait_until(lambda: all(member.seen for member in members), 60, "all members to consume")
        for _ in range(3):
            kill_coordinator(cluster, group, observer, members)
        feed.stop()
        wait_until(lambda: feed.acked <= set().union(*(one.seen for one in members)), 60, "all records at the members")
    assert feed.acked
    assert not feed.errors, feed.errors[:3]
    assert not commits.faults, commits.faults[:5]


def commit(broker: Broker, offset: int, group: str, topic: str) -> int:
    """Commit to one broker for a group without members; return the error code, -1 if the broker is down."""
    from kafka.protocol.consumer import OffsetCommitRequest as Request

    row = Request.OffsetCommitRequestTopic.OffsetCommitRequestPartition
    rows = [row(partition_index=0, committed_offset=offset, committed_metadata="")]
    topics = [Request.OffsetCommitRequestTopic(name=topic, partitions=rows)]
    request = Request[5](group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)
    try:
        with broker.wire() as wire:
            return int(wire.call(request).topics[0].partitions[0].error_code)
    except (OSError, EOFError):
        return -1


def assert_committed(broker: Broker, offset: int, group: str, topic: str) -> None:
    """Commit to the coordinator, which may still load its partition."""
    wait_until(lambda: commit(broker, offset, group, topic) == 0, 30, "a commit")


def committed(broker: Broker, group: str, topic: str) -> tuple[int, int]:
    """(error code, committed offset) from one broker."""
    from kafka.protocol.consumer import OffsetFetchRequest as Request

    with broker.wire() as wire:
        asked = [Request.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
        answer = wire.call(Request[5](group_id=group, topics=asked))
    return answer.error_code, answer.topics[0].partitions[0].committed_offset if answer.topics else -1


def test_only_the_coordinator_answers_and_all_brokers_name_it(cluster: Cluster) -> None:
    topic, group = make_topic(cluster), "asked-everywhere"
    found = coordinator(cluster, group)
    assert {coordinator(cluster, group, of=[broker]) for broker in cluster.brokers} == {found}
    assert_committed(cluster.broker(found), 7, group, topic)
    for number, broker in enumerate(cluster.brokers):
        expected = (0, 7) if number == found else (NOT_COORDINATOR, -1)
        assert committed(broker, group, topic) == expected
        if number != found:
            assert commit(broker, 3, group, topic) == NOT_COORDINATOR


def test_every_broker_describes_the_group(cluster: Cluster) -> None:
    topic, group = make_topic(cluster), "described"
    found = coordinator(cluster, group)
    assert_committed(cluster.broker(found), 0, group, topic)
    for broker in cluster.brokers:
        asked = ("consumer-groups", "--bootstrap-server", broker.bootstrap)
        described = broker.command(*asked, "--describe", "--group", group)
        assert described.returncode == 0, described.stderr
        assert any(line.split()[:3] == [group, topic, "0"] for line in described.stdout.splitlines()), described.stdout
        assert group in broker.command(*asked, "--list").stdout.split()


def test_resumed_former_coordinator_commits_nothing(cluster: Cluster) -> None:
    """The former coordinator resumes with waiting clients before it learns that another broker coordinates."""
    topic, group = make_topic(cluster), "sleeper"
    sleeper = coordinator(cluster, group)
    in_sync(cluster)
    asleep = cluster.broker(sleeper)
    assert_committed(asleep, 1, group, topic)
    assert asleep.process is not None
    processes = living(family(asleep.process.pid))
    for process in processes:
        process.suspend()
    try:
        others = [broker for broker in cluster.brokers if broker is not asleep]
        now = coordinator(cluster, group, other_than=sleeper, of=others)
        wait_until(lambda: commit(cluster.broker(now), 100, group, topic) == 0, 30, "a commit to the other one")
    finally:
        for process in processes:
            process.resume()
    codes = {commit(asleep, 5, group, topic) for _ in range(20)}
    assert 0 not in codes, codes
    wait_until(
        lambda: committed(asleep, group, topic)[0] == NOT_COORDINATOR,
        30,
        "the former coordinator to learn of its successor",
    )
    assert committed(cluster.broker(coordinator(cluster, group)), group, topic) == (0, 100)
    in_sync(cluster)


def test_aiokafka_group_continues_when_its_coordinator_is_killed(cluster: Cluster) -> None:
    aiokafka = pytest.importorskip("aiokafka")
    topic, group = make_topic(cluster), "aiokafka"
    coordinator(cluster, group)
    in_sync(cluster)
    feed = Feed(cluster, topic)
    seen: set[int] = set()

    async def consume() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=cluster.bootstrap, group_id=group, auto_offset_reset="earliest",
            enable_auto_commit=False, session_timeout_ms=30_000, heartbeat_interval_ms=500, retry_backoff_ms=50,
        )  # fmt: skip

        async def read_until(enough: Callable[[], bool]) -> None:
            while not enough():
                for messages in (await consumer.getmany(timeout_ms=100)).values():
                    seen.update(int(message.value or b"") for message in messages)
                await consumer.commit()

        await consumer.start()
        try:
            await read_until(lambda: len(seen) > 100)
            await asyncio.to_thread(cluster.kill, coordinator(cluster, group))
            before = len(seen)
            await read_until(lambda: len(seen) > before + 100)
            await asyncio.to_thread(feed.stop)
            await read_until(lambda: seen >= feed.acked)
        finally:
            await consumer.stop()

    with running(feed):
        asyncio.run(asyncio.wait_for(consume(), 180))
    assert not feed.errors


def test_single_broker_creates_and_commits_nothing(tmp_path: Path) -> None:
    """Internal topics need as many brokers as replicas; commits need min.insync.replicas of them."""
    cluster = Cluster(tmp_path, min_insync_replicas=2, replica_lag_time_max_ms=3000)
    group = "waits"
    try:
        cluster.zookeeper.start()
        first = cluster.brokers[0].start()
        for _ in range(30):
            with pytest.raises(AssertionError):
                coordinator(cluster, group, seconds=0.1)
        assert first.log.count("__consumer_offsets") < 10, first.log
        for broker in cluster.brokers[1:]:
            broker.start()
        found = coordinator(cluster, group)
        topic = make_topic(cluster)
        in_sync(cluster)
        assert_committed(cluster.broker(found), 5, group, topic)
        for number in {0, 1, 2} - {found}:
            cluster.kill(number)
        alone = cluster.broker(found)
        wait_until(lambda: commit(alone, 6, group, topic) == NOT_AVAILABLE, 60, "a refused commit")
        cluster.restart((found + 1) % 3)
        wait_until(lambda: commit(alone, 7, group, topic) == 0, 60, "a commit with two brokers")
        assert committed(alone, group, topic) == (0, 7)
    finally:
        cluster.stop()
