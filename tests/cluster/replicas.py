"""Compares the replicas of a partition, byte by byte, from the brokers' files."""

from __future__ import annotations

from pathlib import Path

from odradek.protocol.batch import HEADER, LOG_OVERHEAD

from ..harness.cluster import Cluster


def batches(directory: Path) -> dict[int, bytes]:
    """The record batches of a partition directory by base offset; segments may end at different places."""
    found: dict[int, bytes] = {}
    for segment in sorted(directory.glob("*.log")):
        data, at = segment.read_bytes(), 0
        while at + HEADER.size <= len(data):
            base, length = HEADER.unpack_from(data, at)[:2]
            end = at + length + LOG_OVERHEAD
            if length <= 0 or end > len(data):
                break
            found[base] = data[at:end]
            at = end
    return found


def differences(cluster: Cluster, topic: str, partition: int = 0) -> list[str]:
    """Descriptions of the differences between the replicas of a partition; [] if they are equal."""
    logs = {
        number: batches(broker.data_dir / f"{topic}-{partition}")
        for number, broker in enumerate(cluster.brokers)
        if (broker.data_dir / f"{topic}-{partition}").exists()
    }
    assert logs, f"no broker has {topic}-{partition}"
    first, *others = logs
    found = []
    for other in others:
        for base in sorted(logs[first].keys() | logs[other].keys()):
            if logs[first].get(base) != logs[other].get(base):
                found.append(f"{topic}-{partition}: brokers {first} and {other} differ at offset {base}")
                break
    return found
