"""Verifies with another broker's coordinator that a transaction has a partition (KIP-890): AddPartitionsToTxn.

Version 4, verify only, which Apache Kafka's brokers have had since they verify; for other partitions they return
INVALID_TXN_STATE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from odradek.broker.coordinator.broker_channels import BrokerChannels, Watch, by_topic, error_codes, to_error
from odradek.broker.interbroker.link_security import LinkSecurity
from odradek.groups.offsets import TopicPartition
from odradek.groups.transactions.events import Producer
from odradek.protocol import interbroker
from odradek.protocol.errors import Error


class PendingVerification:
    """One producer's transaction and one partition; `done` gets the coordinator's answer. Compared by identity.

    `stale`: a marker of the producer was written to the partition since, so that the answer is outdated.
    """

    __slots__ = ("done", "partition", "producer", "stale")

    def __init__(self, producer: Producer, partition: TopicPartition, done: Callable[[Error], None]) -> None:
        self.producer = producer
        self.partition = partition
        self.done = done
        self.stale = False


class VerificationRequests:
    """The request type (broker_channels.RequestType)."""

    title, api, version = "verification", "AddPartitionsToTxn", 4

    def on_outcome(self, item: PendingVerification, error: Error) -> None:
        """See broker_channels.RequestType."""
        item.done(Error.NETWORK_EXCEPTION if error is Error.NOT_LEADER_OR_FOLLOWER else error)

    def fields(self, items: list[PendingVerification]) -> dict[str, Any]:
        """One row for each transactional id; of two producers with one id, only the one with the later epoch."""
        row = interbroker.message_class(self.api + "Request").AddPartitionsToTxnTransaction
        latest = set(_latest(items).values())
        partitions = by_topic((item.producer, item.partition) for item in items if item.producer in latest)
        transactions = [
            row(
                transactional_id=producer.transactional_id,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                verify_only=True,
                topics=[row.AddPartitionsToTxnTopic(name=name, partitions=rows) for name, rows in topics.items()],
            )
            for producer, topics in partitions.items()
        ]
        return {"transactions": transactions}

    def outcomes(self, items: list[PendingVerification], answer: Any) -> Iterable[tuple[PendingVerification, Error]]:
        """A partition missing from the response, or requested for another producer of the id, is not verified."""
        results, fields = answer.results_by_transaction, ("topic_results", "results_by_partition")
        codes = error_codes(results, "transactional_id", *fields, "partition_error_code")
        latest = _latest(items)
        for item in items:
            name = item.producer.transactional_id
            if latest[name] != item.producer:
                yield item, Error.PRODUCER_FENCED
            else:
                yield item, to_error(answer.error_code or codes.get((name, item.partition), int(Error.NOT_COORDINATOR)))


def _latest(items: list[PendingVerification]) -> dict[str, Producer]:
    """By transactional id: the producer with the latest epoch."""
    found: dict[str, Producer] = {}
    for producer in (item.producer for item in items):
        other = found.setdefault(producer.transactional_id, producer)
        if (producer.id, producer.epoch) > (other.id, other.epoch):
            found[producer.transactional_id] = producer
    return found


class VerificationChannels(BrokerChannels[PendingVerification]):
    """The connections for verification."""

    def __init__(self, config: Any, watch: Watch, security: LinkSecurity | None = None) -> None:
        super().__init__(config, watch, VerificationRequests(), security)
