"""One run: a broker that compacts all the time, writers, faults, and readings that are compared with the ledger."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from odradek.storage import check

from ...harness.broker import Broker
from ...harness.process import wait_until
from .committer import Committer
from .ledger import Fate, Ledger
from .reader import read
from .writers import PARTITIONS, Forgetful, Gate, Holding, Plain, Transactional, Writer

TOPIC = "compacted"
CONFIG = {
    "cleanup.policy": "compact", "segment.bytes": "8000", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "300", "index.interval.bytes": "500",
}  # fmt: skip
BROKER = {
    "log_cleaner_backoff_ms": 50, "log_cleaner_min_cleanable_ratio": 0.01, "log_segment_delete_delay_ms": 200,
    "offsets_topic_segment_bytes": 5000, "transaction_state_log_segment_bytes": 5000, "offsets_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 2, "auto_create_topics_enable": "false",
}  # fmt: skip
LOADING = (14, 15, 16)  # COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
READ_EVERY_S, FAULT_EVERY_S = 2.0, 7.0


@dataclass
class Summary:
    """What a run did and found."""

    seed: int
    minutes: float
    records: int = 0
    transactions: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    readings: int = 0
    commits: int = 0
    differing: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


class Trial:
    """See the module's head."""

    def __init__(self, folder: Path, seed: int, minutes: float) -> None:
        self.summary = Summary(seed, minutes)
        self.dice = random.Random(seed)
        self.broker = Broker(folder, **BROKER)
        self.ledger, self.gate = Ledger(), Gate()
        self.writers: list[Writer] = []

    def run(self, harm: bool = True) -> Summary:
        """For some minutes; `harm`: kill processes meanwhile. AssertionError when the broker itself fails."""
        try:
            self.broker.start()
            self._begin()
            self._go_on(harm)
            self._end()
        finally:
            self.gate.stop.set()
            self.gate.open.set()
            self.broker.close()
        return self._summed()

    def _begin(self) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=CONFIG)])[TOPIC].result(60)
        kinds: list[type[Writer]] = [Plain, Forgetful, Transactional, Transactional, Holding, Committer, Committer]
        for number, kind in enumerate(kinds):
            seed = f"{self.summary.seed}-{number}"
            self.writers.append(kind(self.broker.bootstrap, TOPIC, self.ledger, self.gate, seed))
            self.writers[-1].start()

    def _go_on(self, harm: bool) -> None:
        end = time.monotonic() + self.summary.minutes * 60
        due = time.monotonic() + FAULT_EVERY_S
        while time.monotonic() < end:
            time.sleep(self.dice.uniform(0.5, 1) * READ_EVERY_S)  # the writers are at work
            if harm and time.monotonic() > due:
                self._harm()
                due = time.monotonic() + FAULT_EVERY_S
            self.compare()

    def compare(self) -> None:
        """Read beside the writers, hold them up, and read again: both readings are then known for what they are."""
        beside = read(self.broker.bootstrap, TOPIC, PARTITIONS)
        self._hold()
        for settled, readings in ((False, beside), (True, read(self.broker.bootstrap, TOPIC, PARTITIONS))):
            found = [fault for reading in readings for fault in self.ledger.differences(reading, settled)]
            self.summary.differences += found
            self.summary.differing += bool(found)
            self.summary.readings += 1
        self._compare_coordinator()
        self.gate.open.set()

    def _compare_coordinator(self) -> None:
        """What groups have committed, and the states of transactions."""
        found = []
        for one in self.writers:
            if isinstance(one, Committer):
                found += one.differences()
            if isinstance(one, Transactional):
                state = self._state(one.name)
                if state not in one.states():
                    found.append(f"transaction {one.name} is {state}: it should be one of {sorted(one.states())}")
        self.summary.differences += found
        self.summary.differing += bool(found)

    def _state(self, name: str) -> str:
        """What DescribeTransactions says, once the coordinator has read its log."""
        from kafka.protocol.admin import DescribeTransactionsRequest

        def ask() -> str:
            with self.broker.wire(60) as wire:
                (found,) = wire.call(DescribeTransactionsRequest[0](transactional_ids=[name])).transaction_states
            return "" if found.error_code in LOADING else f"{found.transaction_state}{found.error_code or ''}"

        return wait_until(ask, 60, "the coordinator answers")

    def _hold(self) -> None:
        self.gate.open.clear()
        for writer in self.writers:
            assert writer.parked.wait(180), f"{writer} does not come to the end of its step:\n{writer.stack()}"
            assert not writer.failure, writer.failure

    def _harm(self) -> None:
        kinds: dict[str, Callable[[], object]] = {
            "the janitor killed": lambda: self.broker.kill_role("janitor"),
            "a worker killed": lambda: self.broker.kill_role("worker", self.dice.randrange(2)),
            "the coordinator killed": lambda: self.broker.kill_role("coordinator"),
            "the broker killed": lambda: self.broker.restart(kill=True),
            "the broker restarted": lambda: self.broker.restart(),
        }
        kind = self.dice.choice([*list(kinds)[:3] * 2, *kinds])
        wait_until(lambda: all(self.broker.pids(role) for role in ("janitor", "worker", "coordinator")), 60, "all run")
        wait_until(lambda: len(self.broker.pids("worker")) == 2, 60, "both workers run")
        kinds[kind]()
        self.summary.faults[kind] += 1

    def _end(self) -> None:
        self.gate.stop.set()
        for writer in self.writers:
            writer.join(180)
            assert not writer.is_alive() and not writer.failure, writer.failure or f"{writer} does not end"
        self.compare()
        self.broker.restart()
        self.compare()
        self.broker.stop()
        self.summary.differences += [str(fault) for fault in check.check(self.broker.data_dir, deep=True)]

    def _summed(self) -> Summary:
        summary = self.summary
        summary.records = len(self.ledger.writes)
        for one in self.writers:
            if isinstance(one, Transactional):
                summary.transactions.update(committed=one.committed, aborted=one.aborted)
            if isinstance(one, Committer):
                summary.commits += one.commits
        summary.rounds = len(re.findall(r"-\d+: compacted up to offset", self.broker.log))
        if not summary.rounds or not self.ledger.count(Fate.ABORTED):
            summary.differences.append("nothing was compacted, or nothing aborted: this run says nothing")
        return summary
