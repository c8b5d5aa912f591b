"""The cases in which a follower may fetch records after ones that are not in its log yet."""

from __future__ import annotations

import pytest

from odradek.cluster.replication.pipelined_fetch import PendingAppend, beyond
from odradek.protocol.fetch import FetchPartition

KEY = (b"t" * 16, 0)
ASKED = FetchPartition(*KEY, 3, 10, 1, 4, 100)


@pytest.mark.parametrize("hw", [16, 17, 1000])
def test_fetch_below_the_high_watermark_is_pipelined(hw: int) -> None:
    assert beyond(ASKED, PendingAppend(KEY, 15, 2, hw)) == FetchPartition(*KEY, 3, 15, 2, 4, 100), (
        "all other fields are unchanged"
    )


@pytest.mark.parametrize("hw", [-1, 0, 10, 14, 15])
def test_fetch_at_or_above_the_high_watermark_is_not_pipelined(hw: int) -> None:
    assert beyond(ASKED, PendingAppend(KEY, 15, 2, hw)) is None, "the fetch would let the follower join the ISR"


@pytest.mark.parametrize("end", [9, 10])
def test_fetch_without_new_records_is_not_pipelined(end: int) -> None:
    assert beyond(ASKED, PendingAppend(KEY, end, 2, 1000)) is None


def test_fetch_after_records_without_an_epoch_is_not_pipelined() -> None:
    assert beyond(ASKED, PendingAppend(KEY, 15, -1, 1000)) is None, "the log keeps its epoch"
