"""Producers of a compacted topic: plain ones, and transactions that commit, abort, or stay open over rolls."""

from __future__ import annotations

import itertools
import random
import sys
import threading
import time
import traceback
from typing import Any

from confluent_kafka import KafkaException, Producer

from .ledger import Fate, Ledger, Unit, Write

KEYS, HOT = 25, 3
PARTITIONS = 3
_NUMBERS = itertools.count()


class Gate:
    """Pauses all writers between two of their steps."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.stop = threading.Event()

    def passes(self, writer: Writer) -> bool:
        """Wait until the gate is open; False when it is time to stop."""
        if not self.open.is_set():
            writer.parked.set()
            self.open.wait()
            writer.parked.clear()
        return not self.stop.is_set()


class Writer(threading.Thread):
    """One producer. `parked` is set while the gate holds it."""

    config: dict[str, Any] = {"enable.idempotence": True}
    hot = 0.97  # share of records with one of HOT keys; the cleaner's faults in the rare other keys stay visible

    def __init__(self, bootstrap: str, topic: str, ledger: Ledger, gate: Gate, seed: str) -> None:
        super().__init__(daemon=True)
        self.bootstrap, self.topic, self.ledger, self.gate = bootstrap, topic, ledger, gate
        self.rng = random.Random(seed)
        self.parked = threading.Event()
        self.failure = ""

    def run(self) -> None:
        """Write until the gate stops it; `failure` has the traceback of an early end."""
        try:
            self.work()
        except Exception:
            self.failure = traceback.format_exc()
        finally:
            self.parked.set()

    def work(self) -> None:
        raise NotImplementedError

    def stack(self) -> str:
        """The present stack of the thread."""
        frame = sys._current_frames().get(self.ident or 0)
        return "".join(traceback.format_stack(frame)) if frame else "ended"

    def producer(self, **config: Any) -> Producer:
        """A new client."""
        common = {
            "bootstrap.servers": self.bootstrap, "linger.ms": 1, "batch.size": 4000, "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500, "retry.backoff.ms": 50, "log_level": 0,
            "compression.type": self.rng.choice(["none", "gzip", "lz4", "snappy", "zstd"]),
        }  # fmt: skip
        return Producer({**common, **self.config, **config})

    def send(self, client: Producer, unit: Unit) -> None:
        """Send one record of a random key, with a unique value or a tombstone."""
        number = self.rng.randrange(HOT if self.rng.random() < self.hot else KEYS)
        value = None if self.rng.random() < 0.2 else b"%d:" % next(_NUMBERS) + b"v" * self.rng.randrange(300)
        write = Write(number % PARTITIONS, b"key-%d" % number, value, unit)

        def delivered(error: Any, message: Any) -> None:
            if error is None and message.offset() >= 0:
                write.offset = message.offset()

        self.ledger.sent(write)
        client.produce(self.topic, value, write.key, write.partition, on_delivery=delivered)


class Plain(Writer):
    """Records outside of transactions, a few at a time."""

    def work(self) -> None:
        client = self.producer()
        while self.gate.passes(self):
            unit_of = [Unit() for _ in range(self.rng.randrange(1, 6))]
            first = len(self.ledger.writes)
            for unit in unit_of:
                self.send(client, unit)
            assert client.flush(120) == 0, "not delivered in two minutes"
            mine = [one for one in self.ledger.writes[first:] if one.unit in unit_of]
            for one in mine:
                one.unit.fate = Fate.UNKNOWN if one.offset is None else Fate.COMMITTED
            time.sleep(self.rng.random() * 0.02)


class Forgetful(Plain):
    """Does not retry: an unacknowledged record may be stored or not."""

    config = {"acks": 1, "retries": 0, "enable.idempotence": False, "message.timeout.ms": 10_000}


class Transactional(Writer):
    """Transactions one after the other, a third of them aborted."""

    records, pause_s, hot = 8, 0.02, 0.0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.committed = self.aborted = 0
        self.name = f"{arguments[-1]}-{next(_NUMBERS)}"
        self.unit = Unit(Fate.UNKNOWN)  # the last transaction

    def work(self) -> None:
        client = self._fresh()
        while self.gate.passes(self):
            self.unit = unit = Unit()
            try:
                self._transaction(client, unit)
                time.sleep(self.rng.random() * 0.4)
            except KafkaException as error:
                if not error.args[0].fatal() and not error.args[0].txn_requires_abort():
                    raise
                unit.fate = Fate.UNKNOWN
                client = self._fresh()

    def states(self) -> set[str]:
        """The states that DescribeTransactions may return while the gate holds this writer."""
        ended = {Fate.COMMITTED: {"CompleteCommit", "PrepareCommit"}, Fate.ABORTED: {"CompleteAbort", "PrepareAbort"}}
        if self.unit.fate is Fate.OPEN:
            return {"Ongoing"}
        return ended.get(self.unit.fate, {"Empty", *ended[Fate.COMMITTED], *ended[Fate.ABORTED]})

    def _fresh(self) -> Producer:
        client = self.producer(**{"transactional.id": self.name, "transaction.timeout.ms": 120_000})
        while True:
            try:
                client.init_transactions(60)
                return client
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def _transaction(self, client: Producer, unit: Unit) -> None:
        client.begin_transaction()
        for _ in range(self.rng.randrange(1, self.records)):
            self.send(client, unit)
            client.poll(0)
            if self.pause_s > 0.1 or self.rng.random() < 0.3:
                client.flush(60)
            time.sleep(self.rng.random() * self.pause_s)
            if self.pause_s > 0.1 and not self.gate.passes(self):
                break
        client.flush(60)
        self._end(client, unit, self.rng.random() < 0.6)

    def _end(self, client: Producer, unit: Unit, commit: bool) -> None:
        while True:
            try:
                client.commit_transaction(60) if commit else client.abort_transaction(60)
                break
            except KafkaException as error:
                if error.args[0].txn_requires_abort():
                    commit = False
                elif not error.args[0].retriable():
                    raise
        unit.fate = Fate.COMMITTED if commit else Fate.ABORTED
        self.committed, self.aborted = self.committed + commit, self.aborted + (not commit)


class Holding(Transactional):
    """Transactions that stay open for seconds, over many segment rolls."""

    records, pause_s = 12, 0.5
