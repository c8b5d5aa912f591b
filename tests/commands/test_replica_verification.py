"""`odradek replica-verification`: a real broker, and the report on replicas that differ."""

from __future__ import annotations

import re
import signal
from typing import Any

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from odradek.broker.commands.replica_verification.compare import Batch, ReplicaResponse, _batches, _compare
from odradek.broker.errors import OdradekError

from .conftest import Run

WHERE = ("t", 3)
REPORT = (
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}: max lag is 0 for partition (\S+) at offset (\d+) among (\d+) partitions\n"
)


def batch(offset: int, *values: bytes) -> bytes:
    """A batch of magic 2 as stored in a log."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for index, value in enumerate(values):
        builder.append(index, 0, None, value, [])
    return offset.to_bytes(8) + bytes(builder.build())[8:]


def message(offset: int, value: bytes) -> bytes:
    """A message of magic 1."""
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 20)
    builder.append(offset, 0, None, value)
    return bytes(builder.build())


def found(*batches: bytes, high_watermark: int = 100) -> ReplicaResponse:
    return ReplicaResponse(high_watermark, list(_batches(b"".join(batches))))


def test_truncated_batches_are_ignored() -> None:
    data = batch(5, b"a", b"b") + batch(7, b"c")
    whole = list(_batches(data))
    assert [one.last_offset for one in whole] == [6, 7]
    assert whole[0].checksum == int.from_bytes(data[17:21])
    assert list(_batches(data[:-1])) == whole[:1]
    assert list(_batches(data[:20])) == list(_batches(b"")) == []


def test_messages_of_old_formats_are_read() -> None:
    data = message(5, b"a") + message(6, b"b")
    assert list(_batches(data)) == [
        Batch(5, int.from_bytes(data[12:16])),
        Batch(6, int.from_bytes(data[len(data) // 2 + 12 : len(data) // 2 + 16])),
    ]


def test_comparison_ends_at_shortest_replica(capsys: pytest.CaptureFixture[str]) -> None:
    one, two, three = batch(5, b"a", b"b"), batch(7, b"c"), batch(8, b"d")
    assert _compare(WHERE, {0: found(one, two, three), 1: found(one, two)}, 5) == 8
    assert _compare(WHERE, {0: found(one, two), 1: found(one, two, high_watermark=7)}, 5) == 7
    assert _compare(WHERE, {0: found(one, two), 1: found()}, 5) == 5
    assert _compare(WHERE, {0: found(one, two)}, 5) == 8
    assert capsys.readouterr().out == ""


def test_different_checksum_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert _compare(WHERE, {0: found(batch(5, b"a")), 2: found(batch(5, b"A")), 4: found(batch(5, b"a"))}, 5) == 6
    told = (
        r".{23}: partition t-3 has unmatched checksum at offset 5; replica 0's checksum \d+; replica 2's checksum \d+"
    )
    assert re.fullmatch(told, capsys.readouterr().out.strip())


def test_different_offsets_end_the_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OdradekError, match="t-3"):
        _compare(WHERE, {0: found(batch(5, b"a")), 1: found(batch(5, b"a", b"b"))}, 5)
    assert "replica 0's offset 5 doesn't match replica 1's offset 6" in capsys.readouterr().out


@pytest.mark.live
def test_replicas_of_a_broker_are_reported_until_ctrl_c(run: Run, start: Any, topic: str) -> None:
    run("console-producer", "--topic", topic, stdin=b"a\nb\nc\n")
    words = ("--topics-include", topic, "--time", "-2", "--report-interval-ms", "300", "--max-wait-ms", "100")
    process = start("replica-verification", *words)
    assert process.stdout.readline().endswith(b": verification process is started\n")
    for _ in range(2):
        reported = re.fullmatch(REPORT, process.stdout.readline().decode())
        assert reported and reported.groups() == (f"{topic}-0", "3", "1")
    run("console-producer", "--topic", topic, stdin=b"d\n")
    while f"{topic}-0 at offset 4 ".encode() not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert b"Traceback" not in process.stderr.read()


@pytest.mark.live
def test_unknown_topic_exits_with_1(run: Run) -> None:
    run("replica-verification", "--topics-include", "nothing", code=1)
