"""What is known of a broker at one moment, as far as it may be wrong. No logic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

NAMED = 5  # partitions, at most, that a fault names
EXAMINED = 1000  # partitions, at most, whose missing brokers a fault names


@dataclass(frozen=True)
class Affected:
    """Partitions with the same fault: how many, the names of the first, and the brokers that their ISRs lack."""

    count: int = 0
    names: Sequence[str] = ()
    brokers: Sequence[int] = ()

    @classmethod
    def of(cls, partitions: Iterable[AffectedPartition], count: int) -> Affected:
        """`count` partitions, of which `partitions` are the first."""
        examined = list(partitions)
        brokers = {broker for one in examined for broker in one.missing}
        return cls(count, [one.name for one in examined[:NAMED]], sorted(brokers))


class AffectedPartition(NamedTuple):
    """One partition with a fault, as `topic-partition`, and the replicas that are not in its ISR."""

    name: str
    missing: Sequence[int]


class ProcessFacts(NamedTuple):
    """One process; `files` and `files_limit` are its open descriptors and their limit, 0 where they are not known.

    `restarts` are its starts after an end that the supervisor did not want; `is_retired`: no process is missing.
    """

    name: str
    is_worker: bool
    is_alive: bool
    restarts: int = 0
    up_s: float = 0.0
    files: int = 0
    files_limit: int = 0
    is_retired: bool = False


class DirFacts(NamedTuple):
    """One log directory: whether it has failed, and the bytes of its disk (`size` 0: not known)."""

    path: str
    has_failed: bool = False
    size: int = 0
    free: int = 0


@dataclass(frozen=True)
class Facts:
    """The broker. The partitions are those with a replica on it; of the last three sets it is the leader."""

    not_serving: str = ""  # why it serves no clients
    is_stopping: bool = False
    recovering: int = 0  # logs that a start waits for
    starting: Sequence[str] = ()  # processes that do not serve yet
    processes: Sequence[ProcessFacts] = ()
    dirs: Sequence[DirFacts] = ()
    keep_free: int = 0  # odradek.retention.free.bytes
    shm: DirFacts | None = None
    zookeeper: str = ""  # zookeeper.connect
    zookeeper_lost_s: float | None = None
    certificate_days: float | None = None
    retention_unknown: Sequence[str] = ()
    offline: Affected = Affected()
    leaderless: Affected = Affected()
    under_min_isr: Affected = Affected()
    at_min_isr: Affected = Affected()  # that lack a replica
    under_replicated: Affected = Affected()
