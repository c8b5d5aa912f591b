"""Replica assignment (Kafka's AdminUtils): round robin over brokers, and over racks when all racks are known.

A given `start` (a broker's position) and `first` (a partition's number) make the result deterministic; otherwise the
first leader and the shift between leader and followers are random, so that topics start on different brokers.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from odradek.cluster.rules.errors import ApiError
from odradek.cluster.rules.validation import MOST_REPLICAS
from odradek.protocol.errors import INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, UNKNOWN_SERVER_ERROR


def assign(
    racks: Mapping[int, str | None], partitions: int, factor: int, start: int = -1, first: int = 0
) -> dict[int, list[int]]:
    """Replicas of partitions `first` to `first + partitions - 1`; each list begins with the preferred leader.

    `racks`: broker id -> rack. ApiError: no partitions, no replicas, more replicas than brokers or than a partition may
    have, some racks unknown.
    """
    if partitions <= 0:
        raise ApiError(INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if factor <= 0:
        raise ApiError(INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if factor > len(racks):
        raise ApiError(
            INVALID_REPLICATION_FACTOR,
            f"Replication factor: {factor} larger than available brokers: {len(racks)}.",
        )
    if factor > MOST_REPLICAS:
        raise ApiError(
            INVALID_REPLICATION_FACTOR,
            f"Replication factor: {factor} larger than the {MOST_REPLICAS} replicas that a partition may have.",
        )
    brokers = _alternated(racks) if any(racks.values()) else sorted(racks)
    shift = start if start >= 0 else random.randrange(len(brokers))
    start = start if start >= 0 else random.randrange(len(brokers))
    assigned = {}
    for partition in range(first, first + partitions):
        if partition > 0 and partition % len(brokers) == 0:
            shift += 1
        assigned[partition] = _replicas(brokers, racks, partition + start, shift, factor)
    return assigned


def _replicas(brokers: list[int], racks: Mapping[int, str | None], leader: int, shift: int, factor: int) -> list[int]:
    """The leader, then brokers at growing distances; a rack repeats only when all racks have a replica."""
    count, leader = len(brokers), leader % len(brokers)
    rack_count = len(set(racks.values()))
    chosen = [brokers[leader]]
    step = 0
    while len(chosen) < factor:
        distance = 1 + (shift * rack_count + step) % (count - 1)
        broker = brokers[(leader + distance) % count]
        used = {racks[other] for other in chosen}
        if broker not in chosen and (racks[broker] not in used or len(used) == rack_count):
            chosen.append(broker)
        step += 1
    return chosen


def _alternated(racks: Mapping[int, str | None]) -> list[int]:
    """Brokers with alternating racks: 0, 3, 6, 1, 4, 7 for racks {0, 1}, {3, 4}, {6, 7}."""
    if not all(racks.values()):
        raise ApiError(UNKNOWN_SERVER_ERROR, "Not all brokers have a rack: set broker.rack on all of them, or on none.")
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(str(racks[broker]), []).append(broker)
    longest = max(len(brokers) for brokers in by_rack.values())
    return [by_rack[rack][i] for i in range(longest) for rack in sorted(by_rack) if i < len(by_rack[rack])]
