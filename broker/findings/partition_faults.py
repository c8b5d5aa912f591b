"""The partitions of a broker that have a fault, by the name of the set in Facts: from their slots and the metadata."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from odradek.broker.findings.facts import EXAMINED, Affected, AffectedPartition
from odradek.cluster.metadata.snapshot import PartitionInfo, Snapshot
from odradek.ipc import slots


class Named(Protocol):
    """A partition's identity, as storage.log.partition has it."""

    topic: str
    index: int
    incarnation: int


Name = tuple[str, int]


def find(snapshot: Snapshot, partitions: Iterable[tuple[Named, Sequence[int]]]) -> dict[str, Affected]:
    """All sets; `partitions` come with the fields of their slots (ipc.slots.FIELDS)."""
    found: dict[str, list[Name]] = defaultdict(list)
    for one, values in partitions:
        info = snapshot.partition(one.topic, one.index)
        if info is not None and values[slots.F_INCARNATION] == one.incarnation:
            for fault in _of(info, values):
                found[fault].append((one.topic, one.index))
    return affected(snapshot, {fault: (len(names), names) for fault, names in found.items()})


def _of(info: PartitionInfo, values: Sequence[int]) -> Iterator[str]:
    if values[slots.F_STATE] == slots.OFFLINE:
        yield "offline"
    if info.leader < 0:
        yield "leaderless"
    if values[slots.F_STATE] == slots.LEADER:
        yield from _of_leader(len(info.isr) < len(info.replicas), values[slots.F_ISR_COUNT] - values[slots.F_MIN_ISR])


def _of_leader(lacks_replica: bool, over_min_isr: int) -> Iterator[str]:
    if over_min_isr < 0:
        yield "under_min_isr"
    if over_min_isr == 0 and lacks_replica:
        yield "at_min_isr"
    if lacks_replica:
        yield "under_replicated"


def affected(snapshot: Snapshot, found: Mapping[str, tuple[int, Sequence[Name]]]) -> dict[str, Affected]:
    """Each set from its count and its partitions; of those only the first are examined."""
    return {fault: Affected.of(_examined(snapshot, names[:EXAMINED]), count) for fault, (count, names) in found.items()}


def _examined(snapshot: Snapshot, names: Iterable[Name]) -> Iterator[AffectedPartition]:
    for topic, index in names:
        info = snapshot.partition(topic, index)
        missing = [] if info is None else [broker for broker in info.replicas if broker not in info.isr]
        if info is not None and info.leader < 0:
            missing = info.replicas
        yield AffectedPartition(f"{topic}-{index}", missing)
