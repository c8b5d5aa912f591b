"""`__consumer_offsets` records: golden bytes, Java's hash, damaged input."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.groups.fields import RecordError
from odradek.groups.records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    decode_group_value,
    decode_key,
    decode_offset_value,
    group_key,
    group_value,
    java_hash,
    offset_key,
    offset_value,
    partition_for,
)

TEXT = st.text(max_size=20)
I32, I64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
MEMBER = MemberValue("m-1", "i", "c", "/127.0.0.1", 300_000, 45_000, b"sub", b"part")


@pytest.mark.parametrize(
    ("text", "value"),
    # from java.lang.String.hashCode
    [
        ("", 0),
        ("a", 97),
        ("group", 98629247),
        ("polygenelubricants", -(1 << 31)),
        ("ß😀", 1987202),
        ("my-group", -1906497762),
    ],
)
def test_hash_equals_javas(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_smallest_hash_goes_to_partition_0() -> None:
    assert partition_for("polygenelubricants", 50) == 0


@given(TEXT, st.integers(1, 1000))
def test_partition_of_a_group_exists(group: str, partitions: int) -> None:
    assert 0 <= partition_for(group, partitions) < partitions


def test_keys_equal_golden_bytes() -> None:
    assert offset_key("g", "t", 3) == b"\0\1\0\1g\0\1t\0\0\0\3"
    assert group_key("g") == b"\0\2\0\1g"


def test_offset_values_equal_golden_bytes() -> None:
    assert offset_value(OffsetValue(9, 2, "md", 5)) == (
        b"\0\3" + (9).to_bytes(8, "big") + b"\0\0\0\2" + b"\0\2md" + (5).to_bytes(8, "big")
    )
    assert offset_value(OffsetValue(9, 2, "md", 5, 6)) == (
        b"\0\1" + (9).to_bytes(8, "big") + b"\0\2md" + (5).to_bytes(8, "big") + (6).to_bytes(8, "big")
    )


def test_group_value_equals_golden_bytes() -> None:
    value = GroupValue("consumer", 4, "range", "m-1", 7, (MEMBER,))
    assert group_value(value) == (
        b"\0\3\0\x08consumer\0\0\0\4\0\5range\0\3m-1" + (7).to_bytes(8, "big") + b"\0\0\0\1"
        b"\0\3m-1\0\1i\0\1c\0\x0a/127.0.0.1\x00\x04\x93\xe0\x00\x00\xaf\xc8\0\0\0\3sub\0\0\0\4part"
    )


def test_older_and_flexible_values_are_read() -> None:
    eight = (9).to_bytes(8, "big")
    assert decode_offset_value(b"\0\0" + eight + b"\0\2md" + eight) == OffsetValue(9, -1, "md", 9)
    assert decode_offset_value(b"\0\2" + eight + b"\0\2md" + eight) == OffsetValue(9, -1, "md", 9)
    tagged = b"\1\0\x10" + bytes(16)  # Kafka 4.1 adds the topic's id as a tagged field
    assert decode_offset_value(b"\0\4" + eight + b"\0\0\0\1\3md" + eight + tagged) == OffsetValue(9, 1, "md", 9)
    member = b"\0\1m\0\1c\0\1h\0\0\0\5\0\0\0\0\0\0\0\0"
    v0 = decode_group_value(b"\0\0\0\1c\0\0\0\1\xff\xff\xff\xff\0\0\0\1" + member)
    assert v0.members == (MemberValue("m", None, "c", "h", 5, 5, b"", b""),) and v0.protocol is None
    flexible = b"\0\4\2c\0\0\0\1\2p\2m" + eight + b"\2\2m\0\2c\2h\0\0\0\6\0\0\0\5\2s\2a\0\0"
    assert decode_group_value(flexible) == GroupValue(
        "c", 1, "p", "m", 9, (MemberValue("m", None, "c", "h", 6, 5, b"s", b"a"),)
    )


@given(TEXT, TEXT, I32, st.builds(OffsetValue, I64, I32, TEXT, I64, st.just(-1)))
def test_offset_round_trip(group: str, topic: str, partition: int, value: OffsetValue) -> None:
    assert decode_key(offset_key(group, topic, partition)) == OffsetKey(group, topic, partition)
    assert decode_offset_value(offset_value(value)) == value


members = st.builds(MemberValue, TEXT, st.none() | TEXT, TEXT, TEXT, I32, I32, st.binary(), st.binary())


@given(
    TEXT,
    st.builds(GroupValue, TEXT, I32, st.none() | TEXT, st.none() | TEXT, I64, st.lists(members, max_size=3).map(tuple)),
)
def test_group_round_trip(group: str, value: GroupValue) -> None:
    assert decode_key(group_key(group)) == GroupKey(group)
    assert decode_group_value(group_value(value)) == value


@pytest.mark.parametrize("decode", [decode_key, decode_offset_value, decode_group_value])
@given(data=st.binary(max_size=60))
def test_damaged_value_raises_record_error_or_decodes(decode: Callable[[bytes], object], data: bytes) -> None:
    try:
        decode(data)
    except RecordError:
        pass


@pytest.mark.parametrize("version", [3, 10, 100])
def test_keys_of_other_kinds_are_ignored(version: int) -> None:
    assert decode_key(version.to_bytes(2, "big") + b"\0\1g") is None


def test_values_of_later_versions_are_refused() -> None:
    with pytest.raises(RecordError):
        decode_offset_value(b"\0\5" + bytes(40))
