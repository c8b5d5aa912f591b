"""kafka-python's schemas compared with Apache Kafka's, every API and version that both have, byte for byte.

Its JSON files have `validVersions` from Kafka 4.0's baseline on, but also the fields of the removed versions,
so it serves clients of version 0. This test fails if a release of kafka-python drops these fields.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.library import message_class
from tests.harness import java

JAVA = Path(__file__).with_name("java")
# Kafka's Schema objects omit the byte that marks a null struct (KIP-893); see the golden bytes below.
BY_HAND = {"DescribeTopicPartitionsRequest", "DescribeTopicPartitionsResponse"}
# Written by the generated classes of kafka-clients 3.9.1, version 0: cursor null and set.
GOLDEN = [
    ("DescribeTopicPartitionsRequest", "02027400000007d0ff00"),
    ("DescribeTopicPartitionsRequest", "02027400000007d0010263000000030000"),
    (
        "DescribeTopicPartitionsResponse",
        "00000000020000027400000000000000000000000000000000000200000000000000000000ffffffff0300000001000000020100"
        "020000000401008000000000ff00",
    ),
    (
        "DescribeTopicPartitionsResponse",
        "00000000020000027400000000000000000000000000000000000200000000000000000000ffffffff0300000001000000020100"
        "02000000040100800000000001026e000000090000",
    ),
]


def again(name: str, version: int, data: bytes) -> bytes:
    """`data` decoded and encoded by the library, whether the schema is its own or ours."""
    message = _decoded(message_class(name), version, data)
    if hasattr(type(message), "_header"):
        message._header = None  # a decoded message has no header set, and encode() reads it
    return bytes(message.encode(version=version))


def _decoded(kind: Any, version: int, data: bytes) -> Any:
    flexible = kind.flexible_version_q(version)
    decode = kind._struct.compiled_decode_from(version, compact=flexible, tagged=flexible, data_class=kind)
    message, end = decode(memoryview(data), 0)
    assert end == len(data)
    return message


def known(name: str, version: int) -> bool:
    try:
        return name not in BY_HAND and version <= message_class(name).max_version
    except LookupError:
        return False


@pytest.mark.live
@pytest.mark.parametrize("release", [pytest.param(r, marks=pytest.mark.needs(f"java-{r}")) for r in ("3.9.1", "4.1.0")])
def test_every_version_of_every_api_equals_kafkas(release: str) -> None:
    lines = java.run(release, str(JAVA / "SchemaSamples.java")).stdout.decode().splitlines()
    samples = [line.split(" ") for line in lines]
    tried = [(name, int(version), bytes.fromhex(data)) for name, version, data in samples if known(name, int(version))]
    assert len(tried) > 1000
    wrong = [f"{name} v{version}" for name, version, data in tried if again(name, version, data) != data]
    assert not wrong
    if release == "3.9.1":
        covered = {(name, version) for name, version, _ in tried}
        for name in ("ListOffsets", "OffsetCommit", "OffsetFetch", "DescribeConfigs", "CreateTopics", "DeleteTopics"):
            assert {(name + "Request", 0), (name + "Response", 0)} <= covered


@pytest.mark.parametrize(("name", "data"), GOLDEN)
def test_nullable_structs_equal_kafkas_bytes(name: str, data: str) -> None:
    assert again(name, 0, bytes.fromhex(data)).hex() == data


def test_fields_of_removed_versions_are_kept() -> None:
    """ListOffsets v0 has a maximum number of offsets, and its response a list (0.8)."""
    request = "ffffffff00000001000174000000010000000300000000000000050000000a"
    decoded = message_class("ListOffsetsRequest").decode(bytes.fromhex(request), version=0)
    assert decoded.topics[0].partitions[0].max_num_offsets == 10
    response = message_class("ListOffsetsResponse")
    partition = response.ListOffsetsTopicResponse.ListOffsetsPartitionResponse(
        partition_index=3, error_code=0, old_style_offsets=[7, 0]
    )
    topic = response.ListOffsetsTopicResponse(name="t", partitions=[partition])
    assert bytes(response(topics=[topic]).encode(version=0)).hex() == (
        "00000001" "000174" "00000001" "00000003" "0000" "00000002" "0000000000000007" "0000000000000000"
    )  # fmt: skip
