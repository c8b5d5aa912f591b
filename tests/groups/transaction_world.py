"""Transactions with a fake log and a manual clock; markers wait until a test writes them."""

from __future__ import annotations

from typing import Any

from odradek.groups.events import Answer, Append, Now, Reload
from odradek.groups.log_writer import LogWriter
from odradek.groups.transactions.events import InitResult, Markers, Producer, TransactionConfig
from odradek.groups.transactions.loading import TransactionReplay
from odradek.groups.transactions.states import State
from odradek.groups.transactions.transaction import Metadata
from odradek.groups.transactions.transactions import Transactions
from odradek.protocol.errors import Error

from .world import FakeLog

BLOCK = 3


class TransactionWorld:
    """One coordinator over one partition of `__transaction_state`."""

    def __init__(self, log: FakeLog | None = None, first_id: int = 1000, **config: Any) -> None:
        self.log = log or FakeLog()
        self.transactions = Transactions(TransactionConfig(**config))
        machine = self.transactions
        self.writer = LogWriter(self.log, machine.partition_of, machine.config.append_timeout_ms, faulty=machine.reset)
        self.reloads: list[str] = []
        self.now = Now(1_000, 1_700_000_000_000)
        self.next_id = first_id
        self.has_ids = True
        self.answers: dict[Any, list[Any]] = {}
        self.markers: list[Markers] = []  # requested but not written
        self.written: list[Markers] = []
        self._tokens = 0
        self.transactions.partitions = 1
        self.load()

    def load(self, only: set[str] | None = None) -> None:
        if only is None:
            self.transactions.will_load(0)
        replay = TransactionReplay()
        for batch in self.log.read_all(0):
            replay.feed(batch)
        self.transactions.loaded(0, replay, self.now, only)
        self.settle()

    def restarted(self) -> TransactionWorld:
        """The coordinator of the same log after a crash, without unwritten appends."""
        successor = TransactionWorld(self.log, self.next_id, **self.transactions.config._asdict())
        successor.now = self.now
        return successor

    def settle(self) -> None:
        """Run the effects as the process does each round, but keep the markers."""
        self.writer.write(self.now)
        self.writer.check(self.now)
        while self.transactions.effects:
            effects, self.transactions.effects[:] = list(self.transactions.effects), []
            for effect in effects:
                self._do(effect)
            self.writer.write(self.now)
            self.writer.check(self.now)
        if self.reloads and not self.writer.is_queued(0) and not self.writer.awaited:
            keys, self.reloads = set(self.reloads), []
            self.load(keys)

    def _do(self, effect: Any) -> None:
        if isinstance(effect, Answer):
            self.answers.setdefault(effect.token, []).append(effect.result)
        elif isinstance(effect, Append):
            self.writer.add(effect, self.now)
        elif isinstance(effect, Reload):
            self.reloads.append(effect.key)
        elif isinstance(effect, Markers):
            self.markers.append(effect)
        else:
            self.transactions.take_ids(self.next_id, BLOCK if self.has_ids else 0, self.now)
            self.next_id += BLOCK

    def mark(self) -> None:
        """Write all requested markers."""
        markers, self.markers = self.markers, []
        for each in markers:
            self.written.append(each)
            self.transactions.markers_written(each, self.now)
        self.settle()

    def wait(self, ms: int) -> None:
        """Let time pass."""
        self.now = Now(self.now.steady_ms + ms, self.now.wall_ms + ms)
        self.transactions.tick(self.now)
        self.settle()

    # -- requests; each returns its answer, or None if there is none yet

    def _token(self) -> int:
        self._tokens += 1
        return self._tokens

    def answer(self, token: int) -> Any:
        answers = self.answers.get(token, [])
        assert len(answers) <= 1
        return answers[0] if answers else None

    def init(self, name: str = "x", producer_id: int = -1, epoch: int = -1, timeout_ms: int = 60_000) -> InitResult:
        token = self._token()
        self.transactions.init_producer_id(Producer(name, producer_id, epoch), timeout_ms, token, self.now)
        self.settle()
        return self.answer(token)

    def started(self, name: str = "x", **fields: Any) -> Producer:
        """A producer that may begin a transaction."""
        result = self.init(name, **fields)
        assert not result.error, result
        return Producer(name, result.producer_id, result.epoch)

    def add(self, producer: Producer, *partitions: tuple[str, int]) -> Error:
        token = self._token()
        self.transactions.add(producer, partitions or [("t", 0)], token, self.now)
        self.settle()
        return self.answer(token)

    def end(self, producer: Producer, commit: bool = True) -> Error:
        token = self._token()
        self.transactions.end(producer, commit, token, self.now)
        self.settle()
        return self.answer(token)

    def ongoing(self, name: str = "x", **fields: Any) -> Producer:
        """A producer in a transaction of ("t", 0)."""
        producer = self.started(name, **fields)
        assert self.add(producer) is Error.NONE
        return producer

    def state(self, name: str = "x") -> State:
        return self.metadata(name).state

    def metadata(self, name: str = "x") -> Metadata:
        known = self.transactions.get(name)
        assert known is not None
        return known.metadata
