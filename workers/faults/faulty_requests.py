"""Takes requests, and injects the faults that the program has set: an error instead of the answer, or a delay before
the request is served. A request without a fault goes the way that it goes in any broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.ipc import forward
from odradek.ipc.faults.fault_table import ARMED, Fault, FaultTable
from odradek.workers.dispatch.requests import Requests
from odradek.workers.faults import error_answers
from odradek.workers.faults.faulty_parts import FaultyParts
from odradek.workers.net import client_ids
from odradek.workers.net.framing import Pipelined, skip_header_tags

if TYPE_CHECKING:
    from odradek.workers.dispatch.api import Api
    from odradek.workers.net.connection import Connection
    from odradek.workers.produce.produce_services import ProduceServices


class FaultyRequests(Requests):
    """The requests of a worker's connections, with faults."""

    def __init__(self, services: ProduceServices, table: FaultTable) -> None:
        super().__init__(services)
        self._serves: ProduceServices = services
        self._table = table

    # -- requests that are not pipelined

    def take(
        self, connection: Connection, key: int, version: int, correlation: int, view: memoryview, head: int, end: int
    ) -> None:
        """Take a request that is not pipelined; its client id begins at `head`."""
        row = self._rows.get(key) if self._table.words[ARMED] else None
        fault = self._table.hit(key) if row is not None and row.serves(version) else None
        if fault is None:
            super().take(connection, key, version, correlation, view, head, end)
        elif fault.error:
            assert row is not None
            self._fail(connection, row, version, correlation, view, head, end, fault.error)
        else:
            view, head, end = self._serves.kept(view, head, end)
            take = super().take

            def late() -> None:
                take(connection, key, version, correlation, view, head, end)

            self._serves.again(_after(fault, self._table, connection, late), connection)

    def _fail(
        self, connection: Connection, row: Api, version: int, correlation: int, view: memoryview, head: int, end: int,
        error: int,
    ) -> None:  # fmt: skip
        body = client_ids.read(connection, view, head, end)
        if row.is_flexible(version):
            body = skip_header_tags(view, body, end)
        answer = error_answers.answer(row, version, view[body:end], error)
        self._answered(connection, row, version, correlation, forward.OK, answer)

    # -- Produce

    def pipelined(self) -> Pipelined:
        """The API whose requests need not wait for each other's answers: Produce."""
        whole = super().pipelined()
        return whole._replace(take=self._pipelined(whole))

    def _pipelined(self, whole: Pipelined) -> Callable[..., None]:
        table, take, key = self._table, whole.take, whole.key

        def faulty(
            services: ProduceServices, connection: Connection, version: int, correlation: int, view: memoryview,
            head: int, body: int, end: int,
        ) -> None:  # fmt: skip
            fault = table.hit(key) if table.words[ARMED] else None
            if fault is None:
                take(services, connection, version, correlation, view, head, body, end)
                return
            parts = FaultyParts.of(services, connection, version, correlation, view, head, body, end)
            if fault.error:
                parts.refuse(fault.error)
            else:
                parts.wait(_after(fault, table, connection, lambda: None))

        return faulty


def _after(
    fault: Fault, table: FaultTable, connection: Connection, work: Callable[[], None]
) -> Callable[[], bool]:  # fmt: skip
    """Work for `services.again`: waits until the delay is over or the fault is removed, and then does `work`, unless
    the client is gone."""
    due = time.monotonic() + fault.delay

    def attempt() -> bool:
        if connection.closed:
            return True
        if time.monotonic() < due and table.is_set(fault):
            return False
        work()
        return True

    return attempt
