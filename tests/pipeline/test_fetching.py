"""Ranges of offsets fetched from real leaders: all records arrive, even if the leader dies or changes meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from odradek.pipeline.errors import DataLoss, MissingOffsets, PipelineError, UnknownTopic
from odradek.pipeline.types import LATEST, Chunk, Range
from odradek.pipeline.wire import retries
from odradek.pipeline.wire.brokers import Brokers
from odradek.pipeline.wire.fetching import read
from odradek.pipeline.wire.holes import Holes

from ..clients.admin import create_named, create_topic, unique
from ..clients.raw.batches import batch, parse
from ..clients.raw.calls import fetch, produce
from ..clients.transactions import await_stable
from ..harness.apache import Apache, ApacheMember
from ..harness.broker import ExternalBroker
from ..harness.cluster import Cluster
from ..harness.played_time import PlayedTime
from ..harness.process import wait_until
from ..harness.zookeeper import ZooKeeper
from .test_brokers import connected, delete_records_before, replicated
from .topics import send, transaction

pytestmark = pytest.mark.live

PIECES = {"max.partition.fetch.bytes": "3000"}  # about ten batches of `fill`
SHORT = {"default.api.timeout.ms": "700", "retry.backoff.ms": "20", "fetch.max.wait.ms": "100"}


def reading(broker: Any, topic: str, start: int, end: int, committed: bool = False, /, **more: str) -> Iterator[Chunk]:
    kafka, wanted = {"bootstrap.servers": broker.bootstrap, **more}, Range(topic, 0, start, end)
    with Holes(kafka, wanted) as holes:
        for chunk in read(kafka, wanted, committed, holes):
            yield chunk._replace(data=bytes(chunk.data))  # the next chunk takes its memory


def fill(broker: Any, topic: str, batches: int, records: int = 3) -> None:
    """Write records whose values are their offsets."""
    with broker.wire() as wire:
        for at in range(0, batches * records, records):
            answer = produce(wire, topic, batch([b"%099d" % n for n in range(at, at + records)]), acks=-1)
            assert (answer.error_code, answer.base_offset) == (0, at)


def offsets(chunks: list[Chunk], start: int, end: int) -> list[int]:
    """The offsets of the records within [start, end), which must be the records that `fill` wrote."""
    found = [one for chunk in chunks for one in parse(bytes(chunk.data)) if start <= one.offset < end]
    assert all(int(one.value or b"-1") == one.offset for one in found)
    return [one.offset for one in found]


# -- ranges


@pytest.mark.parametrize(("start", "end"), [(0, 300), (0, 1), (4, 8), (299, 300), (100, 101), (50, 250)])
@pytest.mark.parametrize("more", [{}, PIECES], ids=["at once", "in pieces"])
def test_all_offsets_of_a_range_are_fetched(broker: Any, start: int, end: int, more: dict[str, str]) -> None:
    topic = create_topic(broker)
    fill(broker, topic, 100)
    chunks = list(reading(broker, topic, start, end, **more))
    assert offsets(chunks, start, end) == list(range(start, end))
    assert all(one.until < two.until for one, two in pairwise(chunks))
    assert end <= chunks[-1].until <= end + 2
    if more:
        assert all(len(chunk.data) <= 3000 for chunk in chunks)


def test_empty_range_sends_no_request() -> None:
    nothing = Range("nowhere", 0, 5, 5)
    assert list(read({}, nothing, False, Holes({}, nothing))) == []


def test_a_batch_larger_than_the_fetch_size_is_fetched(broker: Any) -> None:
    topic = create_topic(broker)
    fill(broker, topic, 3, records=100)
    chunks = list(reading(broker, topic, 0, 300, **PIECES))
    assert offsets(chunks, 0, 300) == list(range(300))


def test_next_chunk_is_requested_ahead(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next request is sent while a chunk is decoded; after the last chunk, none is sent."""
    from odradek.pipeline.wire.connection import Connection

    asked: list[int] = []
    post = Connection.post

    def spy(self: Connection, request: Any) -> None:
        if request.API_KEY == 1:
            asked.append(request.topics[0].partitions[0].fetch_offset)
        post(self, request)

    monkeypatch.setattr(Connection, "post", spy)
    topic = create_topic(broker)
    fill(broker, topic, 30)
    untils = [0]
    for chunk in reading(broker, topic, 0, 90, **PIECES):
        untils.append(chunk.until)
        assert asked == [until for until in untils if until < 90]
    assert len(untils) > 3


def test_connections_are_usable_after_a_read_that_was_abandoned(broker: Any) -> None:
    """Its last request was sent ahead, and its response is not taken for that to another one."""
    topic = create_topic(broker)
    fill(broker, topic, 30)
    kafka, wanted = {"bootstrap.servers": broker.bootstrap, **PIECES}, Range(topic, 0, 0, 90)
    with Brokers(kafka) as brokers, Holes(kafka, wanted) as holes:
        going = read(kafka, wanted, False, holes, brokers=brokers)
        next(going)
        going.close()  # type: ignore[attr-defined]
        assert brokers.offsets([wanted.key], LATEST) == {wanted.key: 90}
        again = read(kafka, wanted, False, holes, brokers=brokers)
        assert offsets([chunk._replace(data=bytes(chunk.data)) for chunk in again], 0, 90) == list(range(90))


def test_reader_waits_for_known_records(broker: Any) -> None:
    """For a moment, a new leader's high watermark may be below that of its predecessor."""
    topic = create_topic(broker)
    fill(broker, topic, 2)
    chunks = reading(broker, topic, 0, 9, **{"fetch.max.wait.ms": "50"})
    assert next(chunks).until == 6
    with broker.wire() as wire:
        produce(wire, topic, batch([b"6", b"7", b"8"]))
    assert [chunk.until for chunk in chunks] == [9]


def test_a_range_beyond_the_log_end_is_an_error(broker: Any) -> None:
    topic = create_topic(broker)
    fill(broker, topic, 2)
    with pytest.raises(PipelineError, match=f"^{topic}-0 can be read only to offset 6, not from 6 to 9"):
        list(reading(broker, topic, 0, 9, **SHORT))


# -- deleted data


def test_fetch_of_deleted_records_is_data_loss(broker: Any) -> None:
    topic = create_topic(broker)
    fill(broker, topic, 4)
    delete_records_before(broker, topic, 5)
    with pytest.raises(DataLoss, match=f"^offset 2 of {topic}-0 no longer exists: the log has 5 to 11$"):
        list(reading(broker, topic, 2, 12))
    assert offsets(list(reading(broker, topic, 5, 12)), 5, 12) == list(range(5, 12))


def test_fetch_beyond_the_log_end_is_data_loss(broker: Any) -> None:
    topic = create_topic(broker)
    fill(broker, topic, 1)
    with pytest.raises(DataLoss, match=f"^offset 50 of {topic}-0 no longer exists: the log has 0 to 2$"):
        list(reading(broker, topic, 50, 60))


def test_topic_recreated_during_a_fetch_is_data_loss(broker: Any) -> None:
    topic = create_topic(broker)
    fill(broker, topic, 100)
    chunks = reading(broker, topic, 0, 300, **PIECES)
    next(chunks)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    with broker.wire() as wire:
        create_named(wire, topic)
    fill(broker, topic, 100)
    with pytest.raises(DataLoss, match=f"^topic '{topic}' was recreated while {topic}-0 was read$"):
        list(chunks)


def test_fetch_of_an_unknown_topic_fails(broker: Any) -> None:
    with pytest.raises(UnknownTopic, match=r"^no such topic: nowhere$"):
        list(reading(broker, "nowhere", 0, 1))


def test_range_may_begin_and_end_in_a_hole_of_compaction(fresh_broker: Callable[..., Any]) -> None:
    """The batch after the hole proves that the offsets before it are empty."""
    broker = fresh_broker(log_cleaner_backoff_ms=100)
    topic = create_topic(broker, cleanup_policy="compact", segment_bytes=2000, min_cleanable_dirty_ratio=0.01)
    with broker.wire() as wire:
        for at in range(100):
            answer = produce(wire, topic, batch([b"%099d" % at], key=b"same" if at != 40 else b"other"))
            assert answer.error_code == 0
    logs = Path(broker.data_dir, f"{topic}-0").glob("*.log")
    hole = max(int(path.stem) for path in logs) - 1  # compaction keeps the newest record of a key
    wait_until(lambda: _first_after(broker, topic, 41) == hole, 60, "nothing between 40 and the active segment")
    assert offsets(list(reading(broker, topic, 0, hole)), 0, hole) == [40]
    assert offsets(list(reading(broker, topic, 45, hole - 1)), 45, hole - 1) == []
    assert offsets(list(reading(broker, topic, 45, 100)), 45, 100) == list(range(hole, 100))


def _first_after(broker: Any, topic: str, offset: int) -> int:
    with broker.wire() as wire:
        found = [one.offset for one in parse(bytes(fetch(wire, topic, offset).records)) if one.offset >= offset]
    return found[0]


def test_hole_up_to_the_log_end_is_accepted_for_compacted_topics_only(
    fresh_broker: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Compaction can empty the last segments before an empty active segment; then only a timeout shows the hole."""
    broker = fresh_broker()
    compacted, other = (create_topic(broker, cleanup_policy=policy) for policy in ("compact,delete", "delete"))
    for topic in (compacted, other):
        with broker.wire() as wire:
            for at in range(6):
                produce(wire, topic, batch([b"%099d" % at], key=b"k%d" % at))
    broker.stop()
    for topic in (compacted, other):
        Path(broker.data_dir, f"{topic}-0", f"{20:020}.log").touch()
    broker.start()
    chunks = list(reading(broker, compacted, 0, 20, **SHORT))
    assert offsets(chunks, 0, 20) == list(range(6))
    assert list(reading(broker, compacted, 9, 15, **SHORT)) == []
    assert f"{compacted}-0: the leader sends no batch with offsets 9 to 14 or later" in caplog.text
    with pytest.raises(PipelineError, match=f"^{compacted}-0 can be read only to offset 20, not from 9 to 21"):
        list(reading(broker, compacted, 9, 21, **SHORT))
    with pytest.raises(MissingOffsets, match=f"^{other}-0: the leader sends no batch with offsets 6 to 19 or later"):
        list(reading(broker, other, 0, 20, **SHORT))


# -- transactions


def test_chunks_name_aborted_transactions(broker: Any) -> None:
    topic = create_topic(broker)
    _transactions(broker, topic)
    _check_transactions(broker, topic)


def _transactions(broker: Any, topic: str) -> None:
    """Offsets 0 and 1 are plain, 2 aborted with marker 3, 4 committed with marker 5, 6 in an open transaction."""
    send(broker, topic, range(2))
    for name, end in (("a", "abort"), ("b", "commit"), ("c", "leave")):
        with transaction(broker, unique(name), end) as producer:
            producer.produce(topic, name.encode())
        if end != "leave":
            await_stable(broker, topic)


def _check_transactions(broker: Any, topic: str) -> None:
    chunks = list(reading(broker, topic, 0, 6, True))
    assert [offset for chunk in chunks for _, offset in chunk.aborted] == [2]
    assert chunks[-1].until == 6
    assert next(reading(broker, topic, 4, 6, True)).aborted == ()
    chunks = list(reading(broker, topic, 0, 7))
    assert chunks[-1].until == 7
    assert not any(chunk.aborted for chunk in chunks)
    with pytest.raises(PipelineError, match=f"^{topic}-0 can be read only to offset 6, not from 6 to 7"):
        list(reading(broker, topic, 0, 7, True, **SHORT))


# -- brokers that die


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "stopped"])
def test_fetch_continues_after_a_broker_restart(fresh_broker: Callable[..., Any], kill: bool) -> None:
    broker = fresh_broker()
    topic = create_topic(broker)
    fill(broker, topic, 200)
    chunks = reading(broker, topic, 0, 600, **PIECES)
    found = [next(chunks), next(chunks)]
    broker.restart(kill=kill)
    found += chunks
    assert offsets(found, 0, 600) == list(range(600))


def test_fetch_fails_when_the_broker_stays_down(
    fresh_broker: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = fresh_broker()
    topic = create_topic(broker)
    fill(broker, topic, 100)
    chunks = reading(broker, topic, 0, 300, **PIECES, **SHORT)
    next(chunks)
    broker.stop()
    clock = PlayedTime()
    monkeypatch.setattr(retries, "time", clock)
    with pytest.raises(PipelineError, match="no broker responds"):
        list(chunks)
    assert 0 < clock.now < 30  # the default is 60 s


def test_timeout_begins_again_after_each_chunk(
    fresh_broker: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time that the reader spends on a chunk must not count."""
    broker = fresh_broker()
    topic = create_topic(broker)
    fill(broker, topic, 30)
    later = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + later[0], sleep=time.sleep)
    monkeypatch.setattr(retries, "time", clock)
    chunks = reading(broker, topic, 0, 90, **PIECES, **{"default.api.timeout.ms": "2000"})
    found = [next(chunks)]
    broker.restart(kill=True)
    later[0] = 2.1
    assert offsets([*found, *chunks], 0, 90) == list(range(90))


@pytest.mark.needs("java-3.9.1")
def test_fetch_continues_across_leader_changes(tmp_path: Path) -> None:
    """The leader is killed, restarted, and its successor is killed, all while one range is read."""
    with Cluster(tmp_path) as cluster:
        topic = replicated(cluster)
        leader = cluster.wait_leader(topic)
        fill(cluster.broker(leader), topic, 300)
        cluster.wait_isr(topic, 0, 3)
        chunks = reading(cluster, topic, 0, 900, **PIECES)
        found = [next(chunks)]
        for _ in range(2):
            cluster.kill(leader)
            found += [next(chunks) for _ in range(3)]
            follower = cluster.wait_leader(topic, other_than=leader)
            cluster.restart(leader)
            cluster.wait_isr(topic, 0, 3)
            leader = follower
        found += chunks
    assert offsets(found, 0, 900) == list(range(900))


# -- Apache Kafka


@pytest.mark.needs("java-4.1.0")
def test_ranges_are_fetched_from_apache_kafka(tmp_path: Path) -> None:
    """Apache Kafka 4 refuses old API versions, and its topics have ids."""
    apache = Apache("4.1.0", tmp_path).start()
    try:
        broker = ExternalBroker(apache.bootstrap)
        topic = create_topic(broker)
        fill(broker, topic, 100)
        assert offsets(list(reading(broker, topic, 50, 250, **PIECES)), 50, 250) == list(range(50, 250))
        delete_records_before(broker, topic, 60)
        with pytest.raises(DataLoss, match=r"the log has 60 to 299$"):
            list(reading(broker, topic, 0, 300))
        topic = create_topic(broker)
        _transactions(broker, topic)
        _check_transactions(broker, topic)
    finally:
        apache.stop()


@pytest.mark.needs("java-3.9.1")
def test_topics_without_ids_are_fetched_by_name(tmp_path: Path) -> None:
    """Kafka assigns no ids while brokers older than 2.8 may be in the cluster; new Fetch versions require ids."""
    zookeeper = ZooKeeper(tmp_path / "zookeeper").start()
    member = ApacheMember(tmp_path / "kafka", 0, zookeeper.connect)
    try:
        with member.properties.open("a") as out:
            out.write("inter.broker.protocol.version=2.7\n")
        broker = ExternalBroker(member.start().bootstrap)
        with connected(broker) as brokers:  # the broker responds before its own metadata is loaded; that must not count
            assert brokers.topics() == {}
        topic = create_topic(broker)
        fill(broker, topic, 100)
        assert offsets(list(reading(broker, topic, 50, 250, **PIECES)), 50, 250) == list(range(50, 250))
    finally:
        member.kill()
        zookeeper.kill()
