"""Markers for partitions that other brokers lead: WriteTxnMarkers (broker.coordinator.broker_channels)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from odradek.broker.coordinator.broker_channels import BrokerChannels, Watch, by_topic, error_codes, to_error
from odradek.groups.offsets import TopicPartition
from odradek.protocol import interbroker
from odradek.protocol.errors import Error

if TYPE_CHECKING:
    from odradek.broker.interbroker.link_security import LinkSecurity
    from odradek.workers.dispatch.coordination import TxnMarkerEntry


class PendingTxn(Protocol):
    """Markers of one transaction in progress (broker.coordinator.txn_markers)."""

    entry: TxnMarkerEntry
    todo: set[TopicPartition]
    in_flight: set[TopicPartition]

    def __hash__(self) -> int: ...


Marker = tuple[PendingTxn, TopicPartition]


class TxnMarkerRequests:
    """The request type (broker_channels.RequestType). `listener(txn, partition, error)` gets each marker's outcome."""

    title, api, version = "markers", "WriteTxnMarkers", 1

    def __init__(self) -> None:
        self.listener: Callable[[Any, TopicPartition, Error], None] = lambda txn, tp, error: None

    def on_outcome(self, item: Marker, error: Error) -> None:
        """See broker_channels.RequestType."""
        self.listener(*item, error)

    def fields(self, items: list[Marker]) -> dict[str, Any]:
        """The request's fields, by transaction and topic."""
        row = interbroker.message_class(self.api + "Request").WritableTxnMarker
        markers = [
            row(
                producer_id=txn.entry.producer_id,
                producer_epoch=txn.entry.epoch,
                transaction_result=txn.entry.commit,
                topics=[row.WritableTxnMarkerTopic(name=name, partition_indexes=rows) for name, rows in topics.items()],
                coordinator_epoch=txn.entry.coordinator_epoch,
            )
            for txn, topics in by_topic(items).items()
        ]
        return {"markers": markers}

    def outcomes(self, items: list[Marker], answer: Any) -> Iterable[tuple[Marker, Error]]:
        """A marker that is not in the response was not written."""
        codes = error_codes(answer.markers, "producer_id", "topics", "partitions", "error_code")
        for txn, tp in items:
            code = codes.get((txn.entry.producer_id, tp), int(Error.UNKNOWN_SERVER_ERROR))
            yield (txn, tp), to_error(code)


class TxnMarkerChannels(BrokerChannels[Marker]):
    """The connections for markers."""

    def __init__(self, config: Any, watch: Watch, security: LinkSecurity | None = None) -> None:
        self.markers = TxnMarkerRequests()
        super().__init__(config, watch, self.markers, security)
