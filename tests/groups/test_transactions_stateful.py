"""Transactions under any order of requests, markers, deadlines, failures and deaths of the coordinator.

Three clients share two transactional ids. Every partition has a log of the writes of clients and of markers; a
client writes only after it has added the partition, with the epoch it got, as a real producer does.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from odradek.groups.transactions.events import Producer
from odradek.groups.transactions.states import COMPLETED, FROM, State
from odradek.protocol.errors import Error

from .transaction_world import TransactionWorld

CLIENTS = st.integers(0, 2)
NAMES = st.sampled_from(["x", "y"])
PARTITIONS = [("t", 0), ("t", 1), ("__consumer_offsets", 3)]


TOPICS = st.sets(st.sampled_from(PARTITIONS), min_size=1)
FAULTS = st.sampled_from([None] * 5 + ["busy", Error.KAFKA_STORAGE_ERROR, Error.NOT_ENOUGH_REPLICAS])
ODD_IDS = st.sampled_from([-(2**63), -1, 0, 7, 2**63 - 1])  # IDs that are never allocated
ODD_EPOCHS = st.sampled_from([-(2**15), -1, 0, 1, 2**15 - 2, 2**15 - 1])
ODD_NAMES = st.sampled_from(["", " ", "x", "y", "Ω" * 1000, "z" * 32_767])


class Client:
    """The state of a client."""

    def __init__(self) -> None:
        self.me: Producer | None = None
        self.added: set[tuple[str, int]] = set()


class Log:
    """A partition: the epochs of producers, the open writes and the outcome of each."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.open: dict[int, set[int]] = {}  # writes by producer id
        self.fate: dict[int, bool] = {}  # write → committed

    def write(self, producer: Producer, number: int) -> bool:
        if producer.epoch < self.epochs.get(producer.id, -1):
            return False
        self.epochs[producer.id] = producer.epoch
        self.open.setdefault(producer.id, set()).add(number)
        return True

    def mark(self, producer_id: int, epoch: int, commit: bool) -> None:
        assert epoch >= self.epochs.get(producer_id, -1), "a marker that its partition would refuse"
        self.epochs[producer_id] = epoch
        for number in self.open.pop(producer_id, set()):
            self.fate[number] = commit


class Machine(RuleBasedStateMachine):
    """See the module's docstring."""

    @initialize(timeout_ms=st.sampled_from([5_000, 600_000]))
    def start(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self.world = TransactionWorld()
        self.clients = [Client() for _ in range(3)]
        self.logs = {tp: Log() for tp in PARTITIONS}
        self.number = 0
        self.mine: dict[int, tuple[Producer, int, tuple[str, int]]] = {}  # write → (producer, transaction, partition)
        self.transaction = 0
        self.acked: dict[int, bool] = {}  # transaction → outcome acknowledged to its client
        self.current: dict[Producer, int] = {}
        self.given: set[tuple[int, int]] = set()
        self.before: dict[str, Any] = {}

    def log_is(self, fault: Error | str | None) -> None:
        """Set how the log behaves during the next request; delayed appends complete first."""
        self.world.log.busy, self.world.log.error = False, None
        self.world.settle()
        self.world.log.busy = fault == "busy"
        self.world.log.error = fault if isinstance(fault, Error) else None

    # -- clients

    @rule(at=CLIENTS, name=NAMES, fault=FAULTS)
    def init(self, at: int, name: str, fault: Any) -> None:
        self.log_is(fault)
        self.start_as(self.clients[at], Producer(name), fresh=True)

    @rule(at=CLIENTS, fault=FAULTS)
    def bump(self, at: int, fault: Any) -> None:
        self.log_is(fault)
        me = self.clients[at].me
        if me is not None:
            self.start_as(self.clients[at], me, fresh=False)

    def start_as(self, client: Client, me: Producer, fresh: bool) -> None:
        result = self.world.init(*me, self.timeout_ms)
        if result is None or result.error:
            return
        given = result.producer_id, result.epoch
        assert not fresh or given not in self.given, "another producer has this epoch"
        self.given.add(given)
        client.me, client.added = Producer(me.transactional_id, *given), set()

    @rule(at=CLIENTS, name=NAMES, tps=TOPICS, fault=FAULTS, end=st.sampled_from([None, None, True, False]))
    def transact(self, at: int, name: str, tps: set[tuple[str, int]], fault: Any, end: bool | None) -> None:
        self.log_is(fault)
        self.work(at, name, tps)
        if end is not None:
            self.finish(at, end)

    def work(self, at: int, name: str, tps: set[tuple[str, int]]) -> None:
        """Add partitions and write to all of them, as the current producer or a new one."""
        client = self.clients[at]
        if client.me is None:
            self.start_as(client, Producer(name), fresh=True)
        if client.me is None:
            return
        answer = self.world.add(client.me, *sorted(tps))
        if answer is Error.PRODUCER_FENCED:
            client.me, client.added = None, set()
            return
        if answer is Error.NONE:
            if not client.added:
                self.transaction += 1
                self.current[client.me] = self.transaction
            client.added |= tps
        for tp in client.added:
            self.number += 1
            if self.logs[tp].write(client.me, self.number):
                self.mine[self.number] = (client.me, self.current[client.me], tp)

    @rule(at=CLIENTS, commit=st.booleans(), fault=FAULTS)
    def end(self, at: int, commit: bool, fault: Any) -> None:
        self.log_is(fault)
        self.finish(at, commit)

    def finish(self, at: int, commit: bool) -> None:
        client = self.clients[at]
        if client.me is None or not client.added:
            return
        answer = self.world.end(client.me, commit)
        if answer is Error.NONE:
            self.acked[self.current[client.me]] = commit
            client.added = set()
        elif answer in (Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_ID_MAPPING, Error.INVALID_TXN_STATE, None):
            client.me, client.added = None, set()  # the client gives up; without an answer it does not know the outcome

    # -- requests of misbehaving clients

    @rule(name=ODD_NAMES, number=ODD_IDS, epoch=ODD_EPOCHS, ms=st.sampled_from([-(2**31), 0, 1, 900_001, 2**31 - 1]))
    def init_oddly(self, name: str, number: int, epoch: int, ms: int) -> None:
        self.log_is(None)
        self.world.init(name, number, epoch, ms)

    @rule(name=ODD_NAMES, number=ODD_IDS, epoch=ODD_EPOCHS, commit=st.booleans())
    def add_and_end_oddly(self, name: str, number: int, epoch: int, commit: bool) -> None:
        self.log_is(None)
        producer = Producer(name, number, epoch)
        assert self.world.add(producer, ("", -1), ("t" * 32_767, 2**31 - 1))
        assert self.world.end(producer, commit)
        assert all(self.world.transactions.verify(producer, [("t", 0)]).values())

    @rule(name=NAMES)
    def fault(self, name: str) -> None:
        """An internal error: the transactional id is loaded again."""
        faults = self.world.transactions.faults
        self.world.transactions.reset(name, self.world.now)
        self.world.transactions.faults = faults
        self.before.pop(name, None)  # the last epoch may not have been in the log yet

    # -- markers, time, failures and crashes

    @rule(fault=FAULTS)
    def marks(self, fault: Any) -> None:
        self.log_is(fault)
        self.mark()

    def mark(self) -> None:
        for markers in self.world.markers:
            for tp in markers.partitions:
                self.logs[tp].mark(markers.producer_id, markers.epoch, markers.commit)
        self.world.mark()

    @rule(ms=st.sampled_from([50, 2_000, 5_000, 11_000]))
    def wait(self, ms: int) -> None:
        self.world.wait(ms)

    @rule(lag=st.sampled_from([0, 0, 1, 2]))
    def replicas_lag(self, lag: int) -> None:
        """Appends are decided later, or too late."""
        self.world.log.lag = lag
        self.world.settle()

    @rule()
    def die(self) -> None:
        """The coordinator dies; it may have written some markers before."""
        for markers in self.world.markers:
            for tp in sorted(markers.partitions)[:1]:
                self.logs[tp].mark(markers.producer_id, markers.epoch, markers.commit)
        self.world.log.busy, self.world.log.error = False, None
        self.world = self.world.restarted()
        self.before = {}

    # -- invariants

    @invariant()
    def no_exception_is_raised(self) -> None:
        assert self.world.transactions.faults == 0

    @invariant()
    def transitions_follow_the_tables(self) -> None:
        for name in ("x", "y"):
            known = self.world.transactions.get(name)
            if known is None:
                continue
            assert known.pending is None or known.metadata.state in FROM[known.pending]
            assert known.metadata.state not in (State.DEAD, State.PREPARE_EPOCH_FENCE)
            assert (known.metadata.state in (State.ONGOING, *COMPLETED)) == bool(known.metadata.partitions)
            assert known.metadata.epoch >= self.before.get(name, -1)
            self.before[name] = known.metadata.epoch

    @invariant()
    def acknowledged_outcome_is_the_outcome_in_the_logs(self) -> None:
        for number, (_, transaction, tp) in self.mine.items():
            fate = self.logs[tp].fate.get(number)
            if fate is not None and transaction in self.acked:
                assert fate == self.acked[transaction], f"write {number} of transaction {transaction}"

    @invariant()
    def every_transaction_has_one_outcome(self) -> None:
        fates: dict[int, set[bool]] = {}
        for number, (_, transaction, tp) in self.mine.items():
            fate = self.logs[tp].fate.get(number)
            if fate is not None:
                fates.setdefault(transaction, set()).add(fate)
        assert all(len(found) == 1 for found in fates.values())

    def teardown(self) -> None:
        """After enough time with a working log, all transactions are decided."""
        if not hasattr(self, "world"):
            return
        self.world.log.lag = 0
        self.log_is(None)
        for _ in range(4):
            self.world.wait(700_000)
            self.mark()
        assert not any(log.open for log in self.logs.values()), "a transaction stays open for ever"
        self.acknowledged_outcome_is_the_outcome_in_the_logs()
        self.every_transaction_has_one_outcome()


TestTransactions = pytest.mark.slow(Machine.TestCase)
TestTransactions.settings = settings(max_examples=300, stateful_step_count=60, suppress_health_check=list(HealthCheck))
