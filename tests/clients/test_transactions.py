"""Transactions as clients see them: confluent-kafka, kafka-python and raw requests against a real broker."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from odradek.ipc.locks import PartitionLocks
from odradek.ipc.rundir import run_dir, shm_prefix
from odradek.ipc.shm import Shared

from ..harness import java
from ..harness.process import wait_until
from ..harness.wire import Wire
from .admin import create_topic, unique
from .transactions import WAIT, Confluent, KafkaPython, Raw, await_stable, offsets_of, read, stable_end, state_of

pytestmark = pytest.mark.live

QUICK = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 200}


# -- clients ----------------------------------------------------------------------------------------------------


@pytest.fixture(params=[Confluent, KafkaPython], ids=["confluent-kafka", "kafka-python"])
def producer(request: Any, broker: Any) -> Any:
    """A function that makes producers, each with its own transactional id."""
    made: list[Any] = []

    def make(name: str | None = None) -> Any:
        made.append(request.param(broker, name or unique("id")))
        return made[-1]

    yield make
    for each in made:
        each.close()


def read_with_kafka_python(broker: Any, topic: str, isolation: str) -> list[bytes]:
    """All records that kafka-python reads, which filters aborted ones itself."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, isolation_level=isolation, auto_offset_reset="earliest"
    )
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    end = consumer.end_offsets([partition])[partition]
    found = []
    try:
        while consumer.position(partition) < end:
            for records in consumer.poll(500).values():
                found += [record.value for record in records]
        return found
    finally:
        consumer.close()


# -- guarantees --------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_read_committed_returns_committed_and_hides_aborted_records(broker: Any, producer: Callable[..., Any]) -> None:
    topic = create_topic(broker, partitions=2)
    client = producer()
    for number in range(6):
        client.begin()
        for partition in (0, 1):
            for at in range(5):
                client.send(topic, b"%d-%d" % (number, at), partition)
        client.flush()
        client.abort() if number % 3 == 1 else client.commit()
    await_stable(broker, topic)
    everything = [b"%d-%d" % (number, at) for number in range(6) for at in range(5)]
    committed = [value for value in everything if value[:1] not in b"14"]
    for partition in (0, 1):
        assert read(broker, topic, "read_uncommitted", partition) == everything
        assert read(broker, topic, "read_committed", partition) == committed
    assert read_with_kafka_python(broker, topic, "read_uncommitted") == everything
    assert read_with_kafka_python(broker, topic, "read_committed") == committed


def test_read_committed_stops_at_an_open_transaction(broker: Any, producer: Callable[..., Any]) -> None:
    topic = create_topic(broker)
    first, second = producer(), producer()
    first.begin()
    first.send(topic, b"open")
    first.flush()
    second.begin()
    second.send(topic, b"committed")
    second.commit()
    assert stable_end(broker, topic) == 0
    assert read(broker, topic, "read_committed") == []
    assert read(broker, topic, "read_uncommitted") == [b"open", b"committed"]
    first.commit()
    await_stable(broker, topic)
    assert read(broker, topic, "read_committed") == [b"open", b"committed"]


def test_zombie_producer_is_fenced(broker: Any, producer: Callable[..., Any]) -> None:
    topic, name = create_topic(broker), unique("id")
    zombie = producer(name)
    zombie.begin()
    zombie.send(topic, b"lost")
    zombie.flush()
    successor = producer(name)
    successor.begin()
    successor.send(topic, b"kept")
    successor.commit()
    with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
        zombie.send(topic, b"too late")
        zombie.commit()
    await_stable(broker, topic)
    assert read(broker, topic, "read_committed") == [b"kept"]


def test_consume_transform_produce_is_exactly_once_over_aborts(broker: Any) -> None:
    """Offsets advance only with the transaction that has the results of their records."""
    from confluent_kafka import Consumer

    source, sink, group = create_topic(broker), create_topic(broker), unique("group")
    feeder = Confluent(broker, unique("id"))
    feeder.begin()
    for at in range(60):
        feeder.send(source, b"%d" % at)
    feeder.commit()
    await_stable(broker, source)
    config = {
        "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }  # fmt: skip
    worker = Confluent(broker, unique("id"))
    for attempt in range(12):
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, **config})
        consumer.subscribe([source])
        try:
            messages = consumer.consume(10, WAIT if attempt < 9 else 3)
            if not messages:
                break
            worker.begin()
            for message in messages:
                assert not message.error(), message.error()
                value = message.value()
                assert value is not None
                worker.send(sink, b"<" + value + b">")
            positions = consumer.position(consumer.assignment())
            worker._producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WAIT)
            worker.flush()  # an abort drops unsent records, so read_committed would have none to hide
            worker.abort() if attempt % 3 == 1 else worker.commit()
        finally:
            consumer.close()
    assert read(broker, sink, "read_committed") == [b"<%d>" % at for at in range(60)]
    assert len(read(broker, sink, "read_uncommitted")) > 60


# -- raw requests, at a chosen moment -----------------------------------------------------------------------------


@pytest.fixture
def wire(broker: Any) -> Any:
    with broker.wire() as connection:
        yield connection


@pytest.mark.parametrize("commit", [True, False])
def test_transactional_offsets_count_once_the_marker_is_written(broker: Any, wire: Wire, commit: bool) -> None:
    topic, group, raw = create_topic(broker), unique("group"), Raw(wire)
    assert raw.add_offsets(group) == 0
    assert raw.commit_offset(group, topic, 42) == 0
    assert offsets_of(wire, group, topic) == (-1, 0)
    assert offsets_of(wire, group, topic, stable=True) == (-1, 88), "UNSTABLE_OFFSET_COMMIT"
    assert raw.end(commit) == 0
    wait_until(lambda: offsets_of(wire, group, topic, stable=True)[1] == 0, WAIT, "the marker")
    assert offsets_of(wire, group, topic) == (42 if commit else -1, 0)


def test_offsets_outside_a_transaction_are_refused(broker: Any, wire: Wire) -> None:
    """Late offsets would hold back the last stable offset of `__consumer_offsets` for ever (KIP-890)."""
    topic, group, raw = create_topic(broker), unique("group"), Raw(wire)
    assert raw.add_offsets(unique("other")) == 0
    assert raw.commit_offset(group, topic, 1) in (0, 48)  # both groups may share a partition
    assert raw.end() == 0
    wait_until(lambda: raw.commit_offset(group, topic, 1) == 48, WAIT, "INVALID_TXN_STATE")
    raw.epoch += 1
    assert raw.commit_offset(group, topic, 1) == 47


def test_transactional_offsets_of_unknown_members_are_refused(broker: Any, wire: Wire) -> None:
    topic, group, raw = create_topic(broker), unique("group"), Raw(wire)
    assert raw.add_offsets(group) == 0
    member: dict[str, Any] = {"member_id": "nobody", "generation_id": 1, "group_instance_id": None}
    assert raw.commit_offset(group, topic, 1, **member) == 25
    assert raw.commit_offset(group, topic, 1, version=0) == 0
    assert raw.commit_offset(group, topic, 1, **member) == 25


@pytest.mark.parametrize("version", range(5))
def test_every_version_refuses_another_epoch_and_commits(broker: Any, wire: Wire, version: int) -> None:
    topic, raw = create_topic(broker), Raw(wire)
    assert raw.add(topic, version=min(version, 3)) == [0]
    assert raw.write(topic, b"x").error_code == 0
    fenced_code = 47 if version < 2 else 90
    raw.epoch += 1
    assert raw.add(topic, version=min(version, 3)) == [fenced_code]
    assert raw.end(version=version) == fenced_code
    raw.epoch -= 1
    assert raw.end(version=version) == 0
    await_stable(broker, topic)
    assert read(broker, topic, "read_committed") == [b"x"]


def test_unknown_partition_keeps_the_others_out_of_the_transaction(broker: Any, wire: Wire) -> None:
    topic, raw = create_topic(broker), Raw(wire)
    assert raw.add(topic, 0, 9) == [55, 3], "OPERATION_NOT_ATTEMPTED, UNKNOWN_TOPIC_OR_PARTITION"
    assert raw.end() == 48


def test_open_transaction_is_described_and_listed(broker: Any, wire: Wire) -> None:
    from kafka.protocol.admin import DescribeProducersRequest, DescribeTransactionsRequest, ListTransactionsRequest

    topic, raw = create_topic(broker), Raw(wire)
    raw.add(topic)
    raw.write(topic, b"x")
    asked = DescribeTransactionsRequest[0](transactional_ids=[raw.name, "none"])
    found, missing = wire.call(asked).transaction_states
    assert (found.transaction_state, found.producer_id, found.producer_epoch) == ("Ongoing", raw.id, raw.epoch)
    assert [(row.topic, row.partitions) for row in found.topics] == [(topic, [0])]
    assert missing.error_code == 105
    filters: list[dict[str, Any]] = [{}, {"duration_filter": 0}, {"transactional_id_pattern": raw.name[:-1] + "."}]
    for version, fields in enumerate(filters):
        more = {"duration_filter": -1, **fields} if version else {}
        answer = wire.call(ListTransactionsRequest[version](state_filters=["Ongoing"], producer_id_filters=[], **more))
        assert raw.name in [row.transactional_id for row in answer.transaction_states]
    topics = [DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0, 1])]
    there, absent = wire.call(DescribeProducersRequest[0](topics=topics)).topics[0].partitions
    (state,) = there.active_producers
    assert (state.producer_id, state.current_txn_start_offset, state.last_sequence) == (raw.id, 0, 0)
    assert absent.error_code == 3
    assert raw.end() == 0


def test_write_txn_markers_commits_a_transaction(broker: Any, wire: Wire) -> None:
    from kafka.protocol.producer import WriteTxnMarkersRequest as Request

    topic, raw = create_topic(broker), Raw(wire)
    raw.add(topic)
    raw.write(topic, b"x")
    row = Request.WritableTxnMarker
    markers = [
        row(
            producer_id=raw.id, producer_epoch=raw.epoch, transaction_result=True, coordinator_epoch=0,
            topics=[row.WritableTxnMarkerTopic(name=topic, partition_indexes=[0, 7])],
        )
    ]  # fmt: skip
    answer = wire.call(Request[1](markers=markers))
    assert [p.error_code for p in answer.markers[0].topics[0].partitions] == [0, 3]
    assert stable_end(broker, topic) == 2
    assert read(broker, topic, "read_committed") == [b"x"]


# -- timeouts and crashes ----------------------------------------------------------------------------------------


def test_timed_out_transaction_is_aborted(fresh_broker: Any) -> None:
    broker = fresh_broker(**QUICK)
    topic = create_topic(broker)
    with broker.wire() as wire:
        raw = Raw(wire, timeout_ms=8000)  # enough to write the record
        raw.add(topic)
        raw.write(topic, b"forgotten")
        await_stable(broker, topic)
        assert raw.end() == 90, "PRODUCER_FENCED"
    assert read(broker, topic, "read_committed") == []
    assert read(broker, topic, "read_uncommitted") == [b"forgotten"]


def test_acknowledged_decisions_survive_coordinator_crashes(fresh_broker: Any) -> None:
    """The next coordinator writes the markers of an acknowledged EndTxn if the first one could not."""
    broker = fresh_broker()
    topic, group = create_topic(broker, partitions=3), unique("group")
    decided = []
    for number in range(4):
        with broker.wire() as wire:
            raw = Raw(wire)
            assert raw.add(topic, 0, 1, 2) == [0, 0, 0]
            assert raw.add_offsets(group) == 0
            for partition in range(3):
                assert raw.write(topic, b"%d" % number, partition=partition).error_code == 0
                raw.sequence = 0
            assert raw.commit_offset(group, topic, number) == 0
            assert raw.end(commit=number % 2 == 0) == 0
            dead = broker.kill_role("coordinator")
            decided.append(number)
        broker.await_respawn("coordinator", dead)
        await_stable(broker, topic)
    kept = [b"%d" % number for number in decided if number % 2 == 0]
    for partition in range(3):
        wait_until(lambda p=partition: read(broker, topic, "read_committed", p) == kept, WAIT, "all are decided")  # type: ignore[misc]  # a default in a lambda
    with broker.wire() as wire:
        wait_until(lambda: offsets_of(wire, group, topic, stable=True) == (2, 0), WAIT, "the offsets, too")


@contextmanager
def held(broker: Any, topic: str, partition: int) -> Iterator[None]:
    """Holds the partition's lock, so that no process can write to it; for less than `odradek.lock.stall.ms`."""
    shared = Shared.attach(shm_prefix(broker.data_dir))
    _, blob = shared.metadata.read()
    slot = json.loads(blob)["topics"][topic]["partitions"][partition][0]
    locks = PartitionLocks(run_dir(broker.data_dir) / "partition.lock")
    try:
        wait_until(lambda: locks.try_lock(slot), WAIT, "the lock")
        yield
    finally:
        locks.close()


@pytest.mark.parametrize("commit", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize("victim", ["coordinator", "broker"])
def test_next_coordinator_writes_the_missing_marker(fresh_broker: Any, victim: str, commit: bool) -> None:
    """When the coordinator dies, one partition has its marker and the other is locked."""
    broker = fresh_broker()
    topic = create_topic(broker, partitions=2)
    with broker.wire() as wire:
        raw = Raw(wire)
        assert raw.add(topic, 0, 1) == [0, 0]
        for partition in (0, 1):
            assert raw.write(topic, b"x", partition=partition).error_code == 0
            raw.sequence = 0
        with held(broker, topic, 1):
            assert raw.end(commit) == 0
            assert state_of(wire, raw.name) == ("PrepareCommit" if commit else "PrepareAbort")
            assert read(broker, topic, "read_committed", 1) == []
            dead = broker.kill_role("coordinator") if victim == "coordinator" else broker.kill()
    if victim == "coordinator":
        broker.await_respawn("coordinator", dead)
    else:
        broker.start()
    done = "CompleteCommit" if commit else "CompleteAbort"
    with broker.wire() as wire:
        wait_until(lambda: state_of(wire, raw.name) == done, WAIT, done)
    for partition in (0, 1):
        assert read(broker, topic, "read_committed", partition) == ([b"x"] if commit else [])


def test_deleted_topic_does_not_block_its_transaction(broker: Any, wire: Wire) -> None:
    from kafka.protocol.admin import DeleteTopicsRequest as Request

    gone, kept, raw = create_topic(broker), create_topic(broker), Raw(wire)
    for topic in (gone, kept):
        raw.add(topic)
        raw.write(topic, b"x")
        raw.sequence = 0
    assert wire.call(Request[3](topic_names=[gone], timeout_ms=15_000)).responses[0].error_code == 0
    assert raw.end() == 0
    wait_until(lambda: state_of(wire, raw.name) == "CompleteCommit", WAIT, "the transaction is complete")
    assert read(broker, kept, "read_committed") == [b"x"]


@pytest.mark.parametrize("kill", [True, False])
def test_open_transaction_survives_a_broker_restart(fresh_broker: Any, kill: bool) -> None:
    broker = fresh_broker()
    topic, group = create_topic(broker), unique("group")
    with broker.wire() as wire:
        raw = Raw(wire)
        raw.add(topic)
        raw.write(topic, b"before")
        assert raw.add_offsets(group) == 0
        assert raw.commit_offset(group, topic, 7) == 0
    broker.restart(kill=kill)
    assert read(broker, topic, "read_committed") == []
    with broker.wire() as wire:
        raw.wire = wire
        raw.find()
        assert raw.write(topic, b"after").error_code == 0
        assert offsets_of(wire, group, topic, stable=True) == (-1, 88)
        assert raw.end() == 0
        await_stable(broker, topic)
        wait_until(lambda: offsets_of(wire, group, topic, stable=True) == (7, 0), WAIT, "the offset")
    assert read(broker, topic, "read_committed") == [b"before", b"after"]


# -- Apache Kafka's own tools -----------------------------------------------------------------------------------


@pytest.mark.needs("java-4.1.0")
def test_java_transactional_producer_commits_all_records(broker: Any) -> None:
    topic, name = create_topic(broker), unique("id")
    words = ["--topic", topic, "--num-records", "500", "--record-size", "50", "--throughput", "-1"]
    words += ["--transactional-id", name, "--transaction-duration-ms", "50"]
    words += ["--producer-props", f"bootstrap.servers={broker.bootstrap}"]
    done: subprocess.CompletedProcess[bytes] = java.run("4.1.0", "org.apache.kafka.tools.ProducerPerformance", *words)
    assert b"500 records sent" in done.stdout
    await_stable(broker, topic)
    with broker.wire() as wire:  # the state follows the last marker
        wait_until(lambda: state_of(wire, name) == "CompleteCommit", WAIT, "the last transaction is over")
    assert len(read(broker, topic, "read_committed")) == 500
    listed = java.run(
        "4.1.0", "org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", broker.bootstrap, "describe",
        "--transactional-id", name,
    )  # fmt: skip
    assert b"CompleteCommit" in listed.stdout
