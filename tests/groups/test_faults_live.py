"""An exception in one group: the broker's coordinator process continues, and so do other groups.

No client can cause these states, so they are first written to `__consumer_offsets` and `__transaction_state` as
`__admin_client`, which may do so: the last generation, and an epoch that cannot be fenced.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.groups.events import Record
from odradek.groups.log_writer import build_batch
from odradek.groups.records import GroupValue, OffsetValue, group_key, group_value, offset_key, offset_value
from odradek.groups.transactions import records
from odradek.groups.transactions.states import State
from odradek.groups.transactions.transaction import Metadata

from ..clients.admin import create_named
from ..clients.raw.calls import produce_request
from ..fuzz.background_groups import SUBSCRIPTION, BackgroundGroups, find_coordinator, names
from ..harness.broker import Broker
from ..harness.process import wait_until
from ..harness.wire import Wire

pytestmark = pytest.mark.live

UNKNOWN_SERVER_ERROR, NOT_AVAILABLE, LOADING = -1, 15, 14
LAST = 2**31 - 1


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    one = Broker(tmp_path, offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1)
    try:
        yield one.start()
    finally:
        one.close()


def made(broker: Broker, topic: str) -> None:
    with broker.wire(60) as wire:
        create_named(wire, topic, 1)


def forge(wire: Wire, topic: str, *rows: Record) -> None:
    """Append records as the administrators' client."""
    request = produce_request(topic, build_batch(list(rows), time.time_ns() // 1_000_000))
    request.with_header(correlation_id=1, client_id="__admin_client")
    wire.send_raw(bytes(request.encode(header=True, framed=True)))
    assert wire.take(request).responses[0].partition_responses[0].error_code == 0


def restart_coordinator(broker: Broker) -> int:
    """Kill the coordinator process; return the process id of the next one."""
    (pid,) = broker.await_respawn("coordinator", broker.kill_role("coordinator"))
    return pid


def offset_of(wire: Wire, group: str) -> int | None:
    from kafka.protocol.consumer import OffsetFetchRequest as Request

    try:
        topics = [Request.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        answer = wire.call(Request[7](group_id=group, topics=topics))
    except (OSError, EOFError):
        return None
    return None if answer.error_code else answer.topics[0].partitions[0].committed_offset


def join(wire: Wire, group: str) -> Any:
    from kafka.protocol.consumer import JoinGroupRequest as Request

    protocol = Request.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)
    return wire.call(
        Request[3](
            group_id=group, session_timeout_ms=10_000, rebalance_timeout_ms=1_000, member_id="",
            protocol_type="consumer", protocols=[protocol],
        )
    )  # fmt: skip


def test_group_with_the_last_generation_is_reloaded(broker: Broker) -> None:
    made(broker, "t")
    with broker.wire(60) as wire:
        find_coordinator(wire, "bad")
        rows = [
            (offset_key("bad", "t", 0), offset_value(OffsetValue(5, -1, "", 0))),
            (group_key("bad"), group_value(GroupValue("consumer", LAST, None, None, -1, ()))),
        ]
        forge(wire, "__consumer_offsets", *rows)
    pid = restart_coordinator(broker)
    background = BackgroundGroups(broker, 1)
    with broker.wire(60) as wire, pytest.raises(EOFError):  # the generation fits no answer either
        join(wire, "bad")
    wait_until(lambda: "unexpected error for" in broker.log, 60, "the log line on the failed join")
    with broker.wire(60) as wire:
        wait_until(lambda: offset_of(wire, "bad") == 5, 60, "the reload of the group")
    background.finish()
    assert broker.pids("coordinator") == [pid]
    assert "Traceback" in broker.log


def test_transactional_id_with_the_last_epoch_is_reloaded(broker: Broker) -> None:
    from kafka.protocol.producer import InitProducerIdRequest as Request

    made(broker, "t")
    with broker.wire(60) as wire:
        find_coordinator(wire, "any")
        asked = Request[4](transactional_id="good", transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1)
        find_transactions(wire)
        wait_until(lambda: wire.call(asked).error_code == 0, 60, "a producer id")
        bad = Metadata(7, 0x7FFF, 900_000, State.ONGOING, frozenset({("t", 0)}), 1 << 60, 1 << 60)
        forge(wire, "__transaction_state", (records.key("bad"), records.value(bad)))
    pid = restart_coordinator(broker)
    background = BackgroundGroups(broker, 1)
    with broker.wire(60) as wire:
        find_transactions(wire)
        wait_until(lambda: wire.call(asked).error_code == 0, 60, "the transactional ids to be loaded")
        poison = Request[4](transactional_id="bad", transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1)
        assert wire.call(poison).error_code == UNKNOWN_SERVER_ERROR
        assert wire.call(poison).error_code == LOADING
        assert wire.call(asked).error_code == 0
    background.finish()
    assert broker.pids("coordinator") == [pid]


def find_transactions(wire: Wire) -> None:
    from kafka.protocol.metadata import FindCoordinatorRequest as Request

    wait_until(lambda: wire.call(Request[1](key="x", key_type=1)).error_code == 0, 60, "the transaction coordinator")


def test_partition_with_a_missing_segment_is_unavailable_and_others_serve(broker: Broker) -> None:
    """The log names the partition of the three that cannot be read."""
    broker.stop()
    shutil.rmtree(broker.data_dir)
    broker.set(offsets_topic_num_partitions=3)
    broker.start()
    made(broker, "t")
    lost, *others = names(3)
    with broker.wire(60) as wire:
        find_coordinator(wire, lost)
        for group in (lost, *others):
            wait_until(lambda group=group: commit(wire, group) == 0, 60, f"a commit of {group}")  # type: ignore[misc]  # a default in a lambda
    (broker.data_dir / "__consumer_offsets-0" / "00000000000000000000.log").unlink()
    pid = restart_coordinator(broker)
    with broker.wire(60) as wire:
        for group in others:
            wait_until(lambda group=group: offset_of(wire, group) == 7, 60, f"group {group}")  # type: ignore[misc]  # a default in a lambda
        wait_until(lambda: commit(wire, lost) == NOT_AVAILABLE, 60, "the group to be unavailable")
    assert "__consumer_offsets-0 cannot be read" in broker.log
    assert broker.log.count("Restore its files") == 1
    assert broker.pids("coordinator") == [pid]


def commit(wire: Wire, group: str) -> int:
    from kafka.protocol.consumer import OffsetCommitRequest as Request

    topic = Request.OffsetCommitRequestTopic
    row = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    request = Request[5](
        group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=[topic(name="t", partitions=[row])]
    )
    return wire.call(request).topics[0].partitions[0].error_code
