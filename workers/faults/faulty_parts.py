"""A Produce request that meets a fault: all of its partitions have the error, or are taken later.

It has its place among the requests in flight of its connection, so answers keep their order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from odradek.protocol import produce
from odradek.workers.apis.k00_produce import TakenParts
from odradek.workers.net import connection_state
from odradek.workers.produce.batching import PendingBatch
from odradek.workers.produce.produce_responses import MultiPartitionProduce
from odradek.workers.produce.produce_targets import ProduceTarget

if TYPE_CHECKING:
    from odradek.workers.net.connection import Connection
    from odradek.workers.produce.produce_services import ProduceServices


class FaultyParts(TakenParts):
    """The partitions of one request."""

    @classmethod
    def of(
        cls, services: ProduceServices, connection: Connection, version: int, correlation: int, buffer: memoryview,
        head: int, start: int, end: int,
    ) -> Self:  # fmt: skip
        """Those of the request whose header begins at `head` and whose body is buffer[start:end], now in flight."""
        request = produce.parse(buffer, start, end, version)
        several = MultiPartitionProduce(version, correlation, request.acks)
        rights = services.authorization.of_connection(connection)
        made = cls(services, connection, request, several, buffer, head, rights)
        connection.in_flight.append(several)
        return made

    def refuse(self, error: int) -> None:
        """Answer with this error; nothing is stored."""
        while self._left:
            self.several.add(self._refused(self._left.popleft(), error))
        self.run()

    def wait(self, due: Callable[[], bool]) -> None:
        """Take them when `due()` returns True; the next requests of the connection wait for that."""
        if self._left:
            self.keep()
        self._connection.state = connection_state.HOLD[self._connection.state]
        self._services.again(lambda: due() and self.go_on(), self._connection)

    def _refused(self, part: produce.ProducePart, error: int) -> PendingBatch:
        request, several = self._request, self.several
        target = ProduceTarget(
            None, part.topic, part.partition, request.acks, request.timeout_ms, several.version, None
        )  # fmt: skip
        batch = PendingBatch(self._buffer[:0], self._connection, several.correlation, target)
        batch.refuse(error)
        self._services.batching.finish((batch,))
        return batch
