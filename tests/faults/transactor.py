"""Successive transactions over two partitions: read_committed must return all records of one, or none."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from ..clients.admin import unique
from ..clients.transactions import Raw, read
from ..harness.wire import Wire
from .load import Client

PARTITIONS = (0, 1)
PAUSE_S = 0.05


class Transactor(Client):
    """One transactional producer. After a crash it calls InitProducerId again, which aborts the open one."""

    def __init__(self, bootstrap: str, topic: str, number: int = 0) -> None:
        super().__init__(bootstrap, number)
        self.decided: dict[bytes, bool] = {}  # value → committed, of acknowledged EndTxn requests
        self._topic, self._name = topic, unique("transactor")
        self._turns = 0

    def _run(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(OSError, EOFError, AssertionError), Wire(self.bootstrap, 20) as wire:
                self._session(Raw(wire, self._name))

    def _session(self, raw: Raw) -> None:
        turn = 0
        while not self._stop.is_set():
            self._turns += 1  # also on a failure: a retry is a new transaction
            self._transaction(raw, b"%d" % self._turns, turn)
            turn += 1
            time.sleep(PAUSE_S)

    def _transaction(self, raw: Raw, value: bytes, turn: int) -> None:
        commit = self.rng.random() < 0.7
        assert raw.add(self._topic, *PARTITIONS) == [0, 0]
        for partition in PARTITIONS:
            raw.sequence = turn  # sequences are per partition
            assert not raw.write(self._topic, value, partition=partition).error_code
        if raw.end(commit) == 0:
            self.decided[value] = commit

    def faults(self, broker: Any) -> list[str]:
        """Transactions that were not atomic or not as acknowledged; call it after `stop`."""
        with broker.wire(60) as wire:
            Raw(wire, self._name)  # its last transaction may be open
        found = [read(broker, self._topic, "read_committed", partition) for partition in PARTITIONS]
        seen = [set(values) for values in found]
        faults = [f"transaction: {value!r} is in one partition and not in the other" for value in seen[0] ^ seen[1]]
        for value, committed in self.decided.items():
            if committed != (value in seen[0]):
                faults.append(f"transaction: {value!r}, committed {committed}, is read: {value in seen[0]}")
        for values in found:
            if list(map(int, values)) != sorted(set(map(int, values))):
                faults.append("transaction: records are duplicated or out of order")
        return faults if self.decided else [*faults, "transaction: none was completed"]
