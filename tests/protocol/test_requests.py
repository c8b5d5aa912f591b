"""Strings in requests are at most as long as in Kafka, in either encoding; tagged fields are bounded."""

from __future__ import annotations

import random

import pytest

from odradek.protocol import fetch, interbroker, produce
from odradek.protocol.wire import LONGEST_STRING, MOST_ELEMENTS, WireError, pack_uvarint
from odradek.workers.apis import table
from odradek.workers.net.framing import skip_header_tags

from ..fuzz.valid import OddValues, valid_body

COMPACT = [
    (key, version)
    for key, row in table.load_rows().items()
    for version in range(
        row.versions[0], min(row.versions[1], interbroker.message_class(row.name + "Request").max_version) + 1
    )
    if row.handle is not None and row.is_flexible(version)
]


class OfLength(OddValues):
    """One element in each array, no nulls, strings of one length, all numbers 1, which is a valid code everywhere."""

    def __init__(self, length: int) -> None:
        super().__init__(random.Random(1), {}, 0.0)
        self._text = b"x" * length
        self.texts = 0

    def null(self, name: str) -> bool:
        return False

    def text(self, compact: bool) -> bytes:
        self.texts += 1
        return self._text

    def count(self, name: str, depth: int) -> int:
        return 1

    def number(self, bits: int) -> int:
        return 1


@pytest.mark.parametrize(("key", "version"), COMPACT)
def test_compact_string_is_no_longer_than_another(key: int, version: int) -> None:
    row = table.load_rows()[key]
    request = interbroker.message_class(row.name + "Request")
    longest, longer = OfLength(LONGEST_STRING), OfLength(LONGEST_STRING + 1)
    assert row.decode(version, memoryview(valid_body(request, version, longest)))
    body = memoryview(valid_body(request, version, longer))
    if longer.texts:
        with pytest.raises(WireError, match="of length 32768"):
            row.decode(version, body)


# -- Tagged fields count as elements: each takes a microsecond, and 100 MB have room for fifty million


def tagged(count: int) -> bytes:
    """A section of `count` unknown tagged fields."""
    return pack_uvarint(count) + b"\x63\0" * count


def metadata(topics: int, each: bytes, whole: bytes) -> memoryview:
    """Metadata v12 of `topics` topics with the tags `each`, and the tags `whole` of the request."""
    topic = bytes(16) + b"\2t" + each
    return memoryview(pack_uvarint(topics + 1) + topic * topics + b"\0\0" + whole)


def add_partitions(tags: bytes) -> memoryview:
    """AddPartitionsToTxn v3 without topics."""
    return memoryview(b"\2t" + bytes(8) + b"\0\0" + b"\1" + tags)


def test_tagged_fields_and_elements_are_bounded_together() -> None:
    row = table.load_rows()[3]
    assert row.decode(12, metadata(2, tagged(10), tagged(MOST_ELEMENTS - 22)))
    with pytest.raises(WireError, match="65537 elements and tagged fields"):
        row.decode(12, metadata(2, tagged(10), tagged(MOST_ELEMENTS - 21)))
    with pytest.raises(WireError, match="tagged fields"):
        row.decode(12, metadata(60_000, tagged(1), b"\0"))
    with pytest.raises(WireError, match="tagged fields"):
        table.load_rows()[24].decode(3, add_partitions(tagged(MOST_ELEMENTS + 1)))


@pytest.mark.parametrize("where", ["partition", "topic", "whole"])
def test_tagged_fields_of_produce_and_fetch_are_bounded(where: str) -> None:
    at = {name: tagged(MOST_ELEMENTS + 1) if name == where else b"\0" for name in ("partition", "topic", "whole")}
    rows = b"\2" + b"\2t" + b"\2"
    tail = at["partition"] + at["topic"]
    body = b"\0" + bytes(6) + rows + bytes(4) + b"\0" + tail + at["whole"]
    with pytest.raises(WireError, match="more than 65536"):
        produce.parse(memoryview(body), 0, len(body), 9)
    body = bytes(4 * 4 + 1 + 8) + rows + bytes(4 + 4 + 8 + 4 + 8 + 4) + tail + b"\1\1" + at["whole"]
    with pytest.raises(WireError, match="more than 65536"):
        fetch.parse(memoryview(body), 0, len(body), 12)


def test_tagged_fields_of_many_partitions_are_bounded_together() -> None:
    part = bytes(4) + b"\0" + tagged(300)
    body = b"\0" + bytes(6) + b"\2" + b"\2t" + pack_uvarint(301) + part * 300 + b"\0\0"
    with pytest.raises(WireError, match="more than 65536"):
        produce.parse(memoryview(body), 0, len(body), 9)
    part = bytes(4 + 4 + 8 + 4 + 8 + 4) + tagged(300)
    body = bytes(4 * 4 + 1 + 8) + b"\2" + b"\2t" + pack_uvarint(301) + part * 300 + b"\0" + b"\1\1\0"
    with pytest.raises(WireError, match="more than 65536"):
        fetch.parse(memoryview(body), 0, len(body), 12)


def test_tagged_fields_of_a_header_are_bounded() -> None:
    section = memoryview(tagged(MOST_ELEMENTS + 1))
    with pytest.raises(WireError, match="more than 65536"):
        skip_header_tags(section, 0, len(section))
