"""The newest connection of each coordinator; contents of its requests, and the handling of responses."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.coordinator.broker_channels import NewestConnections, client_id
from odradek.broker.coordinator.txn_marker_channel import Marker, TxnMarkerRequests
from odradek.broker.coordinator.txn_markers import NO_SOURCE, PendingCompleteTxn
from odradek.broker.coordinator.verification_channel import PendingVerification, VerificationRequests
from odradek.groups.events import Now
from odradek.groups.transactions.events import Producer
from odradek.protocol import interbroker
from odradek.protocol.errors import Error
from odradek.workers.dispatch.coordination import TxnMarkerEntry


def test_connections_follow_each_other() -> None:
    newest = NewestConnections()
    first, second = client_id(1), client_id(1)
    assert newest.admits(first)
    assert newest.admits(second)
    assert not newest.admits(first)
    assert newest.admits(second)


def test_brokers_and_other_clients_do_not_concern_each_other() -> None:
    newest = NewestConnections()
    assert newest.admits("odradek-coordinator/1/b/20")
    assert newest.admits("odradek-coordinator/2/b/10")
    for client in (None, "", "broker-1-txn-marker-sender", "odradek-coordinator/1/b/x", "odradek-coordinator/1//-5"):
        assert newest.admits(client)
    assert newest.admits("odradek-coordinator/1/c/10"), "the counter restarts after a boot of the host"
    assert not newest.admits("odradek-coordinator/1/c/9")


@given(st.lists(st.integers(0, 9), max_size=30))
def test_none_is_admitted_after_a_later_one(times: list[int]) -> None:
    newest, latest = NewestConnections(), 0
    for since in times:
        assert newest.admits(f"odradek-coordinator/1/b/{since}") == (since >= latest)
        latest = max(latest, since)


# -- requests and answers


def wanted(producer: int, commit: bool = True) -> PendingCompleteTxn:
    return PendingCompleteTxn(
        TxnMarkerEntry(producer, 2, 3, commit, frozenset()), lambda _: None, lambda: None, NO_SOURCE, Now(0, 0)
    )


def test_markers_are_asked_for_by_transaction_and_topic() -> None:
    first, second = wanted(5), wanted(6, commit=False)
    items: list[Marker] = [(first, ("t", 1)), (second, ("t", 0)), (first, ("u", 0)), (first, ("t", 0))]
    rows = TxnMarkerRequests().fields(items)["markers"]
    asked = [(r.producer_id, r.transaction_result, [(t.name, t.partition_indexes) for t in r.topics]) for r in rows]
    assert asked == [(5, True, [("t", [1, 0]), ("u", [0])]), (6, False, [("t", [0])])]


def test_a_marker_that_is_not_in_the_answer_was_not_written() -> None:
    row = interbroker.message_class("WriteTxnMarkersResponse").WritableTxnMarkerResult
    topic = row.WritableTxnMarkerTopicResult
    parts = [topic.WritableTxnMarkerPartitionResult(partition_index=n, error_code=code) for n, code in ((0, 0), (1, 6))]
    answer = SimpleNamespace(markers=[row(producer_id=5, topics=[topic(name="t", partitions=parts)])])
    items: list[Marker] = [(wanted(5), ("t", 0)), (wanted(5), ("t", 1)), (wanted(5), ("t", 2)), (wanted(6), ("t", 0))]
    unknown = Error.UNKNOWN_SERVER_ERROR
    found = [error for _, error in TxnMarkerRequests().outcomes(items, answer)]
    assert found == [Error.NONE, Error.NOT_LEADER_OR_FOLLOWER, unknown, unknown]


def questions(*asked: tuple[Producer, int]) -> list[PendingVerification]:
    return [PendingVerification(producer, ("t", index), lambda _: None) for producer, index in asked]


OLD, NEW, OTHER = Producer("a", 1, 3), Producer("a", 1, 4), Producer("b", 2, 0)


def test_later_of_two_producers_with_one_id_is_verified() -> None:
    items = questions((OLD, 0), (OTHER, 1), (NEW, 2), (OLD, 3), (NEW, 1), (NEW, 2))
    rows = VerificationRequests().fields(items)["transactions"]
    asked = [(r.transactional_id, r.producer_epoch, [(t.name, t.partitions) for t in r.topics]) for r in rows]
    assert sorted(asked) == [("a", 4, [("t", [2, 1])]), ("b", 0, [("t", [1])])]
    assert all(row.verify_only for row in rows)


def test_partition_missing_from_the_response_is_not_verified() -> None:
    result = interbroker.message_class("AddPartitionsToTxnResponse").AddPartitionsToTxnResult
    topic = result.AddPartitionsToTxnTopicResult
    part = topic.AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=48)
    rows = [result(transactional_id="a", topic_results=[topic(name="t", results_by_partition=[part])])]
    answer = SimpleNamespace(error_code=0, results_by_transaction=rows)
    items = questions((NEW, 0), (NEW, 1), (OTHER, 0), (OLD, 0))
    missing = Error.NOT_COORDINATOR
    found = [error for _, error in VerificationRequests().outcomes(items, answer)]
    assert found == [Error.INVALID_TXN_STATE, missing, missing, Error.PRODUCER_FENCED]
    answer.error_code = int(Error.COORDINATOR_LOAD_IN_PROGRESS)
    assert [error for _, error in VerificationRequests().outcomes(items[:1], answer)] == [
        Error.COORDINATOR_LOAD_IN_PROGRESS
    ]
