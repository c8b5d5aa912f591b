"""Fetch responses are read in place, with the same result as by kafka-python's decoder."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchResponse

from odradek.pipeline.wire import fetch_response
from odradek.protocol.wire import INT32_MAX, INT64_MAX, WireError

VERSIONS = range(4, FetchResponse.max_version + 1)
OFFSETS = st.integers(-1, INT64_MAX)
CODES = st.integers(-1, 120)
ABORTED = st.none() | st.lists(st.tuples(OFFSETS, OFFSETS), max_size=3)
PARTS = st.lists(
    st.tuples(st.integers(0, INT32_MAX), CODES, OFFSETS, OFFSETS, ABORTED, st.none() | st.binary(max_size=300)),
    max_size=3,
)


def encoded(version: int, throttled: int, error: int, topics: list[list[Any]]) -> bytes:
    """A response by kafka-python, without a header."""
    topic = FetchResponse.FetchableTopicResponse
    rows = [
        topic(
            topic="häuser",
            partitions=[
                topic.PartitionData(
                    partition_index=index, error_code=code, high_watermark=high, last_stable_offset=stable,
                    log_start_offset=7, records=records,
                    aborted_transactions=None if aborted is None else [
                        topic.PartitionData.AbortedTransaction(producer_id=one, first_offset=first)
                        for one, first in aborted
                    ],
                )
                for index, code, high, stable, aborted, records in parts
            ],
        )
        for parts in topics
    ]  # fmt: skip
    answer = FetchResponse(throttle_time_ms=throttled, error_code=error, session_id=3, responses=rows)
    return bytes(answer.encode(version=version))


@given(
    version=st.sampled_from(VERSIONS),
    throttled=st.integers(0, INT32_MAX),
    error=CODES,
    topics=st.lists(PARTS, max_size=2),
)
def test_responses_of_all_versions_are_read(version: int, throttled: int, error: int, topics: list[list[Any]]) -> None:
    found = fetch_response.decode(memoryview(encoded(version, throttled, error, topics)), version)
    assert (found.throttle_time_ms, found.error_code) == (throttled, error if version >= 7 else 0)
    expected = [(*row[:4], row[4] or [], row[5]) for parts in topics for row in parts]
    assert [
        (
            *part[:4],
            [tuple(one) for one in part.aborted_transactions],
            None if part.records is None else bytes(part.records),
        )
        for part in found.partitions
    ] == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_tagged_fields_are_skipped(version: int) -> None:
    parts = [(0, 6, 5, 5, None, b"r")]
    data = encoded(version, 0, 0, [parts])
    if version >= 12:
        data = data[:-1] + b"\2\x09\1t\x0a\0"
    assert fetch_response.decode(memoryview(data), version).partitions[0].error_code == 6


@given(version=st.sampled_from(VERSIONS), parts=PARTS.filter(bool), data=st.data())
def test_cut_and_damaged_responses_are_an_error_or_end_within_the_frame(
    version: int, parts: list[Any], data: st.DataObject
) -> None:
    whole = bytearray(encoded(version, 0, 0, [parts]))
    if data.draw(st.booleans()):
        del whole[data.draw(st.integers(0, len(whole) - 1)) :]
    else:
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = fetch_response.decode(memoryview(whole), version)
    except (WireError, IndexError, struct.error):
        return
    assert sum(len(part.records or b"") for part in found.partitions) <= len(whole)
