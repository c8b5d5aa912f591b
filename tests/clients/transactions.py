"""Transactional producers of clients and of raw requests, and the observable state of their transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from ..harness.process import wait_until
from ..harness.wire import Wire
from .admin import unique
from .raw.batches import batch
from .raw.calls import list_offsets, produce

WAIT = 60
TRANSACTIONAL = 0x10


class Confluent:
    """A transactional producer of librdkafka."""

    def __init__(self, broker: Any, name: str, **config: Any) -> None:
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": name, **config}
        self._producer = Producer(settings)
        self._producer.init_transactions(WAIT)
        self.begin = self._producer.begin_transaction

    def send(self, topic: str, value: bytes, partition: int = 0, key: bytes | None = None) -> None:
        self._producer.produce(topic, value, key, partition)

    def flush(self) -> None:
        assert not self._producer.flush(WAIT)

    def commit(self) -> None:
        self._producer.commit_transaction(WAIT)

    def abort(self) -> None:
        self._producer.abort_transaction(WAIT)

    def close(self) -> None:
        del self._producer


class KafkaPython:
    """A transactional producer of kafka-python."""

    def __init__(self, broker: Any, name: str) -> None:
        from kafka import KafkaProducer

        self._producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=name)
        self._producer.init_transactions()
        self.begin = self._producer.begin_transaction
        self.commit = self._producer.commit_transaction
        self.abort = self._producer.abort_transaction

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._producer.send(topic, value, partition=partition)

    def flush(self) -> None:
        self._producer.flush(WAIT)

    def close(self) -> None:
        self._producer.close(5)


def read(broker: Any, topic: str, isolation: str, partition: int = 0) -> list[bytes]:
    """All records that a librdkafka consumer reads up to the end of the partition."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    config = {"group.id": unique("reader"), "enable.partition.eof": True, "isolation.level": isolation}
    config["fetch.wait.max.ms"] = 10  # the end is known after a Fetch without records
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "enable.auto.commit": False, **config})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[bytes] = []
    try:
        while True:
            message = consumer.poll(WAIT)
            assert message is not None, f"{len(found)} records and then nothing"
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            value = message.value()
            assert value is not None
            found.append(value)
    finally:
        consumer.close()


def stable_end(broker: Any, topic: str) -> int:
    with broker.wire() as wire:
        return int(list_offsets(wire, topic, -1, isolation=1).offset)


def await_stable(broker: Any, topic: str) -> None:
    """Wait until no transaction is open in the topic, of a broker or cluster: markers follow the answer to EndTxn."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    latest = {
        TopicPartition(topic, index): OffsetSpec.latest() for index in admin.list_topics(topic).topics[topic].partitions
    }

    def ends(isolation: IsolationLevel) -> dict[int, int]:
        found = admin.list_offsets(latest, isolation_level=isolation)
        return {partition.partition: each.result(WAIT).offset for partition, each in found.items()}

    def settled() -> bool:
        return ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED)

    wait_until(settled, WAIT, f"all transactions in {topic} are over")


class Raw:
    """A transactional producer request by request, over one connection."""

    def __init__(self, wire: Wire, name: str | None = None, timeout_ms: int = 60_000) -> None:
        from kafka.protocol import producer as protocol

        self.wire = wire
        self.protocol = protocol
        self.name = name or unique("raw")
        self.find()
        self.id, self.epoch = self.init(timeout_ms)
        self.sequence = 0

    def find(self) -> None:
        from kafka.protocol.metadata import FindCoordinatorRequest as Request

        wait_until(lambda: self.wire.call(Request[2](key=self.name, key_type=1)).error_code == 0, WAIT, "a coordinator")

    def init(self, timeout_ms: int = 60_000, **fields: Any) -> tuple[int, int]:
        asked = {"producer_id": -1, "producer_epoch": -1, **fields}
        request = self.protocol.InitProducerIdRequest[4](
            transactional_id=self.name, transaction_timeout_ms=timeout_ms, **asked
        )
        answer = self._with_retries(request, lambda answer: answer.error_code)
        assert answer.error_code == 0, answer
        return answer.producer_id, answer.producer_epoch

    def add(self, topic: str, *partitions: int, version: int = 3) -> list[int]:
        request = self.protocol.AddPartitionsToTxnRequest
        answer = self._with_retries(
            request[version](
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[request.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions or [0]))],
            ),
            lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        )
        return [row.partition_error_code for row in answer.results_by_topic_v3_and_below[0].results_by_partition]

    def write(self, topic: str, *values: bytes, partition: int = 0, **options: Any) -> Any:
        data = batch(values, producer=self.id, epoch=self.epoch, sequence=self.sequence, attributes=TRANSACTIONAL)
        self.sequence += len(values)
        return produce(self.wire, topic, data, partition=partition, **{"transactional_id": self.name, **options})

    def end(self, commit: bool = True, version: int = 3) -> int:
        request = self.protocol.EndTxnRequest[version](
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, committed=commit
        )
        return int(self._loaded(request, lambda answer: answer.error_code).error_code)

    def add_offsets(self, group: str) -> int:
        request = self.protocol.AddOffsetsToTxnRequest[3](
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, group_id=group
        )
        return int(self._with_retries(request, lambda answer: answer.error_code).error_code)

    def commit_offset(self, group: str, topic: str, offset: int, version: int = 3, **fields: Any) -> int:
        request = self.protocol.TxnOffsetCommitRequest
        topic_class = request.TxnOffsetCommitRequestTopic
        row = topic_class.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        answer = self._loaded(
            request[version](
                transactional_id=self.name, group_id=group, producer_id=self.id, producer_epoch=self.epoch,
                topics=[topic_class(name=topic, partitions=[row])], **fields,
            ),
            lambda answer: answer.topics[0].partitions[0].error_code,
        )  # fmt: skip
        return int(answer.topics[0].partitions[0].error_code)

    def _with_retries(self, request: Any, code: Callable[[Any], int]) -> Any:
        """Repeat while the markers of the last transaction are being written or the coordinator reads its log."""
        return call_until(self.wire, request, lambda answer: code(answer) not in (14, 51))

    def _loaded(self, request: Any, code: Callable[[Any], int]) -> Any:
        """Repeat while the coordinator reads its log after a start."""
        return call_until(self.wire, request, lambda answer: code(answer) != 14)


def call_until(wire: Wire, request: Any, settled: Callable[[Any], bool]) -> Any:
    """The first answer that is `settled`."""
    answers: list[Any] = []

    def answered() -> bool:
        answers.append(wire.call(request))
        return settled(answers[-1])

    wait_until(answered, WAIT, f"an answer to {type(request).__name__}")
    return answers[-1]


def offsets_of(wire: Wire, group: str, topic: str, stable: bool = False) -> tuple[int, int]:
    """(committed offset, error)."""
    from kafka.protocol.consumer import OffsetFetchRequest as Request

    topics = [Request.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
    request = Request[7](group_id=group, topics=topics, require_stable=stable)
    answer = call_until(wire, request, lambda answer: answer.error_code != 14)  # the coordinator reads its log
    assert answer.error_code == 0, answer
    row = answer.topics[0].partitions[0]
    return row.committed_offset, row.error_code


def state_of(wire: Wire, name: str) -> str:
    from kafka.protocol.admin import DescribeTransactionsRequest as Request

    (found,) = wire.call(Request[0](transactional_ids=[name])).transaction_states
    return str(found.transaction_state)
