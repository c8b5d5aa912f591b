"""What an application has to do for librdkafka when the coordinator moves just after an assignment.

If the coordinator moves between the assignment and the OffsetFetch that follows it, the old one answers, as Apache
Kafka's does, NOT_COORDINATOR without partitions. librdkafka (2.16.0) reports the error, finds the new coordinator and
sends heartbeats to it, but never reads these partitions (https://github.com/confluentinc/librdkafka/issues/5586):
rd_kafka_handle_OffsetFetch does not repeat the request on this error, and nothing takes the partitions off the list
`queried` of rdkafka_assignment.c. It repeats it on COORDINATOR_LOAD_IN_PROGRESS, timeouts and closed connections.
"""

from __future__ import annotations

from typing import Any

_ERRORS = {"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"}
_REPORT = "Failed to fetch committed offsets for 0 partition(s)"


def assign_again(consumer: Any, message: Any) -> None:
    """Assign the consumer's partitions again if `message` is that error; nothing else is excused.

    While brokers give the error, this does not help either: a test that waits for records still fails.
    """
    error = None if message is None else message.error()
    if error is not None and error.name() in _ERRORS and error.str().startswith(_REPORT):
        consumer.assign(consumer.assignment())
