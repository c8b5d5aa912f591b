"""Faults of partitions, derived from their slots and the metadata."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.broker.findings import partition_faults
from odradek.broker.findings.facts import Affected
from odradek.cluster.metadata.snapshot import Snapshot, raw_snapshot
from odradek.ipc import slots
from odradek.ipc.slots import SlotState


@dataclass
class Partition:
    topic: str
    index: int
    incarnation: int


def faults(state: int, isr: list[int], *, leader: int = 1, min_isr: int = 1, slot_of: int = 7) -> dict[str, Affected]:
    """The faults of t-0 with the replicas 1, 2 and 3."""
    row = [0, 7, leader, 1, [1, 2, 3], isr, 0, []]
    topic = {"id": "00" * 16, "internal": False, "config": {}, "partitions": [row]}
    values = SlotState(incarnation=slot_of, state=state, isr_count=len(isr), min_isr=min_isr)
    return partition_faults.find(
        Snapshot(raw_snapshot(1, "c", 1, [], {"t": topic}, {})), [(Partition("t", 0, 7), values)]
    )


def test_a_partition_that_is_well() -> None:
    assert faults(slots.LEADER, [1, 2, 3], min_isr=2) == {}
    assert faults(slots.LEADER, [1, 2, 3], min_isr=3) == {}


def test_a_leader_that_lacks_a_replica() -> None:
    assert faults(slots.LEADER, [1, 3]) == {"under_replicated": Affected(1, ["t-0"], [2])}
    assert faults(slots.LEADER, [1, 3], min_isr=2).keys() == {"under_replicated", "at_min_isr"}
    assert faults(slots.LEADER, [1], min_isr=2).keys() == {"under_replicated", "under_min_isr"}


def test_followers_do_not_count_what_their_leader_counts() -> None:
    assert faults(slots.FOLLOWER, [1], min_isr=2) == {}


def test_a_partition_without_a_leader() -> None:
    assert faults(slots.FOLLOWER, [2], leader=-1) == {"leaderless": Affected(1, ["t-0"], [1, 2, 3])}


def test_an_offline_replica() -> None:
    assert faults(slots.OFFLINE, [2]).keys() == {"offline"}


def test_a_slot_of_another_partition_says_nothing() -> None:
    assert faults(slots.OFFLINE, [1], slot_of=8) == {}
