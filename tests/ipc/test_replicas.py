"""What a leader remembers of its followers when it leads again."""

from __future__ import annotations

from typing import Any

import pytest
from odradek.ipc import replicas, slots
from odradek.storage import leading

from ..cluster.simulation.memory import MemoryTable


class Partition:
    """A slot with a log in which no epoch is to be noted."""

    def __init__(self) -> None:
        self.slot = MemoryTable()[0]
        self.slot.publish(slots.SlotState(state=slots.LEADER, leader_epoch=3, epoch_noted=9, leo=10, led_since=3))

    def lead(self, epoch: int, isr: list[int]) -> dict[int, int]:
        """Log ends of the followers, as they are known afterwards."""
        partition: Any = self
        leading.lead(partition, self.slot.fields(), epoch, [2, 3], isr, 0)
        return {row.broker: row.leo for row in replicas.read(self.slot)}

    def fetched(self, broker: int, offset: int) -> None:
        replicas.fetched(self.slot, self.slot.fields(), replicas.find(self.slot, broker), offset, 0, 10, 0)


def test_in_a_new_epoch_who_is_out_of_sync_must_fetch_before_it_joins() -> None:
    partition = Partition()
    partition.lead(3, [1, 2, 3])
    partition.fetched(2, 10)
    partition.fetched(3, 10)
    assert partition.lead(4, [1, 2]) == {2: 10, 3: replicas.UNKNOWN}


def test_the_same_order_twice_changes_nothing() -> None:
    partition = Partition()
    partition.lead(3, [1, 2])
    partition.fetched(3, 7)
    assert partition.lead(3, [1, 2]) == {2: replicas.UNKNOWN, 3: 7}


def test_a_fetch_counts_only_for_who_leads_by_the_fields_that_come_with_the_lock() -> None:
    partition = Partition()
    partition.lead(3, [1, 2])
    partition.slot.update(state=slots.FOLLOWER)
    with pytest.raises(ValueError, match="leaders only"):
        partition.fetched(2, 10)
    assert {row.broker: row.leo for row in replicas.read(partition.slot)} == dict.fromkeys((2, 3), replicas.UNKNOWN)
