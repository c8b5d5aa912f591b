"""Takes requests: finds the row of the API and the process that answers, and sends the answer.

APIs with a fast path take their undecoded requests; other requests are decoded and dispatched here or forwarded to the
coordinator or the controller, whose answer arrives as an event of the loop.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from odradek.ipc import forward
from odradek.ipc.forward import Forwarded
from odradek.protocol.wire import I32
from odradek.workers.dispatch import api, dispatch, unavailable
from odradek.workers.forwarding import upstream
from odradek.workers.net import client_ids
from odradek.workers.net.framing import Pipelined, skip_header_tags

if TYPE_CHECKING:
    from odradek.workers.dispatch.api import Api
    from odradek.workers.dispatch.services import Services
    from odradek.workers.net.connection import Connection

log = logging.getLogger(__name__)

_FETCH = 1  # its api key


class Requests:
    """Takes the requests of a worker's connections."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._rows: dict[int, Api] = {}
        self.fetches = 0

    def load(self, rows: dict[int, Api]) -> None:
        """Serve these APIs."""
        self._rows = rows

    def pipelined(self) -> Pipelined:
        """The API whose requests need not wait for each other's answers."""
        (row,) = (row for row in self._rows.values() if row.pipelined)
        assert row.fast_path is not None
        assert row.flexible is not None
        return Pipelined(row.key, row.oldest, row.versions[1], row.flexible, row.fast_path, self._services)

    def name_of(self, key: int) -> str:
        """The name of an API, for messages."""
        row = self._rows.get(key)
        return f"request with api key {key}" if row is None else row.name

    def take(
        self, connection: Connection, key: int, version: int, correlation: int, view: memoryview, head: int, end: int
    ) -> None:
        """Take a request that is not pipelined; its client id begins at `head`."""
        repeated = connection.repeated
        if repeated is not None and key == repeated.key and repeated.take(version, correlation, view, head, end):
            self.fetches += 1
            return
        row = self._rows.get(key)
        if row is None or not row.serves(version):
            if row is not None and row.unsupported is not None:
                client_ids.read(connection, view, head, end)
            self._refuse(connection, row, key, version, correlation)
            return
        body = client_ids.read(connection, view, head, end)
        if row.is_flexible(version):
            body = skip_header_tags(view, body, end)
        if row.fast_path is not None:
            self.fetches += key == _FETCH
            row.fast_path(self._services, connection, version, correlation, view, head, body, end)
            return
        request = Forwarded(
            0, key, version, connection.client_id, connection.host, connection.listener, bytes(view[body:end]),
            str(connection.principal), connection.by_token,
        )  # fmt: skip
        self._pass_on(connection, row, correlation, request)

    def _pass_on(self, connection: Connection, row: Api, correlation: int, request: Forwarded) -> None:
        """Pass the request to the process that answers it: this worker, the coordinator or the controller."""
        services, version = self._services, request.version

        def answer(flags: int, data: bytes) -> None:
            try:
                if flags == upstream.LOST:
                    lost = unavailable.answer(row, version, request.body)
                    flags, data = (forward.OK, lost) if lost is not None else (flags, data)
                self._answered(connection, row, version, correlation, flags, data)
            except Exception:  # without an answer the connection would wait forever
                log.exception("%r: %s v%d: cannot send the response", connection, row.name, version)
                services.drop(connection, "closed after an internal error")

        place = row.place(version, request.body)
        if place == api.WORKER:
            if len(request.body) < api.LARGE:
                dispatch.serve(row, services, request, answer, services.begin)
            else:
                services.begin(dispatch.serving(row, services, request, answer, services.begin))
        else:
            services.send_to(services.coordinator if place == api.COORDINATOR else services.controller, request, answer)

    def _refuse(self, connection: Connection, row: Api | None, key: int, version: int, correlation: int) -> None:
        """Answer an API or version that is not served, where Kafka does; otherwise drop the connection, as it does."""
        if row is not None and row.unsupported is not None:
            self._answered(connection, row, 0, correlation, forward.OK, row.unsupported())
        else:
            self._services.drop(connection, f"unsupported request: api key {key} version {version}")

    def _answered(
        self, connection: Connection, row: Api, version: int, correlation: int, flags: int, body: bytes
    ) -> None:
        """Send the answer of a request and continue behind it."""
        if connection.closed:
            return
        throttle_ms = 0
        if flags == forward.THROTTLED:
            (throttle_ms,), flags, body = I32.unpack_from(body), forward.OK, body[I32.size :]
        if flags != forward.OK:
            self._services.drop(connection, _why(flags, row, version, body))
            return
        quotas = self._services.quotas
        if quotas is not None and not row.between_brokers:
            body = quotas.answered(connection, body, row.throttle_at(version, len(body)), throttle_ms)
        self._services.sender.answer_pieces(connection, [dispatch.frame(row, version, correlation, body)])


def _why(flags: int, row: Api, version: int, body: bytes) -> str:
    """Why a connection must end instead of getting an answer."""
    if flags == forward.CLOSE:
        return f"malformed {row.name} v{version}: {body.decode(errors='replace')}"
    reason = "the process that answers it died" if flags == upstream.LOST else "an internal error"
    return f"{row.name} v{version} was not answered: {reason}"
