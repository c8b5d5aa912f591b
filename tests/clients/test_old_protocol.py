"""Clients of 0.8 to 0.10: message sets of magic 0 and 1 in and out, and the first versions of their requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ..harness.process import wait_until
from ..harness.wire import Wire
from .admin import create_topic, unique
from .raw import batches
from .raw.batches import Parsed
from .raw.calls import fetch, list_offsets, produce, supports

pytestmark = pytest.mark.live

VALUES = [b"one", None, b"", b"three" * 300]
CODECS = ["gzip", "snappy", "lz4"]


@pytest.fixture
def wire(broker: Any) -> Any:
    with broker.wire() as connection:
        if not supports(connection, 1, 0):
            pytest.skip("this broker has no Fetch v0 (Kafka from 4.0 on)")
        yield connection


def values(answer: Any) -> list[bytes | None]:
    assert answer.error_code == 0, answer
    return [record.value for record in batches.parse(answer.records)]


def read_all(wire: Wire, topic: str, version: int) -> list[Parsed]:
    """All records of partition 0; converted to an old format, an answer may hold fewer than there are."""
    found: list[Parsed] = []
    while True:
        at = found[-1].offset + 1 if found else 0
        answer = fetch(wire, topic, at, version=version, wait_ms=100)
        assert answer.error_code == 0, answer
        if at == answer.high_watermark:
            return found
        more = [record for record in batches.parse(answer.records) if record.offset >= at]
        assert more, f"nothing at offset {at} of {answer.high_watermark}"
        found += more


def message_set(magic: int, key: bytes | None = None) -> bytes:
    return b"".join(batches.message(value, key, magic=magic) for value in VALUES)


@pytest.mark.smoke
@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("magic", [0, 1])
def test_message_set_round_trip(broker: Any, wire: Wire, magic: int, version: int) -> None:
    topic = create_topic(broker)
    for base in (0, len(VALUES)):
        answer = produce(wire, topic, message_set(magic, b"k"), version=version)
        assert (answer.error_code, answer.base_offset) == (0, base)
    for old in (0, 1, 2, 3, 4):
        found = read_all(wire, topic, old)
        assert [record.value for record in found] == VALUES * 2, f"Fetch v{old}"
        assert [record.offset for record in found] == list(range(2 * len(VALUES)))
        assert {record.key for record in found} == {b"k"}
        assert {record.magic for record in found} == {0 if old < 2 else 1 if old < 4 else 2}


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_compressed_message_set_round_trip(broker: Any, wire: Wire, codec: str, magic: int) -> None:
    topic = create_topic(broker)
    for base in (0, len(VALUES)):
        answer = produce(wire, topic, batches.wrapped(VALUES, codec, magic=magic), version=min(magic * 2, 2))
        assert (answer.error_code, answer.base_offset) == (0, base)
    for old in (0, 2, 4):
        assert [record.value for record in read_all(wire, topic, old)] == VALUES * 2, f"Fetch v{old}"


def test_snappy_without_xerial_framing_is_accepted(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    data = batches.wrapped(VALUES, "snappy", xerial=False)
    assert produce(wire, topic, data, version=0).error_code == 0
    assert values(fetch(wire, topic, 0, version=2)) == VALUES


@pytest.mark.parametrize("codec", ["none", *CODECS])
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_new_batches_are_converted_for_old_fetchers(broker: Any, wire: Wire, codec: str, version: int) -> None:
    topic = create_topic(broker)
    data = batches.batch(VALUES) if codec == "none" else batches.compressed(VALUES, codec)
    assert produce(wire, topic, data, version=3).error_code == 0
    answer = fetch(wire, topic, 0, version=version)
    assert values(answer) == VALUES
    assert {record.magic for record in batches.parse(answer.records)} == {0 if version < 2 else 1}


def test_timestamps_of_magic_1_are_kept(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker, retention_ms=-1)
    data = batches.message(b"x", magic=1, timestamp=1_234_567_890_123)
    assert produce(wire, topic, data, version=2).error_code == 0
    for version in (2, 4):
        found = batches.parse(fetch(wire, topic, 0, version=version).records)
        assert [record.timestamp for record in found] == [1_234_567_890_123]


def test_a_broken_crc_is_refused(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    for magic in (0, 1):
        data = batches.message(b"x", magic=magic, break_crc=True)
        assert produce(wire, topic, data, version=magic * 2).error_code == 2
    assert fetch(wire, topic, 0, version=2).high_watermark == 0


def test_acks_above_one_are_refused_after_version_0(broker: Any, wire: Wire) -> None:
    """0.8 let a client wait for N replicas; 0.9 removed that, for version 0 too."""
    topic = create_topic(broker)
    for version in (0, 1, 2):
        answer = produce(wire, topic, batches.message(b"x"), version=version, acks=2)
        if version == 0 and answer.error_code == 0:
            continue  # ours keeps 0.8's rule: with one replica, N > 1 means all replicas
        assert answer.error_code == 21, f"Produce v{version}"


def test_list_offsets_v0_returns_offsets_before_a_timestamp(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    assert produce(wire, topic, message_set(0), version=0).error_code == 0
    assert list(list_offsets(wire, topic, -1, version=0).old_style_offsets) == [len(VALUES), 0]
    assert list(list_offsets(wire, topic, -2, version=0).old_style_offsets) == [0]


def test_metadata_v0_describes_brokers_and_topics(broker: Any, wire: Wire) -> None:
    from kafka.protocol.metadata import MetadataRequest as Request

    topic = create_topic(broker, partitions=3)
    answer = wire.call(Request[0](topics=[Request.MetadataRequestTopic(name=topic)]))
    assert [(b.host, b.port) for b in answer.brokers] == [(broker.host, broker.port)]
    assert [(t.error_code, t.name, len(t.partitions)) for t in answer.topics] == [(0, topic, 3)]
    everything = wire.call(Request[0](topics=[]))
    assert topic in {t.name for t in everything.topics}


def test_metadata_v0_creates_topics(broker: Any, wire: Wire) -> None:
    from kafka.protocol.metadata import MetadataRequest as Request

    name = unique("auto")
    asked = Request[0](topics=[Request.MetadataRequestTopic(name=name)])
    codes = [wire.call(asked).topics[0].error_code]
    assert codes[0] in (0, 3, 5)
    wait_until(lambda: wire.call(asked).topics[0].error_code == 0, what="the topic exists")


def test_commit_v0_and_v1_are_read_back(broker: Any, wire: Wire) -> None:
    """Version 0 stored offsets in ZooKeeper; version 1 stores them in `__consumer_offsets`."""
    from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest

    topic, group = create_topic(broker), unique("old-group")
    _find_coordinator(wire, group)
    for version, offset in ((0, 3), (1, 7)):
        if version == 0 and broker.external:
            continue  # Kafka without ZooKeeper refuses it with UNSUPPORTED_VERSION
        row = OffsetCommitRequest.OffsetCommitRequestTopic
        one = row.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, commit_timestamp=-1, committed_metadata="m"
        )
        topics = [row(name=topic, partitions=[one])]
        asked = OffsetCommitRequest[version](
            group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics
        )
        _settled(lambda: wire.call(asked).topics[0].partitions[0].error_code)  # noqa: B023 (called at once)
        wanted = OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
        answer = wire.call(OffsetFetchRequest[version](group_id=group, topics=[wanted]))
        found = answer.topics[0].partitions[0]
        kept = "" if version == 0 else "m"  # ZooKeeper stored the offset alone
        assert (found.error_code, found.committed_offset, found.metadata) == (0, offset, kept)


def _find_coordinator(wire: Wire, group: str) -> None:
    from kafka.protocol.metadata import FindCoordinatorRequest as Request

    _settled(lambda: wire.call(Request[0](key=group)).error_code)


def _settled(call: Callable[[], int]) -> None:
    """Repeat while the coordinator is not available, loading or moved; then expect no error."""
    codes = [14]

    def done() -> bool:
        codes[0] = call()
        return codes[0] not in (14, 15, 16)

    wait_until(done, what="the coordinator answers")
    assert codes == [0]
