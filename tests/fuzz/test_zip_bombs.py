"""Zip bombs (small batches that unpack to gigabytes) and wrong counts cause a clear error and take no memory.

A worker that decodes records (of a produce, for an old consumer, for a search by time) must not take a gigabyte.
Batches of trusted producers are stored, and the log stays readable.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.records import batch_v2, codecs

from ..clients.admin import create_topic
from ..clients.raw.batches import CODEC_BITS, batch
from ..clients.raw.calls import fetch, list_offsets, produce
from ..harness.broker import Broker
from .background_client import BackgroundClient, broker_with_client
from .zip_bombs import batch_of, message_of

pytestmark = pytest.mark.live

MESSAGE_TOO_LARGE, CORRUPT_MESSAGE, INVALID_RECORD, UNSUPPORTED_CODEC = 10, 2, 87, 76
SIZES = {"gzip": 1 << 30, "snappy": 1 << 30, "lz4": 200 << 20, "zstd": 1 << 30}  # the ratio of lz4 is at most 255
MOST_MIB = 200  # a worker has 40, and may unpack 32 while its decoder holds another 32
TRUSTED: dict[str, Any] = {"odradek_producers_trusted": "true"}
TINY = b"\x0c\0\0\0\0\x01\0"  # the smallest possible record


class Peak:
    """The peak memory of the workers of a broker since this object was created, in MiB."""

    def __init__(self, broker: Broker) -> None:
        self._pids = broker.pids("worker")
        for pid in self._pids:
            Path(f"/proc/{pid}/clear_refs").write_text("5")

    def mib(self) -> int:
        """The peak of the largest worker."""
        lines = [line for pid in self._pids for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
        return max(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) >> 10


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, BackgroundClient]]:
    """A broker and a background client."""
    with broker_with_client(tmp_path_factory.mktemp("bombs")) as both:
        yield both


@pytest.mark.parametrize(
    "config", [{}, {"cleanup_policy": "compact"}, {"compression_type": "gzip"}], ids=["plain", "compact", "gz"]
)
@pytest.mark.parametrize("codec", SIZES)
def test_zip_bomb_is_refused_by_produce(
    world: tuple[Broker, BackgroundClient], codec: str, config: dict[str, Any]
) -> None:
    broker, background = world
    topic = create_topic(broker, "opened", **config)
    peak = Peak(broker)
    with broker.wire(30) as wire:
        answer = produce(wire, topic, batch_of(codec, SIZES[codec]))
        assert answer.error_code == MESSAGE_TOO_LARGE
        assert produce(wire, topic, batch([b"v"], key=b"k")).base_offset == 0, "the next batch is stored"
    assert peak.mib() < MOST_MIB
    background.await_more(5)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_zip_bomb_in_an_old_message_is_refused(world: tuple[Broker, BackgroundClient], codec: str, magic: int) -> None:
    broker, background = world
    topic = create_topic(broker, "old")
    peak = Peak(broker)
    with broker.wire(30) as wire:
        answer = produce(wire, topic, message_of(codec, SIZES[codec], magic), version=1 + magic)
        assert answer.error_code == MESSAGE_TOO_LARGE
    assert peak.mib() < MOST_MIB
    background.await_more(5)


@pytest.mark.parametrize("codec", SIZES)
def test_stored_zip_bomb_is_not_unpacked_for_consumers(world: tuple[Broker, BackgroundClient], codec: str) -> None:
    """Batches of trusted producers are stored unchecked; old consumers and searches by time need their records."""
    broker, background = world
    topic = create_topic(broker, "stored", **TRUSTED)
    with broker.wire(30) as wire:
        assert produce(wire, topic, batch_of(codec, SIZES[codec])).base_offset == 0
        assert produce(wire, topic, batch([b"v"])).base_offset == 1
        peak = Peak(broker)
        for version in (3, 1):
            answer = fetch(wire, topic, 0, version=version)
            assert (answer.error_code, not answer.records) == (UNSUPPORTED_CODEC, True)
        found = list_offsets(wire, topic, 1)
        assert (found.error_code, found.offset) == (0, 0)
        assert fetch(wire, topic, 1, version=3).error_code == 0, "the batch after the zip bomb"
        assert peak.mib() < MOST_MIB
    background.await_more(5)


def test_memory_is_bounded_when_an_old_consumer_fetches_many_zip_bombs(world: tuple[Broker, BackgroundClient]) -> None:
    """One batch can be converted; all of them in one answer would be gigabytes, and take a worker a minute."""
    broker, background = world
    topic, now = create_topic(broker, "many"), time.time_ns() // 1_000_000
    one = batch_v2.build([(offset, now, None, b"", ()) for offset in range(100_000)], codec=codecs.GZIP)
    with broker.wire(30) as wire:
        for _ in range(60):
            assert produce(wire, topic, one).error_code == 0
        peak = Peak(broker)
        answer = fetch(wire, topic, 0, version=3, partition_bytes=50_000_000)
        assert answer.error_code == 0 and answer.records
        assert peak.mib() < MOST_MIB
    background.await_more(5)


@pytest.mark.parametrize("count", [1_000_000, 4_000_000, (1 << 31) - 1])
def test_batch_with_too_many_records_is_refused(world: tuple[Broker, BackgroundClient], count: int) -> None:
    """Ten kilobytes of such records would keep a worker busy for seconds."""
    broker, background = world
    packed = gzip.compress(TINY * min(count, 4_000_000))
    configs: list[dict[str, Any]] = [{}, TRUSTED, {"cleanup_policy": "compact"}]
    for config in configs:
        topic = create_topic(broker, "tiny", **config)
        with broker.wire(30) as wire:
            lie = batch([None], payload=packed, attributes=CODEC_BITS["gzip"], count=count, last_delta=count - 1)
            assert produce(wire, topic, lie).error_code == MESSAGE_TOO_LARGE
    background.await_more(5)


@pytest.mark.parametrize(
    "topic_config", [{}, TRUSTED, {"cleanup_policy": "compact"}], ids=["plain", "trusted", "opened"]
)
@pytest.mark.parametrize(
    ("count", "last_delta"), [(0, 0), (0, -1), (-1, -2), (1, 5), (6, 0), (2, 1), ((1 << 31) - 1, (1 << 31) - 2)]
)
def test_batch_with_a_wrong_record_count_is_refused(
    world: tuple[Broker, BackgroundClient], count: int, last_delta: int, topic_config: dict[str, Any]
) -> None:
    """The batch has one record. A trusted producer may send a wrong count that the header alone does not show."""
    broker, _ = world
    topic = create_topic(broker, "lies", **topic_config)
    with broker.wire(30) as wire:
        answer: Any = produce(wire, topic, batch([b"v"], key=b"k", count=count, last_delta=last_delta))
        believed = topic_config == TRUSTED and (count, last_delta) == (2, 1)
        assert answer.error_code == (0 if believed else MESSAGE_TOO_LARGE if count > 1 << 17 else INVALID_RECORD)
        good = produce(wire, topic, batch([b"w"], key=b"k"))
        assert (good.error_code, good.base_offset) == (0, 2 if believed else 0)
        assert fetch(wire, topic, good.base_offset).error_code == 0
