"""Apache Kafka's DumpLogSegments accepts every file that mixed traffic creates."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ..clients import records
from ..clients.admin import create_topic
from ..clients.drivers import DRIVERS
from ..clients.raw.batches import NOW, batch, compressed, message, wrapped
from ..clients.raw.calls import produce, producer_id
from ..harness import java

pytestmark = pytest.mark.live

VERSIONS = ["3.9.1", "4.1.0"]
DUMP = "kafka.tools.DumpLogSegments"
# Messages of the tool for a fault, in spite of which it exits with 0.
COMPLAINT = re.compile(
    r"[^\n]*(isvalid: false|Mismatches in|Non-?[cC]onsecutive|not found in|out of order|corrupt|Exception|"
    r"Found \d+ invalid|sanity check (failed|fails)|Could not|ERROR)[^\n]*"
)


@pytest.fixture
def folder(fresh_broker: Any) -> Path:
    """The data directory of a stopped broker that has rolled segments, been killed, and stored all kinds of records."""
    broker = fresh_broker(log_segment_bytes=600_000, log_index_interval_bytes=1000)
    small = create_topic(broker, "small", 2, segment_bytes=5000, index_interval_bytes=200)
    mixed = create_topic(broker, "mixed")
    old = create_topic(broker, "old")
    write(broker, small, mixed, old, 0)
    broker.restart(kill=True)
    write(broker, small, mixed, old, 1)
    broker.restart()
    write(broker, small, mixed, old, 2)
    commit_offsets(broker, mixed)
    broker.stop()
    return broker.data_dir


def write(broker: Any, small: str, mixed: str, old: str, at: int) -> None:
    """Write records of all kinds."""
    with broker.wire() as wire:
        me = producer_id(wire)
        for sequence in range(60):
            data = batch(
                [b"x" * 150], producer=me[0], epoch=me[1], sequence=sequence, timestamp=NOW + 100 * at + sequence
            )
            assert produce(wire, small, data, partition=0).error_code == 0
            assert produce(wire, small, batch([b"y" * 99] * 2), partition=1).error_code == 0
        for codec in records.CODECS[1:]:
            assert produce(wire, mixed, compressed([b"abc" * 100] * 20, codec)).error_code == 0
        for magic in (0, 1):
            assert produce(wire, old, message(b"old", magic=magic), version=magic * 2).error_code == 0
            assert produce(wire, old, wrapped([b"o"] * 9, "gzip", magic=magic), version=magic * 2).error_code == 0
    for codec in records.CODECS:
        numbers = range(at * 1000, at * 1000 + 200)
        DRIVERS["confluent-kafka"].write(broker.bootstrap, mixed, 0, numbers, records.binary, codec)


def commit_offsets(broker: Any, topic: str) -> None:
    """Commit an offset of a group, which creates __consumer_offsets."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "dumped"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    consumer.close()


@pytest.mark.timeout(240)
@pytest.mark.needs("java-3.9.1", "java-4.1.0")
def test_kafkas_tool_accepts_every_file(folder: Path) -> None:
    for version in VERSIONS:
        logs = sorted(str(path) for path in folder.glob("*/*.log"))
        indexes = sorted(str(path) for path in folder.glob("*/*index") if path.stat().st_size)
        snapshots = sorted(str(path) for path in folder.glob("*/*.snapshot"))
        assert len(logs) > 10 and indexes and snapshots, list(folder.iterdir())
        dump(version, "--deep-iteration", "--files", ",".join(logs))
        dump(version, "--index-sanity-check", "--files", ",".join(indexes))
        dump(version, "--files", ",".join(indexes))
        dump(version, "--files", ",".join(snapshots))
        offsets = [path for path in logs if "/__consumer_offsets-" in path]
        assert offsets, "no group offsets"
        output = dump(version, "--offsets-decoder", "--print-data-log", "--files", ",".join(offsets))
        assert "dumped" in output


def dump(version: str, *words: str) -> str:
    """Run the tool; AssertionError for a complaint."""
    done = java.run(version, DUMP, *words)
    output = (done.stdout + done.stderr).decode(errors="replace")
    complaint = COMPLAINT.search(output)
    assert not complaint, f"{version} {words[0]}: {complaint and complaint.group()}"
    return output


@pytest.mark.needs("java-4.1.0")
def test_complaints_of_kafkas_tool_are_recognised(folder: Path) -> None:
    """A changed byte in a log and a wrong position in an index fail the check of the test above."""
    log = max(folder.glob("mixed*/*.log"), key=lambda path: path.stat().st_size)
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(data)
    with pytest.raises(AssertionError):
        dump("4.1.0", "--deep-iteration", "--files", str(log))
    index = max(folder.glob("small*/*0.index"), key=lambda path: path.stat().st_size)
    rows = bytearray(index.read_bytes())
    rows[7] ^= 1
    index.write_bytes(rows)
    with pytest.raises(AssertionError):
        dump("4.1.0", "--files", str(index))
