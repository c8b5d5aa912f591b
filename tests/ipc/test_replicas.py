"""The follower progress that a leader keeps when it becomes leader again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.ipc import replicas, slots
from odradek.storage.log import leader_or_follower

from ..cluster.simulation.memory import MemoryTable


class Partition:
    """A slot with a log whose latest epoch needs no new entry."""

    def __init__(self) -> None:
        self.slot = MemoryTable()[0]
        self.slot.publish(slots.SlotState(state=slots.LEADER, leader_epoch=3, latest_epoch=9, leo=10, led_since=3))

    def lead(self, epoch: int, isr: list[int]) -> dict[int, int]:
        """Become leader; return the known log end of each follower."""
        partition: Any = self
        leader_or_follower.become_leader(partition, self.slot.fields(), epoch, [2, 3], isr, 0)
        return {row.broker: row.leo for row in replicas.read(self.slot)}

    def fetched(self, broker: int, offset: int) -> None:
        replicas.record_fetch(self.slot, self.slot.fields(), replicas.find(self.slot, broker), offset, 0, 10, 0)


def test_out_of_sync_follower_must_fetch_in_a_new_epoch_before_it_joins_the_isr() -> None:
    partition = Partition()
    partition.lead(3, [1, 2, 3])
    partition.fetched(2, 10)
    partition.fetched(3, 10)
    assert partition.lead(4, [1, 2]) == {2: 10, 3: replicas.UNKNOWN}


def test_repeated_leader_request_keeps_follower_offsets() -> None:
    partition = Partition()
    partition.lead(3, [1, 2])
    partition.fetched(3, 7)
    assert partition.lead(3, [1, 2]) == {2: replicas.UNKNOWN, 3: 7}


def test_only_a_leader_records_a_follower_fetch() -> None:
    partition = Partition()
    partition.lead(3, [1, 2])
    partition.slot.update(state=slots.FOLLOWER)
    with pytest.raises(ValueError, match="leaders only"):
        partition.fetched(2, 10)
    assert {row.broker: row.leo for row in replicas.read(partition.slot)} == dict.fromkeys((2, 3), replicas.UNKNOWN)


class Words:
    """Words of a slot whose writer dies after `left` stores."""

    def __init__(self, words: memoryview, left: int) -> None:
        self.words, self.left = words, left

    def __getitem__(self, at: Any) -> Any:
        return self.words[at]

    def __setitem__(self, at: int, value: int) -> None:
        if not self.left:
            raise InterruptedError
        self.left -= 1
        self.words[at] = value


@pytest.mark.parametrize(("before", "after"), [
    (([2, 3], [1, 2, 3]), ([3, 2], [1, 2, 3])),
    (([2, 3], [1, 2, 3]), ([4, 3, 2], [1, 2, 3])),
    (([2, 3], [1, 3]), ([4, 2], [1, 4, 2])),
    (([3, 4, 5, 6, 7, 8, 9, 2], [1, 2, 3]), ([2, 10, 3], [1, 2, 3])),
])  # fmt: skip
def test_high_watermark_waits_for_the_isr_wherever_the_writer_dies(
    before: tuple[list[int], list[int]], after: tuple[list[int], list[int]]
) -> None:
    """Broker 2 is ten records behind 3. Half-written rows do not commit these records, though 3 continues to fetch."""
    ends, survived = {2: 30, 3: 40}, False
    for step in range(200):
        slot = MemoryTable()[0]
        slot.publish(slots.SlotState(state=slots.LEADER, leo=50))
        replicas.set_followers(slot, *before, 0, ())
        for broker, end in ends.items():
            replicas.record_fetch(slot, slot.fields(), replicas.find(slot, broker), end, 0, 50, 0)
        half: Any = SimpleNamespace(words=Words(slot.words, step), at=slot.at)
        try:
            replicas.set_followers(half, *after, 0, before[1])
            survived = True
        except InterruptedError:
            pass
        row = replicas.find(slot, 3)
        if row >= 0:
            replicas.record_fetch(slot, slot.fields(), row, 50, 0, 50, 0)
        waits = 2 in before[1] or survived
        assert replicas.committed(slot, 50)[0] <= (30 if waits else 50), f"step {step}: {replicas.read(slot)}"
        if survived:
            assert {one.broker for one in replicas.read(slot)} == set(after[0])
            return
    pytest.fail("the writer died at every step")
