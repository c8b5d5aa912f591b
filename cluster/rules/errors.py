"""A refused administrative request: one of Kafka's error codes and a message for its sender."""

from __future__ import annotations

_LONGEST = 1000  # characters of a message: a name in it may be longer than all that a response has room for


class ApiError(Exception):
    """An error code of Kafka's and, where the response has room for one, a message."""

    def __init__(self, code: int, message: str | None = None) -> None:
        if message is not None and len(message) > _LONGEST:
            message = f"{message[:_LONGEST]}…"
        super().__init__(message or f"error code {code}")
        self.code = code
        self.message = message


Outcomes = dict[tuple[str, int], ApiError | None]  # what became of each of some partitions
