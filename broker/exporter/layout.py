"""What one version of the metadata says of the partitions that are on this broker, as lists and arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from odradek.broker.exporter.partition_fields import Numbers
from odradek.cluster.metadata.snapshot import Snapshot


class TopicHere(NamedTuple):
    """A topic with a partition on this broker."""

    name: str
    id: bytes


def _array(values: Any) -> Numbers:
    return np.array(list(values), np.int64)


def _none() -> Numbers:
    return np.zeros(0, np.int64)


@dataclass
class Layout:
    """The partitions, all in the same order; `topics` without repetition, `topic_of` the place there of each."""

    version: int = 0
    names: list[tuple[str, int]] = field(default_factory=list)
    topics: list[TopicHere] = field(default_factory=list)
    topic_of: Numbers = field(default_factory=_none)
    slots: Numbers = field(default_factory=_none)
    incarnations: Numbers = field(default_factory=_none)
    leaders: Numbers = field(default_factory=_none)
    preferred: Numbers = field(default_factory=_none)
    replicas: Numbers = field(default_factory=_none)
    isr: Numbers = field(default_factory=_none)

    @classmethod
    def of(cls, snapshot: Snapshot) -> Layout:
        """The partitions with a slot on this broker."""
        here = [(name, index, slot, snapshot.topics[name].partition(index)) for name, index, slot in snapshot.here()]
        partitions = [info for *_, info in here if info is not None]
        places = {name: place for place, name in enumerate(dict.fromkeys(name for name, *_ in here))}
        return cls(
            version=snapshot.version,
            names=[(name, index) for name, index, _, _ in here],
            topics=[TopicHere(name, snapshot.topics[name].id) for name in places],
            topic_of=_array(places[name] for name, *_ in here),
            slots=_array(slot for _, _, slot, _ in here),
            incarnations=_array(info.incarnation for info in partitions),
            leaders=_array(info.leader for info in partitions),
            preferred=_array(info.replicas[0] if info.replicas else -1 for info in partitions),
            replicas=_array(len(info.replicas) for info in partitions),
            isr=_array(len(info.isr) for info in partitions),
        )
