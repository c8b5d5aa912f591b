"""Fetch: delayed fetches, size limits, fetch sessions (KIP-227), and offset errors."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from odradek.ipc import roles
from odradek.ipc.rundir import shm_prefix
from odradek.ipc.shm import Shared

from ..harness.process import wait_until
from ..harness.wire import Wire
from .admin import create_topic, topic_id, unique
from .raw.batches import batch, parse
from .raw.calls import fetch, fetch_request, part, produce, session_request, supports

pytestmark = pytest.mark.live

OUT_OF_RANGE, UNKNOWN_TOPIC, UNKNOWN_ID = 1, 3, 100
FENCED_EPOCH, UNKNOWN_EPOCH = 74, 76 - 1
NO_SESSION, WRONG_SESSION_EPOCH = 70, 71


@pytest.fixture
def wire(broker: Any) -> Any:
    with broker.wire() as connection:
        yield connection


def fill(wire: Wire, topic: str, batches: int, size: int = 100, partition: int = 0) -> None:
    for at in range(batches):
        value = (b"%d." % at) + b"x" * size
        assert produce(wire, topic, batch([value]), partition=partition).error_code == 0


def await_delayed(broker: Any, count: int) -> None:
    """Wait until exactly `count` fetches are delayed, none of them of an earlier test."""
    if broker.external:  # only JMX shows Kafka's purgatory
        time.sleep(0.3)
        return
    table = Shared.attach(shm_prefix(broker.data_dir)).processes
    workers = range(roles.FIRST_WORKER, roles.ROLES)
    wait_until(
        lambda: sum(table.get(role, "delayed_operations") for role in workers) == count, 20, f"{count} waiting fetches"
    )


@pytest.mark.parametrize("version", range(4, 18))
def test_every_fetch_version_returns_records(broker: Any, wire: Wire, version: int) -> None:
    if not supports(wire, 1, version):
        assert broker.external, f"Fetch v{version} is not answered"
        pytest.skip("not there")
    topic = create_topic(broker)
    fill(wire, topic, 3)
    where = topic_id(wire, topic) if version >= 13 else topic
    answer = fetch(wire, where, 1, version=version)
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 3, 3)
    if version >= 5:
        assert answer.log_start_offset == 0
    assert [r.offset for r in parse(answer.records) if r.offset >= 1] == [1, 2]
    assert fetch(wire, where, 4, version=version, wait_ms=0).error_code == OUT_OF_RANGE


def test_an_empty_partition_answers_after_max_wait(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    request = fetch_request(topic, 0, wait_ms=1000)
    wire.put(request)
    await_delayed(broker, 1)
    answer = wire.take(request).responses[0].partitions[0]
    assert (answer.error_code, answer.high_watermark, bytes(answer.records or b"")) == (0, 0, b"")


def test_no_wait_when_min_bytes_is_zero(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    wire.socket.settimeout(20)
    assert fetch(wire, topic, 0, wait_ms=60_000, min_bytes=0).error_code == 0


def test_an_append_wakes_a_waiting_fetch(broker: Any) -> None:
    """Another worker may serve the producer: the wakeup crosses processes."""
    topic = create_topic(broker)
    waiting = [broker.wire(30) for _ in range(6)]
    asked = [fetch_request(topic, 0, wait_ms=60_000) for _ in waiting]
    for wire, request in zip(waiting, asked, strict=True):
        wire.put(request)
    await_delayed(broker, 6)
    with broker.wire() as wire:
        fill(wire, topic, 1)
    for one, request in zip(waiting, asked, strict=True):
        found = one.take(request).responses[0].partitions[0]
        assert [r.offset for r in parse(found.records)] == [0]
        one.close()


def test_min_bytes_waits_for_enough(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    request = fetch_request(topic, 0, wait_ms=30_000, min_bytes=5_000)
    with broker.wire(40) as waiting:
        waiting.put(request)
        await_delayed(broker, 1)
        fill(wire, topic, 1, 1000)
        fill(wire, topic, 5, 1000)
        answer = waiting.take(request)
    assert len(answer.responses[0].partitions[0].records) >= 5_000


def test_a_waiting_fetch_holds_back_the_requests_after_it(broker: Any, wire: Wire) -> None:
    """A connection has one request in progress: requests after a delayed fetch are answered after it."""
    topic = create_topic(broker)
    delayed = fetch_request(topic, 0, wait_ms=400)
    after = fetch_request(topic, 0, wait_ms=0, min_bytes=0)
    wire.put(delayed)
    wire.put(after)
    assert wire.take(delayed).responses[0].partitions[0].error_code == 0
    assert wire.take(after).responses[0].partitions[0].error_code == 0


def test_partition_limit_yields_at_least_one_batch(broker: Any, wire: Wire) -> None:
    """KIP-74: the first batch comes whole even when it is larger than every limit."""
    topic = create_topic(broker)
    fill(wire, topic, 3, 1000)
    for limits in ({"partition_bytes": 1}, {"max_bytes": 1}, {"partition_bytes": 1, "max_bytes": 1}):
        records = fetch(wire, topic, 1, **limits).records
        assert [r.offset for r in parse(records)] == [1], limits


def test_limits_are_upper_bounds(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    fill(wire, topic, 20, 1000)
    size = len(fetch(wire, topic, 0, partition_bytes=1).records)
    for limits in ({"partition_bytes": 5 * size}, {"max_bytes": 5 * size}):
        answer = fetch(wire, topic, 0, **limits)
        assert len(answer.records) <= 5 * size
        assert [r.offset for r in parse(answer.records)][:4] == [0, 1, 2, 3]


def test_max_bytes_is_over_all_partitions(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker, partitions=3)
    for partition in range(3):
        fill(wire, topic, 10, 1000, partition)
    parts = [part(at, 0) for at in (2, 0, 1)]
    answer = wire.call(session_request([(topic, parts)], max_bytes=3_000))
    found = {p.partition_index: len(p.records or b"") for p in answer.responses[0].partitions}
    assert sum(found.values()) <= 3_000
    assert found[2] > 0, "the first partition asked for is served first"


def test_a_fetch_within_a_batch_returns_the_whole_batch(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    assert produce(wire, topic, batch([b"a", b"b", b"c"])).error_code == 0
    assert [r.offset for r in parse(fetch(wire, topic, 2).records)] == [0, 1, 2]


def test_fetch_reads_across_segments(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker, segment_bytes=20_000)
    fill(wire, topic, 100, 1000)
    at, found = 0, []
    while at < 100:
        records = parse(fetch(wire, topic, at).records)
        found += [r.value for r in records if r.offset >= at]
        at = records[-1].offset + 1
    assert found == [(b"%d." % number) + b"x" * 1000 for number in range(100)]
    for offset in (0, 17, 18, 19, 50, 99):
        assert parse(fetch(wire, topic, offset, partition_bytes=1).records)[-1].offset == offset


@pytest.mark.parametrize("offset", [-1, 4, 10**12])
def test_offset_out_of_range(broker: Any, wire: Wire, offset: int) -> None:
    topic = create_topic(broker)
    fill(wire, topic, 3)
    answer = fetch(wire, topic, offset, wait_ms=60_000)
    assert answer.error_code == OUT_OF_RANGE
    assert bytes(answer.records or b"") == b""


def test_fetch_of_unknown_topic_or_partition_fails_at_once(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    assert fetch(wire, unique("none"), 0, wait_ms=60_000).error_code == UNKNOWN_TOPIC
    assert fetch(wire, topic, 0, partition=5, wait_ms=60_000).error_code == UNKNOWN_TOPIC


def test_fetch_of_unknown_topic_id_fails_at_once(wire: Wire) -> None:
    if not supports(wire, 1, 13):
        pytest.skip("no Fetch v13 here")
    assert fetch(wire, uuid.uuid4(), 0, version=13, wait_ms=60_000).error_code == UNKNOWN_ID


def test_unknown_leader_epoch_is_refused(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    fill(wire, topic, 1)
    assert fetch(wire, topic, 0, epoch=0).error_code == 0
    assert fetch(wire, topic, 0, epoch=7).error_code == UNKNOWN_EPOCH


def test_read_committed_returns_all_records_without_transactions(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    fill(wire, topic, 3)
    answer = fetch(wire, topic, 0, isolation=1)
    assert (answer.last_stable_offset, list(answer.aborted_transactions or [])) == (3, [])
    assert len(parse(answer.records)) == 3


# -- sessions


def open_session(wire: Wire, topic: str, parts: list[Any]) -> Any:
    answer = wire.call(session_request([(topic, parts)], session=0, session_epoch=0, wait_ms=100))
    assert answer.error_code == 0 and answer.session_id > 0, answer
    return answer


def indexes(answer: Any) -> dict[int, list[int]]:
    return {p.partition_index: [r.offset for r in parse(p.records)] for t in answer.responses for p in t.partitions}


def test_a_session_answers_only_what_changed(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker, partitions=3)
    first = open_session(wire, topic, [part(at, 0) for at in range(3)])
    assert indexes(first) == {0: [], 1: [], 2: []}
    fill(wire, topic, 2, partition=1)
    session = first.session_id
    second = wire.call(session_request([], session=session, session_epoch=1))
    assert (second.error_code, second.session_id, indexes(second)) == (0, session, {1: [0, 1]})
    moved = session_request([(topic, [part(1, 2)])], session=session, session_epoch=2, wait_ms=200)
    assert indexes(wire.call(moved)) == {}
    fill(wire, topic, 1, partition=2)
    third = wire.call(session_request([], session=session, session_epoch=3))
    assert indexes(third) == {2: [0]}


def test_a_session_forgets_and_adds_partitions(broker: Any, wire: Wire) -> None:
    topic, other = create_topic(broker, partitions=2), create_topic(broker)
    session = open_session(wire, topic, [part(0, 0), part(1, 0)]).session_id
    fill(wire, topic, 1, partition=0)
    fill(wire, topic, 1, partition=1)
    fill(wire, other, 1)
    request = session_request([(other, [part(0, 0)])], session=session, session_epoch=1, forget=[(topic, [0])])
    answer = wire.call(request)
    found = {(t.topic, p.partition_index) for t in answer.responses for p in t.partitions}
    assert found == {(topic, 1), (other, 0)}


def test_a_waiting_session_wakes(broker: Any) -> None:
    topic = create_topic(broker, partitions=8)
    with broker.wire(40) as waiting, broker.wire() as wire:
        session = open_session(waiting, topic, [part(at, 0) for at in range(8)]).session_id
        request = session_request([], session=session, session_epoch=1, wait_ms=60_000)
        waiting.put(request)
        await_delayed(broker, 1)
        fill(wire, topic, 1, partition=5)
        assert indexes(waiting.take(request)) == {5: [0]}


def test_wrong_session_id_or_epoch_is_refused(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    session = open_session(wire, topic, [part(0, 0)]).session_id
    wrong = wire.call(session_request([], session=session, session_epoch=5))
    assert (wrong.error_code, list(wrong.responses)) == (WRONG_SESSION_EPOCH, [])
    unknown = wire.call(session_request([], session=123_456_789, session_epoch=1))
    assert (unknown.error_code, list(unknown.responses)) == (NO_SESSION, [])


def test_a_closed_session_is_gone(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    session = open_session(wire, topic, [part(0, 0)]).session_id
    last = wire.call(session_request([(topic, [part(0, 0)])], session=session, session_epoch=-1, wait_ms=0))
    assert (last.error_code, last.session_id) == (0, 0)
    assert wire.call(session_request([], session=session, session_epoch=1)).error_code == NO_SESSION


def test_a_session_by_topic_id_answers_only_what_changed(broker: Any, wire: Wire) -> None:
    if not supports(wire, 1, 13):
        pytest.skip("no Fetch v13 here")
    topic = create_topic(broker, partitions=2)
    number = topic_id(wire, topic)
    opened = wire.call(session_request([(number, [part(0, 0), part(1, 0)])], version=13, session_epoch=0, wait_ms=100))
    assert opened.session_id > 0
    fill(wire, topic, 1, partition=1)
    answer = wire.call(session_request([], version=13, session=opened.session_id, session_epoch=1))
    assert [(t.topic_id, p.partition_index) for t in answer.responses for p in t.partitions] == [(number, 1)]


def test_topic_deletion_completes_a_waiting_fetch(broker: Any, wire: Wire) -> None:
    from kafka.protocol.admin import DeleteTopicsRequest

    topic = create_topic(broker)
    request = fetch_request(topic, 0, wait_ms=30_000)
    with broker.wire(60) as waiting:
        waiting.put(request)
        await_delayed(broker, 1)
        gone = wire.call(DeleteTopicsRequest[4](topic_names=[topic], timeout_ms=10_000))
        assert gone.responses[0].error_code == 0
        if not broker.external:  # Kafka lets the fetch wait for max_wait_ms
            assert waiting.take(request).responses[0].partitions[0].error_code in (UNKNOWN_TOPIC, 6)
    wait_until(lambda: fetch(wire, topic, 0, wait_ms=0).error_code == UNKNOWN_TOPIC, what="the topic is deleted")
