"""Batches with a valid header and checksum around unreadable records: they are refused, and nothing is stored.

One in the log would stop every consumer of its partition. The error codes are Apache Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ..harness.process import wait_until
from ..harness.wire import Wire
from .admin import create_topic
from .raw.batches import CODEC_BITS, NOW, batch, compress, parse, record, varint
from .raw.calls import fetch, list_offsets, produce, produce_request, producer_id
from .transactions import TRANSACTIONAL, Raw

pytestmark = pytest.mark.live

SERVER_ERROR, INVALID_RECORD = -1, 87
VALUES = [b"one", b"two"]
ROWS = [record(at, value) for at, value in enumerate(VALUES)]
CODECS = ["gzip", "snappy", "lz4", "zstd"]


def raw_record(body: bytes, length: int | None = None) -> bytes:
    """`body` as a record that says it is `length` bytes long."""
    return varint(len(body) if length is None else length) + body


def fields(at: int, *numbers: int, rest: bytes = b"") -> bytes:
    """A record's attributes, timestamp and offset deltas, then `numbers` and `rest`."""
    return raw_record(b"\0\0" + varint(at) + b"".join(map(varint, numbers)) + rest)


# Uncompressed records by their fault; the header counts two.
UNSOUND = {
    "one record less than it counts": ROWS[0],
    "one record more than it counts": b"".join(ROWS) + record(2, b"three"),
    "bytes behind the last record": b"".join(ROWS) + b"\0",
    "nothing but zeros": bytes(30),
    "no records": b"",
    "text": b"this is no record at all, nor two of them",
    "a record longer than what is there": ROWS[0] + raw_record(b"\0\0\2\1\6two\0", 200),
    "a record cut short": b"".join(ROWS)[:-1],
    "a record of no length": ROWS[0] + raw_record(b"", 0),
    "a record of negative length": ROWS[0] + raw_record(b"\0\0\2\1\6two\0", -9),
    "a key longer than its record": ROWS[0] + fields(1, 100, 0, 0, rest=b"key"),
    "a value longer than its record": ROWS[0] + fields(1, -1, 100, rest=b"value\0"),
    "a value shorter than its record": ROWS[0] + fields(1, -1, 2, rest=b"value\0"),
    "a record longer than its fields": ROWS[0] + fields(1, -1, 3, rest=b"two\0\0"),
    "a record longer by all of the next": raw_record(ROWS[0][1:], len(ROWS[0]) - 1 + len(ROWS[1])) + ROWS[1],
    "headers that are not there": ROWS[0] + fields(1, -1, 3, rest=b"two\x06"),
    "a negative number of headers": ROWS[0] + fields(1, -1, 3, rest=b"two\1"),
    "a header without a key": ROWS[0] + fields(1, -1, 3, rest=b"two\2\1\1"),
    "a header longer than its record": ROWS[0] + fields(1, -1, 3, rest=b"two\2\2h\x20x"),
    "a varint that does not end": ROWS[0] + raw_record(b"\0" + b"\xff" * 12 + b"\2\1\6two\0"),
    "a time of more than 64 bits": ROWS[0] + raw_record(b"\0" + varint((1 << 63) - 1) + b"\2\1\6two\0"),
    "a length of six bytes": ROWS[0] + b"\x94\x80\x80\x80\x80\0" + ROWS[1][1:],
}
# Under compression Kafka skips keys, values and headers by their lengths and does not compare them with the record's.
UNSEEN_BY_KAFKA_INSIDE = (
    "a record longer", "a record of negative", "a key longer", "a value longer", "a value shorter", "headers that are",
    "a header longer",
)  # fmt: skip
# Kafka answers UNKNOWN_SERVER_ERROR to the first; it takes the timestamp of the second for one before 1970.
OTHERWISE_IN_KAFKA = ("a length of six bytes", "a time of more than")


def dependent_lz4(data: bytes) -> bytes:
    """An lz4 frame whose blocks depend on one another: Kafka's clients do not read it."""
    import cramjam

    packer = cramjam.lz4.Compressor(content_checksum=False, block_linked=True)
    packer.compress(data)
    return bytes(packer.finish())


def packed(codec: str, payload: bytes, **named: Any) -> bytes:
    """A batch of two records that are `payload`, compressed already."""
    return batch(VALUES, payload=payload, attributes=named.pop("attributes", 0) | CODEC_BITS[codec], **named)


Maker = Callable[..., bytes]


def _uncompressed(body: bytes) -> Maker:
    return lambda **named: batch(VALUES, payload=body, **named)


def _inside(codec: str, body: bytes) -> Maker:
    return lambda **named: packed(codec, compress(codec, body), **named)


def _packed(codec: str, payload: bytes) -> Maker:
    return lambda **named: packed(codec, payload, **named)


def poisons() -> Iterator[tuple[str, Maker, int]]:
    """Name, function that makes the batch from further header fields, Kafka's error code."""
    for name, body in UNSOUND.items():
        yield name, _uncompressed(body), INVALID_RECORD
    for codec in CODECS:
        for name, body in UNSOUND.items():
            yield f"{name}, {codec}", _inside(codec, body), INVALID_RECORD
        yield f"garbage, {codec}", _packed(codec, b"\x1f\x8bthis is no compressed data at all"), SERVER_ERROR
        yield f"cut short, {codec}", _packed(codec, compress(codec, b"".join(ROWS))[:-9]), SERVER_ERROR
    yield "dependent blocks, lz4", _packed("lz4", dependent_lz4(b"".join(ROWS))), SERVER_ERROR


POISONS = {name: (make, code) for name, make, code in poisons()}
SOME = [
    "one record less than it counts", "bytes behind the last record", "a record longer than what is there",
    "garbage, gzip", "garbage, snappy", "garbage, lz4", "garbage, zstd", "dependent blocks, lz4",
    "one record more than it counts, zstd",
]  # fmt: skip


@pytest.fixture
def wire(broker: Any) -> Iterator[Wire]:
    with broker.wire() as connection:
        yield connection


@pytest.fixture(scope="module")
def topic(broker: Any) -> str:
    """One topic for all faults: a batch that one test leaves in the log fails the next test."""
    return create_topic(broker)


def end(wire: Wire, topic: str, partition: int = 0) -> int:
    return int(list_offsets(wire, topic, -1, partition=partition).offset)


def read(wire: Wire, topic: str, offset: int = 0, partition: int = 0) -> list[bytes | None]:
    return [row.value for row in parse(fetch(wire, topic, offset, partition=partition).records)]


@pytest.mark.parametrize("name", POISONS)
def test_unreadable_batch_is_refused(broker: Any, wire: Wire, topic: str, name: str) -> None:
    """Alone, and after a good request to the same partition."""
    if broker.external and name.startswith(OTHERWISE_IN_KAFKA + (UNSEEN_BY_KAFKA_INSIDE if "," in name else ())):
        pytest.skip("Kafka stores it, or has another code for it")
    make, code = POISONS[name]
    before = end(wire, topic)
    answers = [produce(wire, topic, data).error_code for data in (make(), batch([b"good"]), make())]
    assert answers == [code, 0, code]
    assert end(wire, topic) == before + 1
    assert read(wire, topic, before) == [b"good"]


@pytest.mark.parametrize("count", [10, 100, 9000])
def test_batch_with_one_unreadable_record_is_refused(wire: Wire, topic: str, count: int) -> None:
    """One byte differs and makes the length of one value too short, in small and large requests."""
    values = [b"v" * 50] * count
    rows = [record(at, value) for at, value in enumerate(values)]
    for at in {0, count // 2, count - 1}:
        before = end(wire, topic)
        broken = b"".join(rows[:at]) + rows[at].replace(b"\x01\x64v", b"\x01\x62v") + b"".join(rows[at + 1 :])
        assert produce(wire, topic, batch(values, payload=broken)).error_code == INVALID_RECORD
        assert produce(wire, topic, batch(values)).base_offset == before
        assert end(wire, topic) == before + count


@pytest.mark.parametrize("name", SOME)
def test_unreadable_batches_pipelined_with_good_ones_are_refused(broker: Any, wire: Wire, name: str) -> None:
    """The requests of each version begin with the same bytes."""
    make, code = POISONS[name]
    topic = create_topic(broker)
    for version in (7, 9, 11):
        before = end(wire, topic)
        asked = [
            produce_request(topic, make() if at % 3 == 1 else batch([b"%d" % at]), acks=1, version=version)
            for at in range(9)
        ]
        for request in asked:
            wire.put(request)
        found = [wire.take(request).responses[0].partition_responses[0].error_code for request in asked]
        assert found == [0, code, 0] * 3
        assert read(wire, topic, before) == [b"0", b"2", b"3", b"5", b"6", b"8"]


@pytest.mark.parametrize("name", SOME)
def test_unreadable_batch_does_not_affect_other_partitions(broker: Any, wire: Wire, name: str) -> None:
    from kafka.protocol.producer import ProduceRequest as Request

    make, code = POISONS[name]
    topic = create_topic(broker, partitions=3)
    row = Request.TopicProduceData
    parts = [
        row.PartitionProduceData(index=at, records=data)
        for at, data in ((0, batch([b"first"])), (1, make()), (2, batch([b"last"])))
    ]
    asked = Request[7](
        transactional_id=None, acks=-1, timeout_ms=9000, topic_data=[row(name=topic, partition_data=parts)]
    )
    answer = wire.call(asked)
    assert {p.index: p.error_code for p in answer.responses[0].partition_responses} == {0: 0, 1: code, 2: 0}
    assert [read(wire, topic, partition=at) for at in range(3)] == [[b"first"], [], [b"last"]]


@pytest.mark.parametrize("name", SOME)
def test_unreadable_batch_of_an_idempotent_producer_takes_no_sequence(broker: Any, wire: Wire, name: str) -> None:
    """A good batch with the same sequence is stored afterwards."""
    make, code = POISONS[name]
    topic, (producer, epoch) = create_topic(broker), producer_id(wire)
    for sequence in (0, 2):
        mine: dict[str, Any] = {"producer": producer, "epoch": epoch, "sequence": sequence}
        assert produce(wire, topic, make(**mine)).error_code == code
        good = produce(wire, topic, batch(VALUES, **mine))
        assert (good.error_code, good.base_offset) == (0, sequence)
    assert read(wire, topic) == VALUES * 2


@pytest.mark.parametrize("name", SOME)
def test_transaction_continues_after_an_unreadable_batch(broker: Any, wire: Wire, name: str) -> None:
    make, code = POISONS[name]
    topic, producer = create_topic(broker), Raw(wire)
    assert producer.add(topic) == [0]
    for _ in range(2):
        mine: dict[str, Any] = {"producer": producer.id, "epoch": producer.epoch, "sequence": producer.sequence}
        data = make(attributes=TRANSACTIONAL, **mine)
        assert produce(wire, topic, data, transactional_id=producer.name).error_code == code
        assert producer.write(topic, *VALUES).error_code == 0
    assert producer.end() == 0
    wait_until(lambda: list_offsets(wire, topic, -1, isolation=1).offset == 5, what="the transaction is over")
    assert [row.value for row in parse(fetch(wire, topic, 0).records)][:4] == VALUES * 2


def test_unreadable_batch_with_acks_zero_closes_the_connection(broker: Any, wire: Wire, topic: str) -> None:
    before = end(wire, topic)
    with broker.wire() as other:
        other.put(produce_request(topic, POISONS["garbage, lz4"][0](), acks=0))
        assert other.closed_by_peer()
    assert end(wire, topic) == before


def test_wrong_max_timestamp_is_corrected(broker: Any, wire: Wire) -> None:
    """Retention goes by it: a max timestamp in the far future would keep its segment for ever."""
    topic = create_topic(broker)
    good = batch(VALUES)
    for codec in ("none", "lz4"):
        payload = b"".join(ROWS) if codec == "none" else compress(codec, b"".join(ROWS))
        lie = batch([b""] * 3, step=1 << 40, count=2, last_delta=1, payload=payload, attributes=CODEC_BITS[codec])
        before = end(wire, topic)
        assert produce(wire, topic, lie).error_code == 0
        stored = fetch(wire, topic, before).records
        assert stored[35:43] == good[35:43] == NOW.to_bytes(8, "big")
        assert [row.timestamp for row in parse(stored)] == [NOW, NOW]


def test_batches_of_trusted_producers_are_stored_unchecked(broker: Any, wire: Wire) -> None:
    """The topic config `odradek.producers.trusted` disables the check; without it the check is back."""
    if broker.external:
        pytest.skip("a setting of ours")
    topic = create_topic(broker, odradek_producers_trusted="true")
    for number, name in enumerate(SOME):
        answer = produce(wire, topic, POISONS[name][0]())
        assert (answer.error_code, answer.base_offset) == (0, 2 * number), name
    assert produce(wire, topic, batch([b"good"])).error_code == 0
    assert read(wire, topic, 2 * len(SOME)) == [b"good"]
    alter_topic(wire, topic, {"odradek.producers.trusted": "false"})
    wait_until(
        lambda: produce(wire, topic, POISONS[SOME[0]][0]()).error_code == INVALID_RECORD, what="the check is back"
    )


def alter_topic(wire: Wire, topic: str, configs: dict[str, str]) -> None:
    from kafka.protocol.admin import IncrementalAlterConfigsRequest as Request

    resource = Request.AlterConfigsResource
    rows = [resource.AlterableConfig(name=key, config_operation=0, value=value) for key, value in configs.items()]
    answer = wire.call(
        Request[0](resources=[resource(resource_type=2, resource_name=topic, configs=rows)], validate_only=False)
    )
    assert answer.responses[0].error_code == 0, answer
