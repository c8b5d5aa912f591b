"""The error of a refused administrative request: one of Kafka's error codes and a message for its sender."""

from __future__ import annotations

_LONGEST = 1000  # characters of a message: a name in it may be longer than a response allows


class ApiError(Exception):
    """A Kafka error code and, where the response has a field for it, a message."""

    def __init__(self, code: int, message: str | None = None) -> None:
        if message is not None and len(message) > _LONGEST:
            message = f"{message[:_LONGEST]}…"
        super().__init__(message or f"error code {code}")
        self.code = code
        self.message = message


Outcomes = dict[tuple[str, int], ApiError | None]  # the result of each partition
