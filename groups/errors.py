"""What a failed append to a log of groups or transactions is called in an answer to a client."""

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
"""What a failed append of offsets is called in an answer to a client."""

STORE_ERRORS = {
    **_UNAVAILABLE,
    **dict.fromkeys(_TOO_LARGE, Error.UNKNOWN_SERVER_ERROR),
    Error.REQUEST_TIMED_OUT: Error.REBALANCE_IN_PROGRESS,
}
"""What a failed append of a group's generation is called in an answer to a client."""


TRANSACTION_ERRORS = {
    **_UNAVAILABLE,
    **dict.fromkeys(_TOO_LARGE, Error.UNKNOWN_SERVER_ERROR),
    Error.REQUEST_TIMED_OUT: Error.COORDINATOR_NOT_AVAILABLE,
}
"""What a failed append of a transaction's state is called in an answer to a client."""


def for_commit(error: Error) -> Error:
    """The code a client gets when its offsets could not be appended because of `error`."""
    return COMMIT_ERRORS.get(error, error)


def for_store(error: Error) -> Error:
    """The code members get when their group could not be stored because of `error`."""
    return STORE_ERRORS.get(error, error)


def for_transaction(error: Error) -> Error:
    """The code a producer gets when its transaction's state could not be appended because of `error`."""
    return TRANSACTION_ERRORS.get(error, error)
