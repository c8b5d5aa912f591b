"""The last stable offset is the log start after retention or DeleteRecords went past an open transaction."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.ipc import slots
from odradek.ipc.slots import SlotState
from odradek.storage.log import trim

from ..clients.raw import calls
from ..harness.wire import decode_response
from .inprocess import Bench, Client
from .leading import produce, publish

READ_COMMITTED, LATEST = 1, -1


@given(st.integers(0, 9), st.integers(0, 9), st.integers(-1, 30))
def test_last_stable_offset_is_between_log_start_and_high_watermark(start: int, more: int, unstable: int) -> None:
    state = SlotState(log_start=start, hw=start + more, unstable=unstable)
    stable = slots.last_stable(state)
    assert start <= stable <= start + more
    assert unstable >= 0 or stable == state.hw
    assert not start <= unstable <= state.hw or stable == unstable


@pytest.fixture
def open_below(bench: Bench, client: Client) -> Bench:
    """Three records; the first belongs to an open transaction, and is deleted."""
    client.send(b"".join(produce(client, [b"v"]) for _ in range(3)))
    client.answers(3)
    publish(bench, unstable=0)
    partition = bench.worker.partition_of(b"t", 0, False)
    assert partition is not None
    with partition.locked() as values:
        trim.advance(partition, values, 2)
    return bench


def test_latest_offset_is_not_below_the_log_start(open_below: Bench) -> None:
    from kafka.protocol.consumer import ListOffsetsRequest as Request

    topic = Request.ListOffsetsTopic
    part = topic.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=LATEST)
    asked = Request[5](
        replica_id=-1, isolation_level=READ_COMMITTED, topics=[topic(name="t", partitions=[part])], timeout_ms=0
    )
    client = open_below.connect()
    client.send(client.frame(asked))
    answer: Any = decode_response(asked, client.answers(1)[0]).topics[0].partitions[0]
    assert (answer.error_code, answer.offset) == (0, 2)


def test_last_stable_offset_of_a_fetch_is_not_below_the_log_start(open_below: Bench) -> None:
    asked = calls.session_request([("t", [calls.part(0, 2)])], version=11, wait_ms=0)
    asked.isolation_level = READ_COMMITTED
    client = open_below.connect()
    client.send(client.frame(asked))
    answer: Any = decode_response(asked, client.answers(1)[0]).responses[0].partitions[0]
    assert (answer.error_code, answer.last_stable_offset, answer.log_start_offset) == (0, 2, 2)
