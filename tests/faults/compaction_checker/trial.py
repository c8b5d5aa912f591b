"""One run: brokers that compact all the time, writers, faults, and readings that are compared with the ledger."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field

from ...harness.process import wait_until
from .committer import Committer
from .ledger import Fate, Ledger
from .reader import read
from .targets import TOPIC, OneBroker, ThreeBrokers
from .writers import PARTITIONS, Gate, Transactional, Writer

LOADING = (14, 15, 16)  # COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
READ_EVERY_S, FAULT_EVERY_S = 2.0, 7.0


@dataclass
class Summary:
    """Counts and differences of a run."""

    seed: int
    minutes: float
    brokers: int = 1
    records: int = 0
    transactions: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    readings: int = 0
    commits: int = 0
    differing: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


class Trial:
    """One run, see the module docstring."""

    def __init__(self, target: OneBroker | ThreeBrokers, seed: int, minutes: float) -> None:
        self.summary = Summary(seed, minutes, target.replicas)
        self.rng = random.Random(seed)
        self.target = target
        self.ledger, self.gate = Ledger(), Gate()
        self.writers: list[Writer] = []

    def run(self, harm: bool = True) -> Summary:
        """Run for some minutes; `harm`: kill processes meanwhile. AssertionError if the broker itself fails."""
        try:
            self.target.start()
            self._begin()
            self._go_on(harm)
            self._end()
        finally:
            self.gate.stop.set()
            self.gate.open.set()
            self.target.close()
        return self._summed()

    def _begin(self) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        target = self.target
        admin = AdminClient({"bootstrap.servers": target.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, target.replicas, config=target.config)])[TOPIC].result(60)
        for number, kind in enumerate(target.kinds):
            seed = f"{self.summary.seed}-{number}"
            self.writers.append(kind(target.bootstrap, TOPIC, self.ledger, self.gate, seed))
            self.writers[-1].start()

    def _go_on(self, harm: bool) -> None:
        end = time.monotonic() + self.summary.minutes * 60
        due = time.monotonic() + FAULT_EVERY_S
        while time.monotonic() < end:
            time.sleep(self.rng.uniform(0.5, 1) * READ_EVERY_S)  # the writers are active
            if harm and time.monotonic() > due:
                self.summary.faults[self.target.harm(self.rng)] += 1
                due = time.monotonic() + FAULT_EVERY_S
            self.compare()

    def compare(self) -> None:
        """Read while the writers are active, pause them, and read again; then compare both readings with the ledger."""
        beside = read(self.target.bootstrap, TOPIC, PARTITIONS)
        self._hold()
        self.target.settle()
        for settled, readings in ((False, beside), (True, read(self.target.bootstrap, TOPIC, PARTITIONS))):
            found = [fault for reading in readings for fault in self.ledger.differences(reading, settled)]
            self.summary.differences += found
            self.summary.differing += bool(found)
            self.summary.readings += 1
        self._compare_coordinator()
        self.gate.open.set()

    def _compare_coordinator(self) -> None:
        """Compare committed offsets of groups, and the states of transactions."""
        found = []
        for one in self.writers:
            if isinstance(one, Committer):
                found += one.differences()
            if isinstance(one, Transactional) and self.target.replicas == 1:  # else only its coordinator answers
                state = self._state(one.name)
                if state not in one.states():
                    found.append(f"transaction {one.name} is {state}: it should be one of {sorted(one.states())}")
        self.summary.differences += found
        self.summary.differing += bool(found)

    def _state(self, name: str) -> str:
        """The state that DescribeTransactions returns, once the coordinator has loaded its log."""
        from kafka.protocol.admin import DescribeTransactionsRequest

        def ask() -> str:
            with self.target.wire(60) as wire:
                (found,) = wire.call(DescribeTransactionsRequest[0](transactional_ids=[name])).transaction_states
            return "" if found.error_code in LOADING else f"{found.transaction_state}{found.error_code or ''}"

        return wait_until(ask, 60, "the coordinator answers")

    def _hold(self) -> None:
        self.gate.open.clear()
        for writer in self.writers:
            assert writer.parked.wait(180), f"{writer} does not finish its step:\n{writer.stack()}"
            assert not writer.failure, writer.failure

    def _end(self) -> None:
        self.gate.stop.set()
        for writer in self.writers:
            writer.join(180)
            assert not writer.is_alive() and not writer.failure, writer.failure or f"{writer} does not end"
        self.summary.differences += self.target.finish(self.compare)

    def _summed(self) -> Summary:
        summary = self.summary
        summary.records = len(self.ledger.writes)
        for one in self.writers:
            if isinstance(one, Transactional):
                summary.transactions.update(committed=one.committed, aborted=one.aborted)
            if isinstance(one, Committer):
                summary.commits += one.commits
        summary.rounds = self.target.rounds()
        if not summary.rounds or not self.ledger.count(Fate.ABORTED):
            summary.differences.append("no compaction, or no aborted transaction: this run shows nothing")
        return summary
