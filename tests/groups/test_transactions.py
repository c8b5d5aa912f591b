"""Transactional ids: every event in every state, fencing, epochs, timeouts, failures of the log."""

from __future__ import annotations

import itertools

import pytest

from odradek.groups.transactions.events import Producer
from odradek.groups.transactions.loading import TransactionReplay
from odradek.groups.transactions.states import ABORT, ADD, COMMIT, COMPLETED, FROM, INIT, State
from odradek.groups.transactions.transaction import LAST_EPOCH, Metadata
from odradek.protocol.errors import Error

from ..harness.effort import lines
from .transaction_world import TransactionWorld

LASTING = [state for state in State if state not in (State.DEAD, State.PREPARE_EPOCH_FENCE)]
NO_ERROR = Error.NONE


def in_state(state: State) -> tuple[TransactionWorld, Producer]:
    """A world whose id "x" is in `state`, and its producer."""
    world = TransactionWorld()
    producer = world.started()
    if state is not State.EMPTY:
        world.add(producer)
    if state in (State.PREPARE_COMMIT, State.PREPARE_ABORT, State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
        world.end(producer, commit=state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT))
    if state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
        world.mark()
    assert world.state() is state
    return world, producer


# -- the tables -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [INIT, ADD, COMMIT, ABORT])
def test_transition_tables_are_complete(table: dict[State, State | Error]) -> None:
    assert set(table) == set(LASTING)
    for state, step in table.items():
        if isinstance(step, State):
            assert state in FROM[step]


def test_states_have_kafkas_numbers_and_names() -> None:
    assert [state.title for state in State] == [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
        "PrepareEpochFence",
    ]  # fmt: skip


@pytest.mark.parametrize(("state", "commit"), list(itertools.product(LASTING, [True, False])))
def test_end_follows_the_table(state: State, commit: bool) -> None:
    world, producer = in_state(state)
    step = (COMMIT if commit else ABORT)[state]
    answer = world.end(producer, commit)
    assert answer is (NO_ERROR if isinstance(step, State) else step)
    assert world.state() is (step if isinstance(step, State) else state)


@pytest.mark.parametrize("state", LASTING)
def test_add_follows_the_table(state: State) -> None:
    world, producer = in_state(state)
    step = ADD[state]
    assert world.add(producer, ("t", 1)) is (NO_ERROR if isinstance(step, State) else step)
    partitions = world.metadata().partitions
    assert (("t", 1) in partitions) == isinstance(step, State)
    assert (("t", 0) in partitions) == (state in (State.ONGOING, *COMPLETED))


@pytest.mark.parametrize("state", LASTING)
def test_init_in_every_state(state: State) -> None:
    world, producer = in_state(state)
    answer = world.init()
    if state in (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
        assert (answer.error, answer.producer_id, answer.epoch) == (NO_ERROR, producer.id, producer.epoch + 1)
        assert world.state() is State.EMPTY
    else:
        assert answer.error is Error.CONCURRENT_TRANSACTIONS
        assert world.state() in COMPLETED
    assert world.end(producer) in ((Error.CONCURRENT_TRANSACTIONS, Error.INVALID_TXN_STATE) if state in COMPLETED else
                                   (Error.PRODUCER_FENCED,))  # fmt: skip


# -- a transaction's life ---------------------------------------------------------------------------------------


def test_commit_writes_markers_into_all_partitions() -> None:
    world = TransactionWorld()
    producer = world.started()
    assert world.add(producer, ("a", 0), ("a", 1)) is NO_ERROR
    assert world.add(producer, ("b", 2)) is NO_ERROR
    assert world.end(producer) is NO_ERROR
    (markers,) = world.markers
    assert markers == ("x", producer.id, producer.epoch, True, frozenset({("a", 0), ("a", 1), ("b", 2)}))
    assert world.end(producer) is Error.CONCURRENT_TRANSACTIONS
    world.mark()
    assert world.state() is State.COMPLETE_COMMIT and not world.metadata().partitions
    assert world.end(producer) is NO_ERROR, "a retry"
    assert world.add(producer, ("a", 0)) is NO_ERROR, "the next transaction has the same epoch"


def test_partitions_already_added_need_no_record() -> None:
    world = TransactionWorld()
    producer = world.ongoing()
    written = world.log.ends[0]
    assert world.add(producer) is NO_ERROR and world.log.ends[0] == written


def test_transaction_starts_with_its_first_partition() -> None:
    world = TransactionWorld()
    producer = world.ongoing()
    started = world.now.wall_ms
    world.wait(5)
    world.add(producer, ("t", 1))
    assert (world.metadata().started_ms, world.metadata().updated_ms) == (started, started + 5)


def test_unknown_producers_are_refused() -> None:
    world = TransactionWorld()
    producer = world.ongoing()
    for wrong, error in [
        (producer._replace(transactional_id="y"), Error.INVALID_PRODUCER_ID_MAPPING),
        (producer._replace(id=producer.id + 1), Error.INVALID_PRODUCER_ID_MAPPING),
        (producer._replace(epoch=producer.epoch + 1), Error.PRODUCER_FENCED),
        (producer._replace(epoch=-1), Error.PRODUCER_FENCED),
        (producer._replace(transactional_id=""), Error.INVALID_REQUEST),
    ]:
        assert world.add(wrong, ("t", 1)) is error
        assert world.end(wrong) is error
    assert world.metadata().partitions == {("t", 0)} and world.state() is State.ONGOING


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_invalid_timeouts_are_refused(timeout_ms: int) -> None:
    world = TransactionWorld()
    assert world.init(timeout_ms=timeout_ms).error is Error.INVALID_TRANSACTION_TIMEOUT
    assert len(world.transactions) == 0
    assert world.init("", timeout_ms=timeout_ms).error is Error.INVALID_REQUEST
    world.transactions.unload(0)
    assert world.init(timeout_ms=timeout_ms).error is Error.INVALID_TRANSACTION_TIMEOUT, (
        "the timeout is checked before the coordinator"
    )


def test_unload_compares_only_hashes_of_other_ids() -> None:
    """A broker loads and unloads many partitions at once, so the hash of an ID is cached."""

    def effort(partitions: int) -> int:
        world = TransactionWorld()
        transactions, now = world.transactions, world.now
        transactions.partitions = partitions
        for partition in range(partitions):
            transactions.will_load(partition)
            transactions.loaded(partition, TransactionReplay(), now)
        transactions.take_ids(0, 1_000, now)
        for n in range(40):
            transactions.init_producer_id(Producer(f"{n}" * 100), 1, None, now)
        return lines(lambda: [transactions.unload(partition) for partition in range(partitions)])

    assert effort(40) < 10 * effort(1)


def test_verify_accepts_only_partitions_of_the_open_transaction() -> None:
    world = TransactionWorld()
    producer = world.ongoing()
    wanted = [("t", 0), ("t", 1)]
    assert world.transactions.verify(producer, wanted) == {
        ("t", 0): NO_ERROR, ("t", 1): Error.TRANSACTION_ABORTABLE,
    }  # fmt: skip
    world.end(producer)
    assert set(world.transactions.verify(producer, wanted).values()) == {Error.CONCURRENT_TRANSACTIONS}
    world.mark()
    assert set(world.transactions.verify(producer, wanted).values()) == {Error.TRANSACTION_ABORTABLE}


# -- fencing and epochs -----------------------------------------------------------------------------------------


def test_successor_aborts_the_transaction_and_fences_the_zombie() -> None:
    world = TransactionWorld()
    zombie = world.ongoing()
    assert world.init().error is Error.CONCURRENT_TRANSACTIONS
    (markers,) = world.markers
    assert (markers.epoch, markers.commit) == (zombie.epoch + 1, False)
    assert world.init().error is Error.CONCURRENT_TRANSACTIONS
    world.mark()
    successor = world.started()
    assert (successor.id, successor.epoch) == (zombie.id, zombie.epoch + 2)
    for request in (world.add, world.end):
        assert request(zombie) is Error.PRODUCER_FENCED
    assert world.add(successor) is NO_ERROR


def test_producer_bumps_its_epoch_and_may_repeat_request() -> None:
    """KIP-360: the answer to a repeated request equals the first one, which may have been lost."""
    world = TransactionWorld()
    producer = world.started()
    again = world.started(producer_id=producer.id, epoch=producer.epoch)
    assert again.epoch == producer.epoch + 1
    assert world.started(producer_id=producer.id, epoch=producer.epoch) == again
    world.started()
    assert world.init(producer_id=again.id, epoch=again.epoch).error is Error.PRODUCER_FENCED
    assert world.init(producer_id=again.id + 1, epoch=0).error is Error.PRODUCER_FENCED


def with_epoch(world: TransactionWorld, epoch: int) -> Producer:
    producer = world.started()
    known = world.transactions.get("x")
    assert known is not None
    known.metadata = known.metadata._replace(epoch=epoch)
    return producer._replace(epoch=epoch)


def test_last_epoch_is_followed_by_a_new_producer_id() -> None:
    world = TransactionWorld()
    old = with_epoch(world, LAST_EPOCH - 1)
    assert world.started().epoch == LAST_EPOCH
    new = world.started()
    assert new.id != old.id and new.epoch == 0
    assert world.add(old) is Error.INVALID_PRODUCER_ID_MAPPING
    late = world.init(producer_id=old.id, epoch=LAST_EPOCH)
    assert late.error is Error.PRODUCER_FENCED, "another producer has started since"


def test_owner_of_last_epoch_may_repeat_request() -> None:
    world = TransactionWorld()
    old = with_epoch(world, LAST_EPOCH)
    new = world.started(producer_id=old.id, epoch=old.epoch)
    assert new.epoch == 0
    assert world.started(producer_id=old.id, epoch=old.epoch) == new


def test_last_epoch_can_be_fenced() -> None:
    world = TransactionWorld()
    old = with_epoch(world, LAST_EPOCH)
    world.add(old)
    assert world.init().error is Error.CONCURRENT_TRANSACTIONS
    assert world.markers[0].epoch == LAST_EPOCH + 1
    world.mark()
    new = world.started()
    assert new.id != old.id and new.epoch == 0


def test_init_fails_without_producer_ids() -> None:
    world = TransactionWorld()
    world.has_ids = False
    assert world.init().error is Error.COORDINATOR_NOT_AVAILABLE
    world.has_ids = True
    ids = {world.started(name).id for name in "abcdefg"}
    assert len(ids) == 7


# -- time -------------------------------------------------------------------------------------------------------


def test_transaction_is_aborted_after_its_timeout() -> None:
    world = TransactionWorld()
    slow, quick = world.ongoing("slow", timeout_ms=1_000), world.ongoing("quick", timeout_ms=100_000)
    world.wait(1_000)
    assert world.state("slow") is State.ONGOING, "timeouts are checked every ten seconds, as in Kafka"
    world.wait(10_000)
    assert world.state("slow") is State.PREPARE_ABORT and world.state("quick") is State.ONGOING
    assert world.end(slow) is Error.PRODUCER_FENCED
    world.mark()
    assert world.state("slow") is State.COMPLETE_ABORT
    assert world.end(quick) is NO_ERROR
    world.wait(1_000_000)
    assert world.state("slow") is State.COMPLETE_ABORT


def test_unused_ids_expire() -> None:
    world = TransactionWorld(expiration_ms=100_000, expiry_interval_ms=1_000)
    world.started("idle")
    world.ongoing("open", timeout_ms=900_000)
    world.wait(60_000)
    world.started("used")
    world.wait(50_000)
    assert world.transactions.get("idle") is None
    assert {world.state("open"), world.state("used")} == {State.ONGOING, State.EMPTY}
    assert world.restarted().transactions.get("idle") is None


# -- the log ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (Error.NOT_LEADER_OR_FOLLOWER, Error.NOT_COORDINATOR),
        (Error.KAFKA_STORAGE_ERROR, Error.NOT_COORDINATOR),
        (Error.NOT_ENOUGH_REPLICAS, Error.COORDINATOR_NOT_AVAILABLE),
        (Error.MESSAGE_TOO_LARGE, Error.UNKNOWN_SERVER_ERROR),
    ],
)
def test_failed_append_changes_nothing(failure: Error, said: Error) -> None:
    world = TransactionWorld()
    producer = world.ongoing()
    before = world.metadata()
    world.log.error = failure
    assert world.add(producer, ("t", 1)) is said
    assert world.end(producer) is said
    assert world.metadata() == before and not world.markers
    world.log.error = None
    assert world.end(producer) is NO_ERROR


def test_failed_fence_uses_no_second_epoch() -> None:
    world = TransactionWorld()
    producer = world.ongoing()
    world.log.error = Error.NOT_ENOUGH_REPLICAS
    for _ in range(3):
        assert world.init().error is Error.COORDINATOR_NOT_AVAILABLE
    world.log.error = None
    assert world.end(producer) is Error.PRODUCER_FENCED, "the abort may be in the log"
    assert world.init().error is Error.CONCURRENT_TRANSACTIONS
    assert world.markers[0].epoch == producer.epoch + 1


def test_answers_wait_for_the_log() -> None:
    world = TransactionWorld()
    world.log.lag = 1
    assert world.init() is None
    assert world.init().error is Error.CONCURRENT_TRANSACTIONS
    world.log.lag = 0
    world.settle()
    assert world.answer(1).error is NO_ERROR


def test_requests_wait_for_pending_decision() -> None:
    world = TransactionWorld()
    producer = world.ongoing()
    world.log.busy = True
    assert world.end(producer) is None
    for commit in (True, False):
        assert world.end(producer, commit) is Error.CONCURRENT_TRANSACTIONS
    assert world.add(producer, ("t", 1)) is Error.CONCURRENT_TRANSACTIONS
    assert not world.markers, "markers follow once the decision is in the log"
    world.log.busy = False
    world.settle()
    assert [m.commit for m in world.markers] == [True]


def test_failed_completion_is_retried() -> None:
    world = TransactionWorld()
    producer = world.ongoing()
    world.end(producer)
    world.log.error = Error.KAFKA_STORAGE_ERROR
    world.mark()
    assert world.state() is State.PREPARE_COMMIT
    world.log.error = None
    world.wait(100)
    assert world.state() is State.COMPLETE_COMMIT


@pytest.mark.parametrize("state", LASTING)
def test_next_coordinator_completes_decided_transactions(state: State) -> None:
    world, producer = in_state(state)
    successor = world.restarted()
    before, after = world.metadata(), successor.metadata()
    assert after == before._replace(previous_producer_id=-1, last_epoch=-1)
    assert [m.commit for m in successor.markers] == ([state is State.PREPARE_COMMIT] if state in COMPLETED else [])
    successor.mark()
    if state in COMPLETED:
        assert successor.state() is COMPLETED[state]
    if state is State.ONGOING:
        assert successor.end(producer) is NO_ERROR


def test_requests_are_refused_while_the_partition_is_unloaded_or_loads() -> None:
    world = TransactionWorld()
    producer = world.ongoing()
    world.transactions.unload(0)
    assert world.add(producer) is Error.NOT_COORDINATOR and len(world.transactions) == 0
    world.transactions.will_load(0)
    assert world.add(producer) is Error.COORDINATOR_LOAD_IN_PROGRESS
    assert world.transactions.listing([], [], -1, world.now)[0] is Error.COORDINATOR_LOAD_IN_PROGRESS
    world.load()
    assert world.end(producer) is NO_ERROR


def test_append_of_an_unloaded_partition_is_not_coordinator() -> None:
    world = TransactionWorld()
    producer = world.ongoing()
    world.log.busy = True
    world.end(producer)
    world.transactions.unload(0)
    world.log.busy = False
    world.settle()
    assert world.answers[3] == [Error.NOT_COORDINATOR] and not world.markers


def test_markers_of_older_transaction_are_ignored() -> None:
    world = TransactionWorld()
    producer = world.ongoing()
    world.end(producer)
    (old,) = world.markers
    world.mark()
    world.add(producer)
    world.transactions.markers_written(old, world.now)
    assert world.state() is State.ONGOING


def test_next_producer_id_in_a_record_of_transaction_version_2_is_used() -> None:
    """KIP-890: after the last epoch, the record of the decision has the next producer id."""
    world = TransactionWorld()
    world.started()
    known = world.transactions.get("x")
    assert known is not None
    m: Metadata = known.metadata
    known.metadata = m._replace(
        state=State.PREPARE_COMMIT, epoch=32767, next_producer_id=77, client_version=2, partitions=frozenset({("t", 0)})
    )
    world.transactions.unload(0)
    world.transactions._by_id["x"] = known
    world.transactions._loaded.add(0)
    world.transactions._write_markers(known)
    world.settle()
    world.mark()
    assert (world.metadata().producer_id, world.metadata().epoch) == (77, 0)


# -- describe and list ------------------------------------------------------------------------------------------


def test_describe_and_list_return_states_and_filter() -> None:
    world = TransactionWorld()
    producer = world.ongoing("one")
    world.started("two")
    error, found = world.transactions.describe("one")
    known = (error, found.state, found.producer_id, found.partitions)
    assert known == (NO_ERROR, "Ongoing", producer.id, frozenset({("t", 0)}))
    assert world.transactions.describe("none")[0] is Error.TRANSACTIONAL_ID_NOT_FOUND
    assert world.transactions.describe("")[0] is Error.INVALID_REQUEST

    def names(states: list[str], ids: list[int], longer_ms: int = -1) -> list[str]:
        return sorted(row.transactional_id for row in world.transactions.listing(states, ids, longer_ms, world.now)[2])

    assert names([], []) == ["one", "two"]
    assert names(["Ongoing", "Nonsense"], []) == ["one"]
    assert names(["Nonsense"], []) == []
    assert names([], [producer.id]) == ["one"]
    world.wait(10)
    assert "one" not in names([], [], 10) and "one" in names([], [], 9)
    assert world.transactions.listing(["Nonsense", "Empty"], [], -1, world.now)[1] == ["Nonsense"]
