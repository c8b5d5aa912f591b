"""`odradek dump-log` on Kafka's internal topics: the same text as Kafka's own decoders print."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from odradek.broker.commands.dump_log import command, decoders
from odradek.groups import records
from odradek.protocol.records import batch_v2
from tests.harness import java
from tests.storage.logs import write_segment


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def topics(*names: str) -> bytes:
    return struct.pack(">i", len(names)) + b"".join(map(string, names))


def owned(topic: str, *partitions: int) -> bytes:
    return struct.pack(">i", 1) + string(topic) + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)


SUBSCRIPTION = (
    struct.pack(">h", 3) + topics("a", "b") + struct.pack(">i", -1) + owned("a", 0, 1) + struct.pack(">ih", 4, -1)
)
ASSIGNMENT = struct.pack(">h", 1) + owned("a", 2) + struct.pack(">i", 3) + b"xyz"
MEMBER = records.MemberValue("m-1", "i", "client", "/127.0.0.1", 300_000, 45_000, SUBSCRIPTION, ASSIGNMENT)
ODD_MEMBER = MEMBER._replace(member_id="m-2", instance_id=None, subscription=b"\0\0\xff", assignment=b"")

OFFSETS = [
    (records.offset_key("g", "t", 3), records.offset_value(records.OffsetValue(42, 7, "mémo", 1700))),
    (records.offset_key("g", "t", 4), records.offset_value(records.OffsetValue(42, -1, "", 1700, 1800))),
    (records.offset_key("g", "t", 3), None),
    (records.group_key("g"), records.group_value(records.GroupValue("consumer", 5, "range", "m-1", 99, (MEMBER,)))),
    (records.group_key("c"), records.group_value(records.GroupValue("connect", 1, None, None, 9, (ODD_MEMBER,)))),
    (records.group_key("g"), None),
]
TRANSACTION = struct.pack(">hqhib", 0, 4000, 2, 60_000, 1) + owned("t", 5) + struct.pack(">qq", 1700, 1600)
TRANSACTIONS = [
    (struct.pack(">h", 0) + string("tx-1"), TRANSACTION),
    (struct.pack(">h", 0) + string("tx-1"), None),
]


def written(directory: Path, content: list[Any]) -> Path:
    batch = batch_v2.build([(i, 1000, key, value, ()) for i, (key, value) in enumerate(content)])
    return write_segment(directory, 0, [batch])


def lines(path: Path, option: str) -> list[str]:
    return CliRunner().invoke(command, [option, "--files", str(path)], catch_exceptions=False).stdout.splitlines()


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
@pytest.mark.parametrize(
    ("option", "content"), [("--offsets-decoder", OFFSETS), ("--transaction-log-decoder", TRANSACTIONS)]
)
def test_the_lines_are_those_of_kafkas_own_tool(tmp_path: Path, option: str, content: list[Any]) -> None:
    path = written(tmp_path, content)
    done = java.run("3.9.1", "kafka.tools.DumpLogSegments", option, "--files", str(path))
    expected = [line for line in done.stdout.decode().splitlines() if not line.startswith("log4j:")]
    assert lines(path, option) == expected


def test_group_is_shown_with_its_subscriptions(tmp_path: Path) -> None:
    line = lines(written(tmp_path, OFFSETS), "--offsets-decoder")[-3]
    payload = json.loads(line.partition("payload: ")[2])
    (member,) = payload["data"]["members"]
    assert member["subscription"]["ownedPartitions"] == [{"topic": "a", "partitions": [0, 1]}]
    assert member["assignment"]["userData"] == "eHl6"


SHORT = "Error at offset 7, skipping. a key of {} ends too early"


@pytest.mark.parametrize(
    ("key", "offsets", "transactions"),
    [
        (None, SHORT.format("__consumer_offsets"), SHORT.format("__transaction_state")),
        (b"", SHORT.format("__consumer_offsets"), SHORT.format("__transaction_state")),
        (b"\0", SHORT.format("__consumer_offsets"), SHORT.format("__transaction_state")),
        (b"\0\1\0\5ab", "Error at offset 7, skipping. a field of 5 bytes does not fit", "unknown::version=1"),
        (b"\0\x63", "Unknown record type 99 at offset 7, skipping.", "unknown::version=99"),
    ],
)
def test_unknown_keys_are_skipped_with_a_message(key: bytes | None, offsets: str, transactions: str) -> None:
    for decode, message in ((decoders.offsets, offsets), (decoders.transactions, transactions)):
        text, value = decode(7, key, b"\0\0")
        assert text is not None and text.startswith(message)
        assert value is None
