"""Handles requests other than Produce: finds the row of the API and the process that answers, and sends the answer.

`workers.fetch.fetching` and its fast paths answer Fetch; other requests are decoded and dispatched here or forwarded
to the coordinator or the controller, whose answer arrives as an event of the loop.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from odradek.ipc import forward
from odradek.ipc.forward import Forwarded
from odradek.workers.dispatch import api, dispatch, unavailable, upstream
from odradek.workers.net.loop import skip_header_tags

if TYPE_CHECKING:
    from odradek.workers.dispatch.api import Api
    from odradek.workers.net.connection import Connection
    from odradek.workers.worker import Worker

log = logging.getLogger(__name__)


class Requests:
    """Takes the requests of a worker's connections."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._rows: dict[int, Api] = {}
        self.fetches = 0

    def load(self) -> None:
        """Import the API files."""
        self._rows = api.served(bool(self._worker.config["zookeeper.connect"]))

    def take(
        self, connection: Connection, key: int, version: int, correlation: int, view: memoryview, at: int, end: int
    ) -> None:
        """Take a request other than Produce; its client id begins at `at`. The connection waits for the answer."""
        standing = connection.standing
        if standing is not None and key == 1 and standing.again(version, correlation, view, at, end):
            self.fetches += 1
            return
        row = self._rows.get(key)
        if row is None or not row.serves(version):
            if key == 18:
                self._answer_fallback(connection, correlation)
            else:
                self.unsupported(connection, key, version)
            return
        connection.request_name = row.name
        body = _client_id(connection, view, at, end)
        if row.is_flexible(version):
            body = skip_header_tags(view, body, end)
        connection.waiting = True
        if row.raw is not None:
            self.fetches += 1
            row.raw(self._worker, connection, version, correlation, view, at, body, end)
            return
        asked = Forwarded(
            0, key, version, connection.client_id, connection.host, connection.listener, bytes(view[body:end])
        )
        self._pass_on(connection, row, correlation, asked)

    def _pass_on(self, connection: Connection, row: Api, correlation: int, asked: Forwarded) -> None:
        """Pass the request to the process that answers it: this worker, the coordinator or the controller."""
        worker, version = self._worker, asked.version

        def answer(flags: int, data: bytes) -> None:
            try:
                if flags == upstream.LOST:
                    lost = unavailable.not_coordinator(row, version, asked.body)
                    flags, data = (forward.OK, lost) if lost is not None else (flags, data)
                self._answered(connection, row, version, correlation, flags, data)
            except Exception:  # without an answer the connection would wait forever
                log.exception("%r: %s v%d: cannot send the response", connection, row.name, version)
                worker.drop(connection, "an error of the broker")

        place = row.place(version, asked.body)
        if place == api.WORKER:
            if len(asked.body) < api.LARGE:
                dispatch.serve(row, worker, asked, answer, worker.begin)
            else:
                worker.begin(dispatch.serving(row, worker, asked, answer, worker.begin))
        else:
            worker.ask(worker.coordinator if place == api.COORDINATOR else worker.controller, asked, answer)

    def unsupported(self, connection: Connection, key: int, version: int) -> None:
        """Drop the connection, as Kafka does on an API or version it does not know."""
        self._worker.drop(connection, f"unsupported request: api key {key} version {version}")

    def _answer_fallback(self, connection: Connection, correlation: int) -> None:
        from odradek.workers.apis import k18_api_versions

        row = self._rows[18]
        self._answered(connection, row, 0, correlation, forward.OK, k18_api_versions.fallback())

    def _answered(
        self, connection: Connection, row: Api, version: int, correlation: int, flags: int, body: bytes
    ) -> None:
        """Send the answer of a request and continue behind it."""
        if connection.closing:
            return
        if flags != forward.OK:
            self._worker.drop(connection, _why(flags, row, version, body))
            return
        self._worker.loop.answer_pieces(connection, [dispatch.frame(row, version, correlation, body)])


def _why(flags: int, row: Api, version: int, body: bytes) -> str:
    """Why a connection must end instead of getting an answer."""
    if flags == forward.CLOSE:
        return f"malformed {row.name} v{version}: {body.decode(errors='replace')}"
    reason = "the process that answers it died" if flags == upstream.LOST else "an error of the broker"
    return f"{row.name} v{version} was not answered: {reason}"


def _client_id(connection: Connection, view: memoryview, at: int, end: int) -> int:
    """Record the client id; returns the position behind it."""
    length = int.from_bytes(view[at : at + 2], "big", signed=True)
    at += 2
    if length < 0:
        return at
    if at + length > end:
        raise ValueError("client id runs past its frame")
    if connection.client_id is None:
        connection.client_id = bytes(view[at : at + length]).decode("utf-8", "replace")
    return at + length
