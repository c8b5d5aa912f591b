"""One topic of the cluster under load, and the verdict on it: six producers, a group of two, and a tail reader.

On a secured cluster, an outsider without rights also sends requests.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from ...faults.checker import Found, Log, faults
from ...harness.process import wait_until
from . import divergence
from .chaos_cluster import HEAL_S, ChaosCluster
from .load import MODES, UNKNOWN, Mode, Producer, make_producer
from .outsider import Outsider
from .readers import Commits, Member, Tail, read_all
from .stuck import Place, explain

PARTITIONS = 3
_ANSWER_S = 5
_ACKED_LOSS = ("lost:", "moved:")
_OF_THE_WHOLE = ("hole:", "stranger:")  # faults that do not concern one producer


@dataclass
class Verdict:
    """The result of one load."""

    faults: list[str] = field(default_factory=list)
    acked: dict[str, int] = field(default_factory=dict)  # acks level → records acknowledged
    lost: dict[str, int] = field(default_factory=dict)  # acks level → acknowledged records that are missing at the end
    commits: int = 0
    came_late: int = 0

    def counts(self) -> str:
        """Acknowledged and lost records, in words."""
        return f"acknowledged {_by_acks(self.acked)}; lost {_by_acks(self.lost)}"


def _by_acks(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} with acks={acks}" for acks, count in counts.items())


class World:
    """The load; `verify` ends it and judges."""

    def __init__(
        self, chaos_cluster: ChaosCluster, modes: list[Mode] = MODES, pause: float = 0.01, **config: object
    ) -> None:
        self.chaos_cluster = chaos_cluster
        self.topic = chaos_cluster.create_topic("load", PARTITIONS, **{"min_insync_replicas": 2, **config})
        where = (chaos_cluster.clients, self.topic, PARTITIONS)
        self.producers = [make_producer(*where, number, mode, pause) for number, mode in enumerate(modes)]
        self.commits = Commits()
        self.members = [Member(*where, self.commits) for _ in range(2)]
        self.tail = Tail(*where)
        security = chaos_cluster.security
        self.outsiders = [Outsider(chaos_cluster, security, self.topic, PARTITIONS)] if security else []
        self._tracebacks = self._count_tracebacks()

    # -- life

    @contextmanager
    def running(self) -> Iterator[None]:
        """Load over the block."""
        with quiet("kafka"):
            for client in self._clients():
                client.start()
            try:
                self.await_more()
                yield
            except BaseException:
                self._abandon()
                raise

    def _clients(self) -> list[Producer | Member | Tail | Outsider]:
        return [*self.producers, *self._readers()]

    def _readers(self) -> list[Member | Tail | Outsider]:
        return [*self.members, self.tail, *self.outsiders]

    def _abandon(self) -> None:
        for producer in self.producers:
            producer.abandon()
        for reader in self._readers():
            reader.stop()

    def leader(self) -> int:
        """The broker that leads the first partition."""
        return self.chaos_cluster.leader(self.topic)

    def await_more(self, more: int = 20, seconds: float = HEAL_S) -> None:
        """Wait until every producer has `more` further records acknowledged."""
        goals = [producer.history.count + more for producer in self.producers]

        def came() -> bool:
            return all(one.history.count >= goal for one, goal in zip(self.producers, goals, strict=True))

        wait_until(came, seconds, "all producers make progress", fail=False)
        behind = [one for one, goal in zip(self.producers, goals, strict=True) if one.history.count < goal]
        assert not behind, f"no progress within {seconds} s: {[(str(one.mode), one.errors) for one in behind]}"

    def begin_gaps(self) -> None:
        """Start to measure the longest time without an acknowledgement."""
        for producer in self.producers:
            producer.gaps.begin()

    def longest_gap(self) -> float:
        """The longest time in seconds without an acknowledgement of an idempotent producer on any partition."""
        return max((one.gaps.longest for one in self.producers if one.mode.idempotent), default=0.0)

    # -- the verdict

    def verify(self) -> Verdict:
        """Once all faults are healed: end the load, read all records, compare the replicas."""
        verdict = Verdict()
        for one in (self.chaos_cluster.administrator, self.chaos_cluster.configurator):
            one.settle()
        self.chaos_cluster.healed(self.topic, PARTITIONS)
        for producer in self.producers:
            producer.stop()
        self.chaos_cluster.healed(self.topic, PARTITIONS)  # requests in flight have reached all replicas
        verdict.faults += self._group(self._read())
        for reader in self._readers():
            reader.stop()
        log = self._read()  # again, since an abandoned request may arrive late
        self._settle_unknown(log)
        self._judge(log, verdict)
        verdict.faults += self._divergence(log)
        verdict.faults += [*self.chaos_cluster.administrator.problems, *self.chaos_cluster.configurator.problems]
        self.chaos_cluster.tidy()
        return verdict

    def _read(self) -> Log:
        return read_all(self.chaos_cluster.clients, self.topic, PARTITIONS)

    def _group(self, log: Log) -> list[str]:
        """Wait until the group has seen every record at least once; return the skipped ones."""
        wait_until(lambda: not any(self._unseen(log)), 180, fail=False)
        return [self._skipped(partition, rows) for partition, rows in enumerate(self._unseen(log)) if rows]

    def _skipped(self, partition: int, rows: set[Found]) -> str:
        """The fault in words; its first line is the fault, the others are what explains it."""
        said = f"skipped: the group did not read {len(rows)} records of partition {partition}; the first is {min(rows)}"
        place = Place(self.topic, self.members[0].group, partition, min(rows).offset)
        wires = {number: partial(self.chaos_cluster.wire, number, _ANSWER_S) for number in self.chaos_cluster.ids}
        return f"{said}\n  {explain(wires, place, [one.recorder for one in self.members])}"

    def _unseen(self, log: Log) -> list[set[Found]]:
        return [
            set(log[partition]).difference(*(list(member.rows[partition]) for member in self.members))
            for partition in range(PARTITIONS)
        ]

    def _settle_unknown(self, log: Log) -> None:
        """Find the offset of records acknowledged without one; a record that is not found is lost."""
        for producer in self.producers:
            for partition, acked in producer.history.acked.items():
                places = {row.number: row.offset for row in log[partition] if row.producer == producer.history.producer}
                for number in [number for number, offset in acked.items() if offset == UNKNOWN]:
                    acked[number] = places.get(number, 0)

    def _judge(self, log: Log, verdict: Verdict) -> None:
        """Judge the log. A failover may lose records of acks=1, which are counted; any other loss is a fault."""
        for producer in self.producers:
            found = [fault for fault in faults([producer.history], log, []) if not fault.startswith(_OF_THE_WHOLE)]
            lost = [fault for fault in found if fault.startswith(_ACKED_LOSS)]
            acks = producer.mode.acks
            verdict.acked[acks] = verdict.acked.get(acks, 0) + producer.history.count
            verdict.lost[acks] = verdict.lost.get(acks, 0) + len(lost)
            excused = lost if acks == "1" else []
            verdict.faults += [f"{producer.mode}: {fault}" for fault in found if fault not in excused]
        sent = [replace(producer.history, acked={}, refused={}, idempotent=False) for producer in self.producers]
        verdict.faults += faults(sent, log, [self.tail.rows])
        for client in self._clients():
            verdict.faults += client.problems
        verdict.faults += [*self.commits.faults, *self._new_tracebacks()]
        verdict.commits, verdict.came_late = self.commits.count, self.commits.came_late

    def _divergence(self, log: Log) -> list[str]:
        found = []
        for partition, rows in log.items():
            name = f"{self.topic}-{partition}"
            end = rows[-1].offset + 1 if rows else 0
            found += divergence.differences(
                name, [self.chaos_cluster.data(one) / name for one in self.chaos_cluster.ids], end
            )
        return found

    def _count_tracebacks(self) -> dict[int, int]:
        return {number: self.chaos_cluster.broker(number).log.count("Traceback") for number in self.chaos_cluster.ids}

    def _new_tracebacks(self) -> list[str]:
        """The tracebacks that brokers have logged since."""
        found = []
        for number, before in self._tracebacks.items():
            parts = re.split(r"(?=Traceback \(most recent)", self.chaos_cluster.broker(number).log)[1 + before :]
            found += [f"broker {number}: {part[:1500]}" for part in parts]
        return found


@contextmanager
def quiet(name: str) -> Iterator[None]:
    """Silence a library's log within the block: it logs each error of each connection."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def wait(seconds: float) -> None:
    """Let the load run for that time."""
    time.sleep(seconds)
