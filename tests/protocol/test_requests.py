"""Strings in requests have the length that records and answers have room for, as in Kafka, whatever the encoding."""

from __future__ import annotations

import random

import pytest
from odradek.protocol import interbroker
from odradek.protocol.wire import LONGEST_STRING, WireError
from odradek.workers import api

from ..fuzz.valid import OddValues, valid_body

COMPACT = [
    (key, version)
    for key, row in api.load_rows().items()
    for version in range(
        row.versions[0], min(row.versions[1], interbroker.message_class(row.name + "Request").max_version) + 1
    )
    if row.raw is None and row.is_flexible(version)
]


class OfLength(OddValues):
    """One element in each array, nothing null, all strings of one length."""

    def __init__(self, length: int) -> None:
        super().__init__(random.Random(1), {}, 0.0)
        self._text = b"x" * length
        self.texts = 0

    def null(self, name: str) -> bool:
        return False

    def text(self, compact: bool) -> bytes:
        self.texts += 1
        return self._text

    def count(self, depth: int) -> int:
        return 1


@pytest.mark.parametrize(("key", "version"), COMPACT)
def test_a_compact_string_is_no_longer_than_another(key: int, version: int) -> None:
    row = api.load_rows()[key]
    request = interbroker.message_class(row.name + "Request")
    longest, longer = OfLength(LONGEST_STRING), OfLength(LONGEST_STRING + 1)
    assert row.decode(version, memoryview(valid_body(request, version, longest)))
    body = memoryview(valid_body(request, version, longer))
    if longer.texts:
        with pytest.raises(WireError, match="of length 32768"):
            row.decode(version, body)
