"""The error codes of groups and transactions, by the names and numbers of the Kafka protocol."""

from __future__ import annotations

import enum


class Error(enum.IntEnum):
    """Codes as they go over the wire; truth value says "something is wrong"."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    UNSTABLE_OFFSET_COMMIT = 88
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    TRANSACTIONAL_ID_NOT_FOUND = 105
    TRANSACTION_ABORTABLE = 120


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
