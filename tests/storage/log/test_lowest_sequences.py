"""The lowest sequence with which a producer may begin after refused batches: Kafka's VerificationStateEntry."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.protocol import errors
from odradek.storage.log.control_batch import write_marker
from odradek.storage.log.log_batch import Batch, VerificationGuard
from odradek.storage.log.partition import Partition
from odradek.storage.producers import lowest_sequences
from odradek.storage.producers.lowest_sequences import LowestSequences

from ..live import NOW, batch, live, put
from .test_append_and_read import broken

REFUSED = [-1]
FOREVER = float("inf")


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Partition]:
    with live(tmp_path) as made:
        yield made.partition()


def transactional(sequence: int, producer: int = 1, epoch: int = 0, generation: int = 0) -> Batch:
    """A batch that the coordinator has verified, with the partition's producers in the table of a generation."""
    made = batch(b"x", producer=producer, epoch=epoch, sequence=sequence)
    made.transactional, made.guard = True, VerificationGuard(generation, 1 << 40)
    return made


@pytest.mark.parametrize(
    ("refused", "begins"),
    [
        ([(0, 3)], 3),
        ([(0, 3), (0, 5)], 3),
        ([(0, 3), (0, 1)], 1),
        ([(0, 3), (1, 7)], 7),
        ([(1, 7), (0, 3)], 7),
        ([(0, 3), (1, 7), (1, 2)], 2),
    ],
)
def test_the_lowest_of_the_latest_epoch_counts(refused: list[tuple[int, int]], begins: int) -> None:
    lowest = LowestSequences()
    for epoch, sequence in refused:
        lowest.record(1, epoch, sequence, FOREVER)
    assert [lowest.refuses(1, sequence, 0) for sequence in range(9)] == [sequence > begins for sequence in range(9)]
    assert not lowest.refuses(2, 8, 0)


def test_lowest_sequence_expires() -> None:
    """The time counts from the first refusal: no producer can prolong it."""
    lowest = LowestSequences()
    lowest.record(1, 0, 3, until_s=10)
    lowest.record(1, 0, 2, until_s=20)
    assert lowest.refuses(1, 3, 9.9)
    assert not lowest.refuses(1, 3, 10)
    assert not lowest


def test_number_of_lowest_sequences_is_bounded() -> None:
    lowest = LowestSequences()
    for producer in range(lowest_sequences.MOST + 1):
        lowest.record(producer, 0, 0, FOREVER)
    assert [producer for producer in range(lowest_sequences.MOST + 1) if not lowest.refuses(producer, 1, 0)] == [0]


@pytest.mark.parametrize("plain", [True, False])
def test_first_batch_must_not_exceed_the_lowest_refused_sequence(partition: Partition, plain: bool) -> None:
    partition.lowest_sequences.record(1, 0, 2, FOREVER)
    late = batch(b"x", producer=1, sequence=3) if plain else transactional(3)
    assert put(partition, late) == REFUSED
    assert late.error == errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert put(partition, transactional(2), transactional(3)) == [0, 1]


def test_other_and_known_producers_are_not_checked(partition: Partition) -> None:
    put(partition, batch(b"x", producer=2, sequence=5))
    for producer in (1, 2):
        partition.lowest_sequences.record(producer, 0, 2, FOREVER)
    assert put(partition, batch(b"x", producer=2, sequence=6), batch(b"x", producer=3, sequence=9)) == [1, 2]


def test_known_producer_has_no_lowest_sequence(partition: Partition) -> None:
    partition.lowest_sequences.record(1, 0, 0, FOREVER)
    assert put(partition, transactional(0)) == [0]
    assert not partition.lowest_sequences


@pytest.mark.parametrize("fails", ["pwritev", "posix_fallocate"])
def test_failed_write_does_not_count_as_first_batch(
    partition: Partition, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """The client sends both again: the second one must not begin, or the first would be out of order for ever."""
    partition.lowest_sequences.record(1, 0, 2, FOREVER)
    with monkeypatch.context() as full:
        full.setattr(os, fails, broken(errno.ENOSPC))
        failed = transactional(2)
        assert put(partition, failed) == REFUSED
        assert failed.error == errors.KAFKA_STORAGE_ERROR
    generation = partition.state().pstate_gen
    first, late, again = (transactional(sequence, generation=generation) for sequence in (2, 3, 3))
    assert put(partition, late) == REFUSED
    assert late.error == errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert put(partition, first, again) == [0, 1]
    assert not partition.lowest_sequences


def test_a_marker_of_a_producer_that_was_refused(partition: Partition) -> None:
    partition.lowest_sequences.record(1, 0, 0, FOREVER)
    assert write_marker(partition, 1, 0, 0, False, NOW) == errors.NONE
