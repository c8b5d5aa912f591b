"""The rules for idempotent producers, in appends of any size by two processes, compared with a model of every batch."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.protocol import errors
from odradek.storage.log import control_batch, transactions
from odradek.storage.log.log_batch import Batch

from ..live import NOW, batch, live, put, records

KEPT = 5
PRODUCERS = (1, 2)
PLAIN = -1


class Sent(NamedTuple):
    """What the next batch is: of a producer (PLAIN: of none), `back` batches before the next one, in a new epoch."""

    producer: int
    records: int
    back: int
    bump: bool


class Model:
    """One producer, as Kafka's ProducerStateEntry has it: a retry of one of its last five batches is known.

    Ours knows the last five before the round and all of the round, which is safe: they are in the log.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.earlier = 0  # batches before this round
        self.batches: list[tuple[int, int, int]] = []  # first sequence, last sequence, base offset; of this epoch

    @property
    def following(self) -> int:
        return self.batches[-1][1] + 1 if self.batches else 0

    def expected(self, epoch: int, first: int, last: int, end: int) -> tuple[int, int]:
        """(base offset, error) of a batch that would stand at `end`, which it takes in."""
        for known in self.batches[max(0, self.earlier - KEPT) :]:
            if epoch == self.epoch and known[:2] == (first, last):
                return known[2], errors.NONE
        if epoch < self.epoch:
            return -1, errors.INVALID_PRODUCER_EPOCH
        if first != (self.following if epoch == self.epoch else 0):
            return -1, errors.OUT_OF_ORDER_SEQUENCE_NUMBER
        if epoch > self.epoch:
            self.epoch, self.batches, self.earlier = epoch, [], 0
        self.batches.append((first, last, end))
        return end, errors.NONE


_SENT = st.builds(
    Sent,
    st.sampled_from([*PRODUCERS, PRODUCERS[0], PLAIN]),
    st.integers(1, 3),
    st.sampled_from([0, 0, 0, 0, 0, 1, 2, 6]),
    st.sampled_from([False] * 9 + [True]),
)
_ROUNDS = st.lists(st.tuples(st.integers(0, 1), st.lists(_SENT, min_size=1, max_size=9)), min_size=1, max_size=12)


@pytest.mark.slow
@given(_ROUNDS)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_sequences_follow_the_model(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[tuple[int, list[Sent]]]
) -> None:
    models: dict[int, Model] = defaultdict(Model)
    end = 0
    with live(tmp_path_factory.mktemp("p")) as world:
        writers = [world.partition(0), world.partition(1)]
        for process, sent in rounds:
            batches, expected = [], []
            for model in models.values():
                model.earlier = len(model.batches)
            for one in sent:
                made, outcome = _made(one, models, end)
                end += one.records if outcome == (end, errors.NONE) else 0
                batches.append(made)
                expected.append(outcome)
            put(writers[process], *batches)
            assert [(made.base_offset, made.error) for made in batches] == expected
        assert [offset for offset, _ in records(writers[0])] == list(range(end))
        assert _kept(writers[0]) == {
            producer: (model.epoch, model.batches[-KEPT:]) for producer, model in models.items() if model.batches
        }


def _made(one: Sent, models: dict[int, Model], end: int) -> tuple[Batch, tuple[int, int]]:
    values = [b"v"] * one.records
    if one.producer == PLAIN:
        return batch(*values), (end, errors.NONE)
    model = models[one.producer]
    if one.bump:
        epoch, first = model.epoch + (1 if model.batches else 0), 0
    elif 0 < one.back <= len(model.batches):
        epoch, first, last = model.epoch, *model.batches[-one.back][:2]
        values = [b"v"] * (last - first + 1)
    else:
        epoch, first = model.epoch, model.following
    made = batch(*values, producer=one.producer, epoch=epoch, sequence=first)
    return made, model.expected(epoch, first, first + len(values) - 1, end)


def _kept(partition: Any) -> dict[int, tuple[int, list[tuple[int, int, int]]]]:
    """What the shared table has."""
    table = partition.producers.table(partition.state().pstate_gen)
    return {
        entry.producer_id: (entry.epoch, [tuple(kept[:3]) for kept in entry.batches])
        for entry in (table.entries() if table is not None else ())
    }


def test_retry_together_with_a_batch_without_producer(tmp_path: Path) -> None:
    """The append checks a producer's batch, but appends none with a producer."""
    with live(tmp_path) as world:
        partition = world.partition()
        for n in range(3):
            put(partition, batch(b"a", producer=5, sequence=n))
        retry, plain, next_one = (
            batch(b"a", producer=5, sequence=1),
            batch(b"b"),
            batch(b"c", producer=5, sequence=3, timestamp=NOW + 1),
        )
        assert put(partition, retry, plain) == [1, 3]
        assert (retry.error, plain.error) == (errors.NONE, errors.NONE)
        assert put(partition, next_one) == [4]
        assert [value for _, value in records(partition)] == [b"a", b"a", b"a", b"b", b"c"]


def test_marker_fences_the_expected_next_batch(tmp_path: Path) -> None:
    """All by one process: a marker clears its cache between appends."""
    with live(tmp_path) as world:
        partition = world.partition()
        for sequence, transactional in enumerate((False, True)):
            one = batch(b"v", producer=1, sequence=sequence)
            one.transactional = transactional
            put(partition, one)
        assert control_batch.write_marker(partition, 1, 0, 1, False, NOW) == errors.NONE
        assert transactions.aborted_between(partition, partition.slot.read(), 0, 3) == [(1, 1)]
        assert partition.state().unstable == -1
        assert control_batch.write_marker(partition, 1, 1, 1, False, NOW) == errors.NONE
        for transactional in (False, True):
            zombie = batch(b"v", producer=1, sequence=2)
            zombie.transactional = transactional
            put(partition, zombie)
            assert zombie.error == errors.INVALID_PRODUCER_EPOCH


def test_marker_from_an_unverified_coordinator_ends_only_open_transactions(tmp_path: Path) -> None:
    """It never fences the next markers of the real coordinator."""
    refused = errors.NOT_LEADER_OR_FOLLOWER

    def abort(epoch: int, coordinator_epoch: int, producer: int = 1) -> int:
        return control_batch.write_marker(partition, producer, epoch, coordinator_epoch, False, NOW, only_open=True)

    def begin(sequence: int) -> None:
        one = batch(b"v", producer=1, sequence=sequence)
        one.transactional = True
        assert put(partition, one) == [one.base_offset] and not one.error

    with live(tmp_path) as world:
        partition = world.partition()
        assert abort(0, 0) == refused, "a producer that was never here"
        begin(0)
        assert (abort(0, 1), abort(1, 0), abort(0, 1 << 30), abort(0, 0, producer=2)) == (refused,) * 4
        assert partition.state().unstable == 0
        assert abort(0, 0) == errors.NONE
        assert (partition.state().unstable, abort(0, 0)) == (-1, refused)
        assert control_batch.write_marker(partition, 1, 0, 5, False, NOW) == errors.NONE
        begin(1)
        assert abort(0, 4) == errors.TRANSACTION_COORDINATOR_FENCED
        assert (abort(0, 6), abort(0, 5)) == (refused, errors.NONE)
        assert control_batch.write_marker(partition, 1, 0, 5, True, NOW) == errors.NONE, "the coordinator's own"


def test_plain_batch_within_a_transaction_is_refused(tmp_path: Path) -> None:
    """Also under a later epoch, in the same append, and by another process."""

    def refused(sequence: int, epoch: int = 0) -> Batch:
        return batch(b"x", producer=1, epoch=epoch, sequence=sequence)

    with live(tmp_path) as world:
        partition, other = world.partition(0), world.partition(1)
        inside, after = batch(b"x", producer=1, sequence=0), refused(1)
        inside.transactional = True
        stranger = batch(b"x", producer=2, sequence=0)
        put(partition, inside, after, stranger)
        later, gap = refused(0, epoch=1), refused(7)
        put(other, later, gap)
        assert [one.error for one in (inside, after, stranger, later, gap)] == [
            0, errors.INVALID_TXN_STATE, 0, errors.INVALID_TXN_STATE, errors.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ]  # fmt: skip
        assert control_batch.write_marker(partition, 1, 0, 0, True, NOW) == errors.NONE
        put(other, again := refused(1))
        assert (again.error, again.base_offset) == (0, 3)
