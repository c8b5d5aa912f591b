"""Histograms of the exporter: no count falls, whatever a worker counts later than the request."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from odradek.broker.exporter.request_times import RequestTimes
from odradek.ipc import latencies, region
from odradek.ipc.latencies import ROW, SEND, TOTAL, WORDS

FETCH, WORKER = 1, 9


@pytest.fixture
def prefix() -> Iterator[str]:
    name = f"/odradek-test{os.getpid()}-"
    yield name
    region.unlink_all(name)


def test_no_count_falls_when_an_answer_has_been_sent(prefix: str) -> None:
    """It took no time until its time was known."""
    words = latencies.open_own(prefix, WORKER, 1)
    times, total, send = RequestTimes(prefix), FETCH * ROW + TOTAL * WORDS, FETCH * ROW + SEND * WORDS
    found = []
    for requests, sent_late in ((10, 0), (10, 1), (11, 1), (20, 3)):
        words[total + 30], words[send + 25] = requests, sent_late
        times.follow(0.0, [WORKER])
        (histogram,) = times.whole(SEND)
        found.append((histogram.ends[0][1], histogram.requests))
    assert found == [(10, 10), (10, 11), (10, 11), (17, 20)]
