"""Why the console does not answer: one line that says what to change, with the status of HTTP."""

from __future__ import annotations


class Refused(Exception):
    """A request that gets no data. `status`: 400 wrong, 403 not allowed, 404 not there, 502 the broker refuses."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status = status


class NotAvro(Exception):
    """Why a key or a value is not shown as Avro; one line."""
