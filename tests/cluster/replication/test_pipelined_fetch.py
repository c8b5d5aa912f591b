"""When a follower may ask for what is behind records that are not in its log yet."""

from __future__ import annotations

import pytest

from odradek.cluster.replication.pipelined_fetch import PendingAppend, beyond
from odradek.protocol.fetch import FetchPartition

KEY = (b"t" * 16, 0)
ASKED = FetchPartition(*KEY, 3, 10, 1, 4, 100)


@pytest.mark.parametrize("hw", [16, 17, 1000])
def test_below_the_high_watermark(hw: int) -> None:
    assert beyond(ASKED, PendingAppend(KEY, 15, 2, hw)) == FetchPartition(*KEY, 3, 15, 2, 4, 100), (
        "and all else as it is"
    )


@pytest.mark.parametrize("hw", [-1, 0, 10, 14, 15])
def test_at_the_high_watermark_or_above_it(hw: int) -> None:
    assert beyond(ASKED, PendingAppend(KEY, 15, 2, hw)) is None, "it would let the follower join the ISR"


@pytest.mark.parametrize("end", [9, 10])
def test_nothing_has_come(end: int) -> None:
    assert beyond(ASKED, PendingAppend(KEY, end, 2, 1000)) is None


def test_records_without_an_epoch() -> None:
    assert beyond(ASKED, PendingAppend(KEY, 15, -1, 1000)) is None, "the log keeps the epoch that it knows"
