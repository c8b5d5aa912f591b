"""Rows of counts: what a partition counted is its own, whoever had its slot before, and whoever dies."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from odradek.ipc import partition_counts, region
from odradek.ipc.partition_counts import (
    BEFORE,
    BYTES_IN,
    COUNTS,
    ELSEWHERE,
    HEAD,
    INCARNATION,
    NOWHERE,
    REPLICATION,
    ROW,
    SIZE,
    PartitionCounts,
)
from odradek.ipc.region import RegionError, SharedMemoryFull
from odradek.ipc.slots import CHUNK

ROLE, RUN = 8, 7


@dataclass
class Slot:
    number: int


@dataclass(eq=False)
class Partition:
    """What is counted."""

    slot: Any
    incarnation: int
    counts: memoryview = field(default=NOWHERE)

    @classmethod
    def at(cls, slot: int, incarnation: int) -> Partition:
        return cls(Slot(slot), incarnation)

    @property
    def own(self) -> int:
        """Its bytes in."""
        return self.counts[BYTES_IN] - self.counts[BYTES_IN + BEFORE]


def words_of(prefix: str, slot: int) -> list[int]:
    """The row of a slot as a reader finds it."""
    row = (HEAD + slot % CHUNK) * ROW
    return partition_counts.read(prefix, ROLE, slot // CHUNK)[row : row + ROW].tolist()


def test_a_partition_has_the_row_of_its_slot(prefix: str) -> None:
    counts = PartitionCounts(prefix, ROLE, RUN)
    for slot in (0, 5, CHUNK - 1, CHUNK, 3 * CHUNK + 2):
        partition = Partition.at(slot, 100 + slot)
        counts.claim(partition)
        partition.counts[BYTES_IN] += 1 + slot
        assert words_of(prefix, slot)[: BYTES_IN + 1] == [100 + slot, 1 + slot]
    with pytest.raises(RegionError):
        partition_counts.read(prefix, ROLE, 2)


def test_other_rows_are_not_those_of_slots(prefix: str) -> None:
    counts = PartitionCounts(prefix, ROLE, RUN)
    for row, number in ((counts.elsewhere, ELSEWHERE), (counts.replication, REPLICATION)):
        row[BYTES_IN] = 9
        assert partition_counts.read(prefix, ROLE, 0)[number * ROW + BYTES_IN] == 9
    assert not any(any(words_of(prefix, slot)) for slot in (0, 1, CHUNK - 1))


def test_the_next_partition_of_a_slot_begins_at_zero(any_machine: str, prefix: str) -> None:
    counts = PartitionCounts(prefix, ROLE, RUN)
    first, second = Partition.at(3, 10), Partition.at(3, 11)
    counts.claim(first)
    first.counts[BYTES_IN] += 70
    counts.claim(second)
    assert second.own == 0
    second.counts[BYTES_IN] += 5
    assert second.own == 5 and words_of(prefix, 3)[BYTES_IN] == 75, "the sum never goes down"


def test_a_former_partition_counts_for_the_broker_alone(prefix: str) -> None:
    counts = PartitionCounts(prefix, ROLE, RUN)
    first, second, late = Partition.at(3, 10), Partition.at(3, 11), Partition.at(3, 10)
    counts.claim(first)
    counts.claim(second)
    counts.claim(late)
    for partition in (first, late):
        partition.counts[BYTES_IN] += 1
    assert second.own == 0 and counts.elsewhere[BYTES_IN] == 2


def test_claiming_again_changes_nothing(prefix: str) -> None:
    counts = PartitionCounts(prefix, ROLE, RUN)
    partition, again = Partition.at(3, 10), Partition.at(3, 10)
    counts.claim(partition)
    partition.counts[BYTES_IN] += 4
    counts.claim(again)
    again.counts[BYTES_IN] += 1
    partition.counts[BYTES_IN] += 1
    assert partition.own == again.own == 6


def test_the_next_process_continues(prefix: str) -> None:
    partition, again = Partition.at(3, 10), Partition.at(3, 10)
    PartitionCounts(prefix, ROLE, RUN).claim(partition)
    partition.counts[BYTES_IN] += 4
    PartitionCounts(prefix, ROLE, RUN).claim(again)
    assert again.own == 4


def test_another_run_of_the_broker_begins_anew(prefix: str) -> None:
    partition, again = Partition.at(3, 10), Partition.at(3, 10)
    PartitionCounts(prefix, ROLE, RUN).claim(partition)
    partition.counts[BYTES_IN] += 4
    PartitionCounts(prefix, ROLE, RUN + 1).claim(again)
    assert again.own == 0


class Death(Exception):
    """The process is killed before a store."""


class Dying:
    """A row whose process dies before its `left`-th store."""

    def __init__(self, row: memoryview, left: int) -> None:
        self.row, self.left = row, left

    def __getitem__(self, key: Any) -> Any:
        return self.row[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        places = range(ROW)[key] if isinstance(key, slice) else [key]
        values = list(value) if isinstance(key, slice) else [value]
        for place, word in zip(places, values, strict=True):
            if not self.left:
                raise Death
            self.left -= 1
            self.row[place] = word


@pytest.mark.parametrize("stores", range(2 + len(COUNTS)))
def test_death_while_a_row_changes_hands(prefix: str, stores: int) -> None:
    counts = PartitionCounts(prefix, ROLE, RUN)
    first, second = Partition.at(3, 10), Partition.at(3, 11)
    counts.claim(first)
    for count in range(len(COUNTS)):
        first.counts[1 + count] = 50 + count
    with pytest.raises(Death):
        partition_counts._hand_over(Dying(first.counts, stores), 11)  # type: ignore[arg-type]  # a test double
    assert words_of(prefix, 3)[INCARNATION] == (0 if stores else 10), "no reader takes it for the second's"
    PartitionCounts(prefix, ROLE, RUN).claim(second)
    assert [second.counts[1 + n] - second.counts[1 + n + BEFORE] for n in range(len(COUNTS))] == [0] * len(COUNTS)
    assert words_of(prefix, 3)[1:BEFORE] == [50 + count for count in range(len(COUNTS))]


def test_without_room_a_process_counts_for_nobody(
    prefix: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise SharedMemoryFull(28, "/dev/shm has no room")

    monkeypatch.setattr(region, "_reserve", full)
    partition = Partition.at(3, 10)
    with caplog.at_level(logging.WARNING):
        PartitionCounts(prefix, ROLE, RUN).claim(partition)
    partition.counts[BYTES_IN] += 4
    assert partition.own == 4
    assert ["no room" in line and "metrics by topic" in line for line in caplog.messages] == [True]
    with pytest.raises(RegionError):
        partition_counts.read(prefix, ROLE, 0)


def test_a_process_that_does_not_count_writes_to_nobody(prefix: str) -> None:
    partition = Partition.at(3, 10)
    partition.counts[BYTES_IN] += 4
    counts = PartitionCounts(prefix, ROLE, RUN)
    counts.claim(partition)
    assert partition.own == 0 and len(NOWHERE) * 8 == SIZE // (HEAD + CHUNK)
