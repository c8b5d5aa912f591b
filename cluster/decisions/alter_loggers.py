"""Changes of a broker's log levels by IncrementalAlterConfigs (KIP-412), as pure functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek.cluster.decisions.alter import APPEND, DELETE, SET, ConfigChange, broker_of
from odradek.cluster.rules.errors import ApiError
from odradek.protocol.errors import INVALID_CONFIG, INVALID_REQUEST

ROOT = "root"
LEVELS = ("DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN")  # log4j's, as Kafka's tools name them


def check_broker(name: str, own: int) -> None:
    """ApiError unless the resource names this broker: no other can change its levels."""
    if broker_of(name, {own: None}) is None:
        raise ApiError(INVALID_REQUEST, "Broker id must not be empty")


def check(changes: Sequence[ConfigChange], exists: Callable[[str], bool]) -> None:
    """ApiError for the first change that Kafka refuses; `exists`: whether there is a logger of this name."""
    for change in changes:
        if change.operation not in (SET, DELETE):
            word = "APPEND" if change.operation == APPEND else "SUBTRACT"
            raise ApiError(INVALID_REQUEST, f"{word} operation is not allowed for the BROKER_LOGGER resource")
        if not exists(change.name):
            raise ApiError(INVALID_CONFIG, f"Logger {change.name} does not exist!")
        _check_value(change)


def levels(changes: Sequence[ConfigChange]) -> dict[str, str | None]:
    """By logger; None: it takes that of its package again."""
    return {change.name: change.value if change.operation == SET else None for change in changes}


def _check_value(change: ConfigChange) -> None:
    if change.operation == DELETE:
        if change.name == ROOT:
            raise ApiError(INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed")
    elif change.value not in LEVELS:
        raise ApiError(
            INVALID_CONFIG,
            f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(LEVELS)}",
        )
