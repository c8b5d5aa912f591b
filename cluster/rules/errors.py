"""A refused administrative request: one of Kafka's error codes and a message for its sender."""

from __future__ import annotations

from odradek.protocol.errors import (
    FENCED_LEADER_EPOCH,
    INVALID_REQUEST,
    INVALID_TOPIC_EXCEPTION,
    LEADER_NOT_AVAILABLE,
    NONE,
    REQUEST_TIMED_OUT,
    SECURITY_DISABLED,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_VERSION,
)

INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_REPLICA_ASSIGNMENT = 39
INVALID_CONFIG = 40
STALE_CONTROLLER_EPOCH = 11
NOT_CONTROLLER = 41
POLICY_VIOLATION = 44
OPERATION_NOT_ATTEMPTED = 55
BROKER_NOT_AVAILABLE = 8
KAFKA_STORAGE_ERROR = 56
LOG_DIR_NOT_FOUND = 57
LISTENER_NOT_FOUND = 72
STALE_BROKER_EPOCH = 77
TOPIC_DELETION_DISABLED = 73
PREFERRED_LEADER_NOT_AVAILABLE = 80
ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
ELECTION_NOT_NEEDED = 84
NO_REASSIGNMENT_IN_PROGRESS = 85
RESOURCE_NOT_FOUND = 91
INVALID_UPDATE_VERSION = 95
INELIGIBLE_REPLICA = 107

__all__ = [
    "BROKER_NOT_AVAILABLE",
    "ELECTION_NOT_NEEDED",
    "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH",
    "INELIGIBLE_REPLICA",
    "INVALID_CONFIG",
    "INVALID_PARTITIONS",
    "INVALID_REPLICATION_FACTOR",
    "INVALID_REPLICA_ASSIGNMENT",
    "INVALID_REQUEST",
    "INVALID_TOPIC_EXCEPTION",
    "INVALID_UPDATE_VERSION",
    "KAFKA_STORAGE_ERROR",
    "LEADER_NOT_AVAILABLE",
    "LISTENER_NOT_FOUND",
    "LOG_DIR_NOT_FOUND",
    "NONE",
    "NOT_CONTROLLER",
    "NO_REASSIGNMENT_IN_PROGRESS",
    "OPERATION_NOT_ATTEMPTED",
    "POLICY_VIOLATION",
    "PREFERRED_LEADER_NOT_AVAILABLE",
    "REQUEST_TIMED_OUT",
    "RESOURCE_NOT_FOUND",
    "SECURITY_DISABLED",
    "STALE_BROKER_EPOCH",
    "STALE_CONTROLLER_EPOCH",
    "TOPIC_ALREADY_EXISTS",
    "TOPIC_DELETION_DISABLED",
    "UNKNOWN_SERVER_ERROR",
    "UNKNOWN_TOPIC_ID",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "UNSUPPORTED_VERSION",
    "ApiError",
    "Outcomes",
]


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
