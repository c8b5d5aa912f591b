"""Maps errors of failed appends to group and transaction logs to the error codes that clients get."""

from __future__ import annotations

from odradek.protocol.errors import Error

_UNAVAILABLE = {
    Error.UNKNOWN_TOPIC_OR_PARTITION: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_ENOUGH_REPLICAS: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_LEADER_OR_FOLLOWER: Error.NOT_COORDINATOR,
    Error.KAFKA_STORAGE_ERROR: Error.NOT_COORDINATOR,
}
_TOO_LARGE = (Error.MESSAGE_TOO_LARGE, Error.RECORD_LIST_TOO_LARGE)

COMMIT_ERRORS = {**_UNAVAILABLE, **dict.fromkeys(_TOO_LARGE, Error.INVALID_COMMIT_OFFSET_SIZE)}
"""Error codes for OffsetCommit after a failed append of offsets."""

STORE_ERRORS = {
    **_UNAVAILABLE,
    **dict.fromkeys(_TOO_LARGE, Error.UNKNOWN_SERVER_ERROR),
    Error.REQUEST_TIMED_OUT: Error.REBALANCE_IN_PROGRESS,
}
"""Error codes for members after a failed append of a group's generation."""


TRANSACTION_ERRORS = {
    **_UNAVAILABLE,
    **dict.fromkeys(_TOO_LARGE, Error.UNKNOWN_SERVER_ERROR),
    Error.REQUEST_TIMED_OUT: Error.COORDINATOR_NOT_AVAILABLE,
}
"""Error codes for producers after a failed append of a transaction's state."""


def for_commit(error: Error) -> Error:
    """The code for a client whose offsets could not be appended because of `error`."""
    return COMMIT_ERRORS.get(error, error)


def for_store(error: Error) -> Error:
    """The code for members whose group could not be stored because of `error`."""
    return STORE_ERRORS.get(error, error)


def for_transaction(error: Error) -> Error:
    """The code for a producer whose transaction's state could not be appended because of `error`."""
    return TRANSACTION_ERRORS.get(error, error)
