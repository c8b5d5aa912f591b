"""Every transaction API of the coordinator in every version, from request bytes to response bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from odradek.groups.offsets import TopicPartition
from odradek.groups.transactions.events import Producer
from odradek.groups.transactions.states import State
from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.protocol.wire import MALFORMED
from odradek.workers.apis.table import load_rows
from odradek.workers.dispatch.api import COORDINATOR, WORKER
from odradek.workers.dispatch.coordination import TxnMarkerEntry

from .test_apis import FakeCoordinator, versions
from .transaction_world import TransactionWorld

INIT, ADD, ADD_OFFSETS, END, MARKERS, COMMIT, DESCRIBE, LIST = 22, 24, 25, 26, 27, 28, 65, 66
FENCED_CODES = {True: Error.INVALID_PRODUCER_EPOCH, False: Error.PRODUCER_FENCED}


class Coordinator(FakeCoordinator):
    """A coordinator with transactions; markers complete at once, without a log."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = TransactionWorld()
        self.transactions = self.ids.transactions
        self.asked: list[TxnMarkerEntry] = []
        self.outcome = Error.NONE  # of markers in partition 0
        self.looks = 0

    def when_transactions_topic(self, ready: Callable[[bool], None], ids: Iterable[str] = ()) -> None:
        ready(self.topic_there)

    def admits_markers(self, client_id: str | None) -> bool:
        return True

    def verify(self, producer: Producer, partition: TopicPartition, done: Callable[[Error], None]) -> None:
        done(self.transactions.verify(producer, [partition])[partition])

    def write_markers(self, wanted: TxnMarkerEntry, done: Callable[[dict[TopicPartition, Error]], None]) -> None:
        self.asked.append(wanted)
        done({tp: Error.UNKNOWN_TOPIC_OR_PARTITION if tp[1] else self.outcome for tp in wanted.partitions})

    def look_for_brokers(self) -> None:
        self.looks += 1

    def settle(self) -> None:
        super().settle()
        self.ids.settle()
        for token in [token for token in self.ids.answers if callable(token)]:
            for result in self.ids.answers.pop(token):
                token(result)
        super().settle()

    def ongoing(self, *partitions: TopicPartition) -> Producer:
        producer = self.ids.started("x")
        assert self.ids.add(producer, *(partitions or [("t", 0)])) is Error.NONE
        return producer


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def fields(producer: Producer, **more: Any) -> dict[str, Any]:
    return {"transactional_id": "x", "producer_id": producer.id, "producer_epoch": producer.epoch, **more}


@pytest.mark.parametrize("version", versions(INIT))
def test_init_allocates_and_fences_epochs(coordinator: Coordinator, version: int) -> None:
    request = message_class("InitProducerIdRequest")

    def init(**more: Any) -> Any:
        row = request(transactional_id="x", transaction_timeout_ms=1000, **more)
        answer = coordinator.send(INIT, version, row)
        return answer.error_code, answer.producer_id, answer.producer_epoch

    first = init()
    assert first == (0, 1000, 0)
    assert init() == (0, 1000, 1)
    if version >= 3:
        assert init(producer_id=1000, producer_epoch=1) == (0, 1000, 2)
        assert init(producer_id=1000, producer_epoch=0) == (FENCED_CODES[version < 4], -1, -1)
    coordinator.ids.add(Producer("x", 1000, coordinator.ids.metadata("x").epoch))
    assert init() == (Error.CONCURRENT_TRANSACTIONS, -1, -1)


@pytest.mark.parametrize("version", versions(INIT))
def test_process_that_handles_init(version: int) -> None:
    row, request = load_rows()[INIT], message_class("InitProducerIdRequest")

    def place(name: str | None) -> str:
        return row.place(
            version, bytes(request(transactional_id=name, transaction_timeout_ms=1).encode(version=version))
        )

    assert place(None) == WORKER
    assert place("x") == place("") == place("y" * 300) == COORDINATOR
    with pytest.raises(MALFORMED):
        row.place(version, b"")


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.1"])
def test_clients_may_not_add_internal_topics(coordinator: Coordinator, version: int, host: str) -> None:
    """Markers would be written to them. From version 4 on, brokers may add them."""
    request = message_class("AddPartitionsToTxnRequest")
    producer = coordinator.ids.started("x")
    topics = {"t": 0, "__consumer_offsets": 0}
    if version < 4:
        rows = [request.AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in topics.items()]
        asked = request(
            v3_and_below_transactional_id="x", v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch, v3_and_below_topics=rows,
        )  # fmt: skip
        answered = coordinator.send(ADD, version, asked, host=host).results_by_topic_v3_and_below
    else:
        row = request.AddPartitionsToTxnTransaction
        rows = [row.AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in topics.items()]
        asked = request(
            transactions=[
                row(
                    transactional_id="x", producer_id=producer.id, producer_epoch=producer.epoch, verify_only=False,
                    topics=rows,
                )
            ]
        )  # fmt: skip
        answered = coordinator.send(ADD, version, asked, host=host).results_by_transaction[0].topic_results
    said = {topic.name: topic.results_by_partition[0].partition_error_code for topic in answered}
    refused = {"t": Error.OPERATION_NOT_ATTEMPTED, "__consumer_offsets": Error.TOPIC_AUTHORIZATION_FAILED}
    assert said == ({"t": 0, "__consumer_offsets": 0} if version >= 4 and host == "127.0.0.1" else refused)


@pytest.mark.parametrize("version", range(4))
def test_add_partitions_is_all_or_nothing(coordinator: Coordinator, version: int) -> None:
    request = message_class("AddPartitionsToTxnRequest")
    producer = coordinator.ids.started("x")

    def add(epoch: int, *partitions: int) -> list[tuple[int, int]]:
        row = request(
            v3_and_below_transactional_id="x", v3_and_below_producer_id=producer.id, v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[request.AddPartitionsToTxnTopic(name="t", partitions=list(partitions))],
        )  # fmt: skip
        (topic,) = coordinator.send(ADD, version, row).results_by_topic_v3_and_below
        assert topic.name == "t"
        return [(each.partition_index, each.partition_error_code) for each in topic.results_by_partition]

    assert add(0, 0, 1) == [(0, 0), (1, 0)]
    assert add(0, 0, 2) == [(0, Error.OPERATION_NOT_ATTEMPTED), (2, Error.UNKNOWN_TOPIC_OR_PARTITION)]
    assert add(1, 0) == add(-1, 0) == [(0, FENCED_CODES[version < 2])]
    assert add(0, 0, 1, 0) == [(0, 0), (1, 0)]
    assert coordinator.ids.metadata("x").partitions == {("t", 0), ("t", 1)}


@pytest.mark.parametrize("version", [4, 5])
def test_add_and_verify_of_several_transactions(coordinator: Coordinator, version: int) -> None:
    request = message_class("AddPartitionsToTxnRequest")
    row_class = request.AddPartitionsToTxnTransaction
    one, two = coordinator.ids.started("x"), coordinator.ids.started("y")

    def row(producer: Producer, verify: bool, *partitions: int) -> Any:
        return row_class(
            transactional_id=producer.transactional_id, producer_id=producer.id, producer_epoch=producer.epoch,
            verify_only=verify, topics=[row_class.AddPartitionsToTxnTopic(name="t", partitions=list(partitions))],
        )  # fmt: skip

    def send(*rows: Any) -> dict[str, list[int]]:
        answer = coordinator.send(ADD, version, request(transactions=list(rows)))
        assert answer.error_code == 0
        return {
            row.transactional_id: [each.partition_error_code for each in row.topic_results[0].results_by_partition]
            for row in answer.results_by_transaction
        }

    absent = Error.INVALID_TXN_STATE if version == 4 else Error.TRANSACTION_ABORTABLE
    assert send(row(one, False, 0), row(two, True, 0, 1)) == {"x": [0], "y": [absent, absent]}
    assert send(row(one, True, 0, 1)) == {"x": [0, absent]}
    assert send(row(one, True, 0, 2)) == {"x": [Error.OPERATION_NOT_ATTEMPTED, Error.UNKNOWN_TOPIC_OR_PARTITION]}
    again = row(one, True, 0)
    again.topics += row(one, True, 1).topics
    assert send(again) == {"x": [0, absent]}, "a duplicate topic is answered once"
    assert send() == {}
    twice = coordinator.send(ADD, version, request(transactions=[row(one, True, 0), row(one, True, 1)]))
    topics = [each.topic_results[0] for each in twice.results_by_transaction]
    assert [topic.results_by_partition[0].partition_error_code for topic in topics] == [0, absent]


@pytest.mark.parametrize("version", versions(ADD_OFFSETS))
def test_add_offsets_adds_the_groups_offsets_partition(coordinator: Coordinator, version: int) -> None:
    request = message_class("AddOffsetsToTxnRequest")
    producer = coordinator.ids.started("x")

    def add(who: Producer) -> int:
        return coordinator.send(ADD_OFFSETS, version, request(**fields(who, group_id="g"))).error_code

    assert add(producer) == 0
    assert coordinator.ids.metadata("x").partitions == {("__consumer_offsets", 0)}
    assert add(producer._replace(epoch=9)) == FENCED_CODES[version < 2]
    coordinator.topic_there = False
    assert add(producer) == Error.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("version", versions(END))
def test_end_decides_the_transaction_once(coordinator: Coordinator, version: int) -> None:
    request = message_class("EndTxnRequest")
    producer = coordinator.ongoing()

    def end(who: Producer, commit: bool) -> int:
        return coordinator.send(END, version, request(**fields(who, committed=commit))).error_code

    assert end(producer._replace(epoch=9), True) == FENCED_CODES[version < 2]
    assert end(producer, False) == 0
    assert end(producer, True) == Error.INVALID_TXN_STATE
    assert coordinator.ids.state() is State.PREPARE_ABORT


@pytest.mark.parametrize("version", versions(MARKERS))
def test_markers_of_unknown_senders_only_abort_open_transactions(coordinator: Coordinator, version: int) -> None:
    request = message_class("WriteTxnMarkersRequest")
    row = request.WritableTxnMarker
    markers = [
        row(
            producer_id=number, producer_epoch=2, transaction_result=number == 5, coordinator_epoch=3,
            topics=[row.WritableTxnMarkerTopic(name="t", partition_indexes=[0, 1])],
        )
        for number in (5, 6)
    ]  # fmt: skip
    answer = coordinator.send(MARKERS, version, request(markers=markers))
    found = [
        (marker.producer_id, each.partition_index, each.error_code)
        for marker in answer.markers
        for each in marker.topics[0].partitions
    ]
    assert found == [(5, 0, 0), (5, 1, 3), (6, 0, 0), (6, 1, 3)]
    partitions = frozenset({("t", 0), ("t", 1)})
    assert coordinator.asked == [TxnMarkerEntry(5, 2, 3, True, partitions), TxnMarkerEntry(6, 2, 3, False, partitions)]
    coordinator.asked.clear()
    answer = coordinator.send(MARKERS, version, request(markers=markers), host="192.0.2.9")
    assert {each.error_code for each in answer.markers[0].topics[0].partitions} == {Error.NOT_LEADER_OR_FOLLOWER}
    assert coordinator.asked == [TxnMarkerEntry(6, 2, 3, False, partitions, only_open=True)], (
        "the commit is refused, the abort is limited to open transactions"
    )
    assert coordinator.send(MARKERS, version, request(markers=[])).markers == []


@pytest.mark.parametrize("version", versions(MARKERS))
def test_markers_with_negative_ids_or_epochs_are_refused(coordinator: Coordinator, version: int) -> None:
    """No batch has a negative id or epoch; a marker without partitions gets no result, as in Kafka."""
    request = message_class("WriteTxnMarkersRequest")
    row = request.WritableTxnMarker
    there, nothing = [row.WritableTxnMarkerTopic(name="t", partition_indexes=indexes) for indexes in ([0], [])]
    nowhere = row.WritableTxnMarkerTopic(name="none", partition_indexes=[0])
    markers = [
        row(producer_id=number, producer_epoch=epoch, transaction_result=True, coordinator_epoch=0, topics=topics)
        for number, epoch, topics in (
            (-1, 0, [there, nowhere]),
            (5, -1, [there]),
            (6, 0, [nothing]),
            (7, 0, [there, nothing]),
        )
    ]
    answer = coordinator.send(MARKERS, version, request(markers=markers))
    found = [
        (one.producer_id, [(topic.name, part.error_code) for topic in one.topics for part in topic.partitions])
        for one in answer.markers
    ]
    refused = Error.INVALID_PRODUCER_ID_MAPPING, Error.INVALID_PRODUCER_EPOCH
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert found == [(-1, [("t", refused[0]), ("none", unknown)]), (5, [("t", refused[1])]), (7, [("t", 0)])]
    assert [(one.producer_id, sorted(one.partitions)) for one in coordinator.asked if one.partitions] == [
        (7, [("t", 0)])
    ]


def test_refused_markers_start_address_lookup(coordinator: Coordinator) -> None:
    """The sender may be a broker whose address is not known yet."""
    request = message_class("WriteTxnMarkersRequest")
    row = request.WritableTxnMarker

    def mark(commit: bool, outcome: Error, host: str = "192.0.2.9") -> int:
        """The number of address lookups."""
        topics = [row.WritableTxnMarkerTopic(name="t", partition_indexes=[0])]
        one = row(producer_id=5, producer_epoch=2, transaction_result=commit, coordinator_epoch=3, topics=topics)
        coordinator.looks, coordinator.outcome = 0, outcome
        answer = coordinator.send(MARKERS, 1, request(markers=[one]), host=host)
        assert (answer.markers[0].topics[0].partitions[0].error_code == Error.NONE) == (outcome is Error.NONE)
        return coordinator.looks

    refused = Error.NOT_LEADER_OR_FOLLOWER
    assert mark(commit=True, outcome=refused) == 1
    assert mark(commit=False, outcome=refused) == 1
    assert mark(commit=False, outcome=Error.NONE) == 0, "an administrator's abort"
    assert mark(commit=False, outcome=refused, host="127.0.0.1") == 0, "a broker's abort"


def test_abort_by_unknown_sender_runs_in_steps(coordinator: Coordinator) -> None:
    """A marker in each of 65,536 partitions would block the coordinator for half a minute."""
    request = message_class("WriteTxnMarkersRequest")
    row = request.WritableTxnMarker

    def taken(count: int, host: str) -> int:
        coordinator.asked.clear()
        topics = [row.WritableTxnMarkerTopic(name="t", partition_indexes=list(range(count)))]
        one = row(producer_id=5, producer_epoch=2, transaction_result=False, coordinator_epoch=3, topics=topics)
        answer = coordinator.send(MARKERS, 1, request(markers=[one]), host=host)
        errors = {each.error_code for each in answer.markers[0].topics[0].partitions}
        assert coordinator.asked or errors == {Error.NOT_LEADER_OR_FOLLOWER}
        return len(coordinator.asked)

    assert (taken(100, "192.0.2.9"), taken(101, "192.0.2.9"), taken(101, "127.0.0.1")) == (1, 0, 1)


@pytest.mark.parametrize("version", versions(COMMIT))
def test_transactional_offsets_are_pending_until_the_commit(coordinator: Coordinator, version: int) -> None:
    request = message_class("TxnOffsetCommitRequest")
    topic_class = request.TxnOffsetCommitRequestTopic
    producer = coordinator.ongoing(("__consumer_offsets", 0))

    def commit(who: Producer, *partitions: int, group: str = "g") -> list[int]:
        rows = [
            topic_class.TxnOffsetCommitRequestPartition(
                partition_index=at, committed_offset=at + 5, committed_leader_epoch=4, committed_metadata=None
            )
            for at in partitions
        ]
        row = request(**fields(who, group_id=group, topics=[topic_class(name="t", partitions=rows)]))
        return [each.error_code for each in coordinator.send(COMMIT, version, row).topics[0].partitions]

    assert commit(producer, 0, 1, 2) == [0, 0, Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert coordinator.world.committed(("t", 1)) is None
    assert coordinator.groups.fetch("g", [("t", 1)], True)[1] == {("t", 1): (None, Error.UNSTABLE_OFFSET_COMMIT)}
    coordinator.groups.end_transaction(0, producer.id, True, coordinator.now)
    error, found = coordinator.groups.fetch("g", [("t", 1)], True)
    value = found["t", 1][0]
    assert not error and value is not None
    assert (value.offset, value.leader_epoch) == (6, 4 if version >= 2 else -1)
    for epoch in (9, -1):
        assert commit(producer._replace(epoch=epoch), 0) == [Error.INVALID_PRODUCER_EPOCH]
    assert commit(producer._replace(id=-1), 0) == [Error.INVALID_PRODUCER_ID_MAPPING]
    assert commit(producer, 0, 2, group="") == [Error.INVALID_GROUP_ID, Error.UNKNOWN_TOPIC_OR_PARTITION]
    coordinator.ids.end(producer)
    coordinator.ids.mark()
    assert commit(producer, 0) == [Error.INVALID_TXN_STATE if version < 4 else Error.TRANSACTION_ABORTABLE]


@pytest.mark.parametrize("version", versions(COMMIT))
def test_transactional_commit_is_refused_while_groups_load(coordinator: Coordinator, version: int) -> None:
    request = message_class("TxnOffsetCommitRequest")
    topic_class = request.TxnOffsetCommitRequestTopic
    row = topic_class.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    producer = coordinator.ongoing(("__consumer_offsets", 0))
    coordinator.groups.will_load(0)
    asked = request(**fields(producer, group_id="g", topics=[topic_class(name="t", partitions=[row])]))
    (said,) = coordinator.send(COMMIT, version, asked).topics[0].partitions
    old, new = Error.COORDINATOR_NOT_AVAILABLE, Error.COORDINATOR_LOAD_IN_PROGRESS
    assert said.error_code == (old if version < 2 else new)


def test_describe_and_list_return_states_and_filter(coordinator: Coordinator) -> None:
    coordinator.ongoing(("t", 0), ("t", 1), ("__consumer_offsets", 0))
    request = message_class("DescribeTransactionsRequest")
    (state,) = coordinator.send(DESCRIBE, 0, request(transactional_ids=["x"])).transaction_states
    assert {row.topic: row.partitions for row in state.topics} == {"t": [0, 1], "__consumer_offsets": [0]}
    assert (state.transaction_state, state.transaction_timeout_ms) == ("Ongoing", 60_000)
    (state,) = coordinator.send(DESCRIBE, 0, request(transactional_ids=["nobody"])).transaction_states
    assert (state.error_code, state.transaction_state) == (Error.TRANSACTIONAL_ID_NOT_FOUND, "")
    assert (state.producer_id, state.producer_epoch, state.transaction_start_time_ms) == (0, 0, 0)
    request = message_class("ListTransactionsRequest")

    def listed(version: int, **more: Any) -> Any:
        asked = request(state_filters=["Wrong"] if more.pop("wrong", False) else [], producer_id_filters=[], **more)
        return coordinator.send(LIST, version, asked)

    for version in versions(LIST):
        assert [row.transactional_id for row in listed(version).transaction_states] == ["x"]
        answer = listed(version, wrong=True)
        assert (answer.unknown_state_filters, answer.transaction_states) == (["Wrong"], [])
    assert listed(1, duration_filter=10**6).transaction_states == []
    assert listed(2, transactional_id_pattern="y.*").transaction_states == []
    assert listed(2, transactional_id_pattern="(").error_code == 128
    assert len(listed(2, transactional_id_pattern="x|y").transaction_states) == 1
    coordinator.ids.started("a" * 60)
    assert (
        listed(2, transactional_id_pattern="(a|a)*b").transaction_states == []
    )  # catastrophic in a backtracking engine


@pytest.mark.parametrize("version", versions(10)[1:])
def test_find_coordinator_of_a_transactional_id_needs_the_topic(coordinator: Coordinator, version: int) -> None:
    request = message_class("FindCoordinatorRequest")

    def find(name: str) -> int:
        key = {"coordinator_keys": [name]} if version >= 4 else {"key": name}
        answer = coordinator.send(10, version, request(key_type=1, **key))
        return (answer.coordinators[0] if version >= 4 else answer).error_code

    coordinator.topic_there = False
    assert find("x") == Error.COORDINATOR_NOT_AVAILABLE
    coordinator.topic_there = True
    assert find("") == Error.INVALID_REQUEST
