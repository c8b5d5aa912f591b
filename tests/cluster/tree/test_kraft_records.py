"""Decoding KRaft's metadata records: records of Apache Kafka, truncated and unusual ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cluster.tree import kraft_records
from odradek.cluster.tree.kraft_records import (
    ConfigRecord,
    KeptRecord,
    MetadataRecordError,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    TransactionRecord,
    UnknownRecord,
    ZkMigrationStateRecord,
)

from .. import kraft

SCHEMAS = bytes.fromhex("5de2f4b1933c4df5b5fb65627d8f17f6")
PLAIN = bytes.fromhex("ff160b6b00a14b99b26aa2484a6952ca")
# Values out of metadata logs of Apache Kafka 3.9.1 and 4.1.0 (the longest of them cut to one partition).
GOLDEN = {
    "010200095f736368656d61735de2f4b1933c4df5b5fb65627d8f17f600": TopicRecord("_schemas", SCHEMAS),
    "010301000000005de2f4b1933c4df5b5fb65627d8f17f602000000000200000000010100000000000000000000000002e588e4062da03b3e3a"
    "82cdafa507f1b400": PartitionRecord(SCHEMAS, 0, [0], [0], 0),
    "01040002095f736368656d61730f636c65616e75702e706f6c69637908636f6d7061637400": ConfigRecord(
        2, "_schemas", "cleanup.policy", "compact"
    ),
    "01050200000000ff160b6b00a14b99b26aa2484a6952ca040001010104ffffffff0605020000000007050200000000": (
        PartitionChangeRecord(PLAIN, 0, None, [], elected=True)
    ),
    "010900e94d8376182749808b49cd4b624f773200": RemoveTopicRecord(bytes.fromhex("e94d8376182749808b49cd4b624f7732")),
    "010e0002057573657204626f62001370726f64756365725f627974655f7261746540900000000000000000": KeptRecord(
        "quota", b"\x02\x05user\x04bob\x00\x13producer_byte_rate", False
    ),
    "0112001c8a5140380e4acd9a4dcf23f196218902056b657074030b557365723a616c696365022a030300": KeptRecord(
        "ACL", bytes.fromhex("1c8a5140380e4acd9a4dcf23f1962189"), False
    ),
    "01140000": None,
    "0115000000": ZkMigrationStateRecord(0),
    "01170001001212426f6f747374726170207265636f726473": TransactionRecord("begin"),
    "01180000": TransactionRecord("end"),
    "010c00116d657461646174612e76657273696f6e001500": None,
}


@pytest.mark.parametrize("value", GOLDEN)
def test_records_of_kafka_are_decoded(value: str) -> None:
    assert kraft_records.decode(bytes.fromhex(value)) == GOLDEN[value]


@pytest.mark.parametrize("value", GOLDEN)
def test_truncated_records_are_refused_unless_only_unread_fields_are_cut(value: str) -> None:
    whole = bytes.fromhex(value)
    for length in range(len(whole)):
        try:
            found = kraft_records.decode(whole[:length])
        except MetadataRecordError:
            continue
        assert found == GOLDEN[value]


@given(st.binary(max_size=80))
def test_random_bytes_are_decoded_or_refused(value: bytes) -> None:
    try:
        kraft_records.decode(value)
    except MetadataRecordError as error:
        assert "whole" in str(error) or "version" in str(error) or "null" in str(error)


@given(st.sampled_from([2, 3, 4, 5, 9, 11, 14, 18, 19, 21, 22]), st.binary(max_size=80))
def test_random_fields_are_decoded_or_refused(api_key: int, fields: bytes) -> None:
    try:
        kraft_records.decode(kraft.frame(api_key, fields))
    except MetadataRecordError:
        pass


def test_newer_version_of_a_known_record_is_refused() -> None:
    with pytest.raises(MetadataRecordError, match="version 3 of metadata record 3"):
        kraft_records.decode(kraft.frame(3, b"", version=3))
    with pytest.raises(MetadataRecordError, match="frame version 2"):
        kraft_records.decode(b"\x02\x02\x00")


def test_unknown_record_is_skipped() -> None:
    assert kraft_records.decode(kraft.UNKNOWN) == UnknownRecord(99)


def test_no_error_contains_a_secret() -> None:
    value = kraft.frame(11, kraft.text("alice") + b"\x01" + kraft.text("salt and secret"))
    assert kraft_records.decode(value) == KeptRecord("user", b"\x06alice\x01", False)
    with pytest.raises(MetadataRecordError) as refused:
        kraft_records.decode(kraft.frame(11, b"\x40secret"))
    assert "secret" not in repr(refused.value)


@given(st.binary(max_size=20), st.integers(0, 9))
def test_voters_of_random_bytes_are_a_count_or_none(value: bytes, kind: int) -> None:
    found = kraft_records.voters(kind, value)
    assert found is None or found >= -1


def test_voters_of_an_election_record_of_kafka_are_read() -> None:
    assert kraft_records.voters(2, bytes.fromhex("00000000000002000000000002000000000000")) == 1
