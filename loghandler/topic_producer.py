"""A producer for one topic: partitions, leaders, sequence numbers, and one Produce request at a time.

Idempotent as Kafka's own (KIP-98): a batch that is sent again has its first sequence number, so a broker that has it
already says so. A batch that is given up may have arrived or not, and then the next sequence number is unknown: the
producer gets a new id (`forget`). A topic that is created again may lack a partition (`PartitionGone`): the first lines
of `topic_metadata` say when its records may go to others.

Owner: the thread of a Sender; all calls block.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401  # for host names; imported by the thread, a fork at that moment would break it
import time
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from typing import Any

from kafka import errors as kafka_errors
from kafka.partitioner import murmur2
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest

from odradek.loghandler.backlog import Entry
from odradek.loghandler.handler_settings import HandlerSettings
from odradek.loghandler.topic_metadata import NO_ID, TopicMetadata
from odradek.pipeline.wire.connections import Connections
from odradek.pipeline.wire.retries import RetryLater
from odradek.pipeline.wire.settings import Address
from odradek.protocol.errors import Error
from odradek.protocol.records import batch_v2, codecs
from odradek.protocol.wire import INT32_MAX

_TOO_LARGE = (Error.MESSAGE_TOO_LARGE, Error.RECORD_LIST_TOO_LARGE)
_HAS_IT = kafka_errors.DuplicateSequenceNumberError.errno
# Another id helps: the broker has no state of this one, or expects another number.
_OF_THE_ID = (
    Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Error.INVALID_PRODUCER_EPOCH,
    Error.INVALID_PRODUCER_ID_MAPPING,
    kafka_errors.UnknownProducerIdError.errno,
)
# An operator can grant these while records wait.
_OF_RIGHTS = (Error.TOPIC_AUTHORIZATION_FAILED, Error.CLUSTER_AUTHORIZATION_FAILED)
_MAY_BE_STORED = (Error.REQUEST_TIMED_OUT, Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
_ZSTD_VERSION = 7  # of Produce: the first with zstd (KIP-110)
_LAST_VERSION = 12  # the last one with topic names


class TooLarge(Exception):
    """The broker has none of the records, because their batch is too large."""


class Refused(Exception):
    """The broker has none of the records. `name` is Kafka's of the error; `indexes` are the records with faults, if the
    broker names them."""

    def __init__(self, code: int, why: str, indexes: Collection[int]) -> None:
        super().__init__(why)
        self.name = _name(code)
        self.indexes = indexes


class PartitionGone(Exception):
    """The topic has been created again with fewer partitions, and the records have to be divided again."""


class TopicProducer:
    """Connects when it has something to send; `close` ends its connections."""

    def __init__(self, settings: HandlerSettings) -> None:
        self._settings = settings
        self._brokers = Connections(settings.kafka)
        self._topic = TopicMetadata()
        self._asked_at = 0.0  # monotonic seconds
        self._turns = count()
        self._id: tuple[int, int] | None = None
        self._sequences: dict[int, int] = {}  # the next number, by partition

    def close(self) -> None:
        """Close the connections. In a forked child: its copies of them, without a word to the broker."""
        self._brokers.close()

    def forget(self) -> None:
        """A batch was given up: take another producer id for the next one."""
        self._id = None
        self._topic.settled()

    # -- partitions

    def divide(self, entries: Sequence[Entry]) -> list[tuple[int, list[Entry]]]:
        """The records by partition: by the hash of their key, as Kafka's producer has it; those without a key go to one
        partition, the next one at the next call. RetryLater while the topic is not known."""
        leaders = self._known_leaders()
        groups: dict[int, list[Entry]] = {}
        without_key = self._next_partition(leaders)
        for entry in entries:
            by_key = entry.key is not None
            partition = (murmur2(entry.key) & INT32_MAX) % len(leaders) if by_key else without_key
            groups.setdefault(partition, []).append(entry)
        self._topic.divided()
        return list(groups.items())

    def _next_partition(self, leaders: Mapping[int, Address | None]) -> int:
        """One with a leader, in turn."""
        led = sorted(partition for partition, leader in leaders.items() if leader) or sorted(leaders)
        return led[next(self._turns) % len(led)]

    def _known_leaders(self) -> Mapping[int, Address | None]:
        if not self._topic.leaders or time.monotonic() >= self._asked_at + self._settings.metadata_age:
            self._ask_for_leaders()
            self._asked_at = time.monotonic()
        return self._topic.leaders

    def _ask_for_leaders(self) -> None:
        answer = self._brokers.ask_anybody([self._settings.topic], create=True)
        (topic,) = answer.topics
        if topic.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION:
            raise RetryLater("it does not exist: create it, or set auto.create.topics.enable on the brokers")
        if topic.error_code or not topic.partitions:
            raise RetryLater(_explain(topic.error_code or Error.LEADER_NOT_AVAILABLE))
        hosts: dict[int, Address] = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        leaders = {row.partition_index: hosts.get(row.leader_id) for row in topic.partitions}
        self._topic.learn(topic.topic_id or NO_ID, leaders)

    # -- sending

    def send(self, partition: int, entries: Sequence[Entry]) -> None:
        """Return when the broker has acknowledged the records. RetryLater when they may have arrived or not, or have
        not yet; TooLarge and Refused when they have not and will not; PartitionGone when all have to be divided again.
        """
        try:
            self._send(partition, entries)
        except RetryLater:
            self._topic.forget_leaders()  # whatever it was, the leader may be another one
            raise

    def _send(self, partition: int, entries: Sequence[Entry]) -> None:
        leader = self._leader(partition)
        request = self._request(partition, self._batch(partition, entries))
        self._topic.attempt()
        row = self._brokers.call(leader, request).responses[0].partition_responses[0]
        if row.error_code not in _MAY_BE_STORED:
            self._topic.not_stored()
        self._check(row)
        self._topic.settled()
        self._sequences[partition] = self._sequences.get(partition, 0) + len(entries)

    def _leader(self, partition: int) -> Address:
        leaders = self._known_leaders()
        if partition not in leaders:
            if self._topic.may_divide_again():
                raise PartitionGone
            raise RetryLater(f"partition {partition} is not in the metadata, and may have the records")
        leader = leaders[partition]
        if leader is None:
            raise RetryLater(f"partition {partition} has no leader")
        return leader

    def _batch(self, partition: int, entries: Sequence[Entry]) -> bytes:
        records = (
            (offset, entry.timestamp, entry.key, entry.value, entry.headers) for offset, entry in enumerate(entries)
        )
        return batch_v2.build(records, codec=self._settings.codec, **self._producer(partition))

    def _producer(self, partition: int) -> dict[str, int]:
        """The fields of an idempotent batch."""
        if not self._settings.idempotent:
            return {}
        if self._id is None:
            self._id, self._sequences = self._new_id(), {}
        sequence = self._sequences.get(partition, 0) & INT32_MAX  # after the largest number comes 0
        return {"producer_id": self._id[0], "producer_epoch": self._id[1], "base_sequence": sequence}

    def _new_id(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=INT32_MAX, max_version=4)
        answer = self._brokers.call(self._brokers.informant, request)
        if answer.error_code:
            way = ": allow it, or set enable.idempotence=false" if answer.error_code in _OF_RIGHTS else ""
            raise RetryLater(f"no producer id: {_explain(answer.error_code)}{way}")
        return answer.producer_id, answer.producer_epoch

    def _request(self, partition: int, batch: bytes) -> Any:
        part = ProduceRequest.TopicProduceData.PartitionProduceData(index=partition, records=batch)
        return ProduceRequest(
            transactional_id=None,
            acks=self._settings.acks,
            timeout_ms=int(self._settings.request_timeout * 1000),
            topic_data=[ProduceRequest.TopicProduceData(name=self._settings.topic, partition_data=[part])],
            min_version=_ZSTD_VERSION if self._settings.codec == codecs.ZSTD else 3,
            max_version=_LAST_VERSION,
        )

    def _check(self, row: Any) -> None:
        """Raise what the answer for a partition means."""
        code = row.error_code
        if code in (Error.NONE, _HAS_IT):
            return
        if code in _TOO_LARGE:
            raise TooLarge(_explain(code))
        if code in _OF_THE_ID:
            self._id = None
            raise RetryLater(_explain(code))
        if code in _OF_RIGHTS or kafka_errors.for_code(code).retriable:
            raise RetryLater(_explain(code))
        faults = list(row.record_errors or ())
        why = next((one.batch_index_error_message for one in faults), None) or row.error_message or _explain(code)
        raise Refused(code, why, [one.batch_index for one in faults])


def _explain(code: int) -> str:
    """Kafka's name of an error code, and what it means."""
    about = getattr(kafka_errors.for_code(code), "description", None) or ""
    return f"{_name(code)}: {about.partition('. ')[0]}".rstrip(": .")


def _name(code: int) -> str:
    try:
        return Error(code).name
    except ValueError:
        return str(getattr(kafka_errors.for_code(code), "message", None) or code)
