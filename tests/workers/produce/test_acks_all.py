"""acks=all: answered in order when the ISR has the batch, and refused when that cannot be known."""

from __future__ import annotations

import struct
import time
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.ipc import replicas, slots
from odradek.protocol import errors
from odradek.workers import worker
from odradek.workers.produce import acks_all

from ...harness.process import wait_until
from ...harness.wire import decode_response
from ..inprocess import Bench, Client
from ..leading import lead, produce, publish, shrink

GONE = errors.UNKNOWN_TOPIC_OR_PARTITION


def outcome(answer: bytes) -> tuple[int, int, int]:
    """(correlation id, error, base offset) of a Produce answer of version 7."""
    (correlation,) = struct.unpack_from(">i", answer)
    error, base = struct.unpack_from(">hq", answer, 4 + 4 + 2 + 1 + 4 + 4)
    return correlation, error, base


def outcomes(client: Client) -> list[tuple[int, int, int]]:
    """The outcomes of the answers so far."""
    return [outcome(answer) for answer in client.frames()]


def advance(bench: Bench, broker: int, leo: int) -> None:
    """Record a fetch of the follower at `leo`, as another worker does that serves it."""
    slot = bench.slot("t")
    state = slot.state()
    replicas.record_fetch(slot, slot.fields(), replicas.find(slot, broker), leo, 0, state.leo, 0)
    publish(bench, hw=max(state.hw, min(state.leo, replicas.committed(slot, state.leo)[0])))


def send(bench: Bench, client: Client, *frames: bytes) -> list[tuple[int, int, int]]:
    """Send, let the worker run, and return what was answered."""
    client.send(b"".join(frames))
    bench.turn(5)
    return outcomes(client)


def test_produce_is_answered_when_the_whole_isr_has_the_batch(bench: Bench, client: Client) -> None:
    slot = lead(bench, [1, 2, 3], [1, 2])
    assert send(bench, client, produce(client, [b"a", b"b"])) == []
    assert (slot.state().leo, slot.state().hw) == (2, 0)
    for broker, leo in ((1, 2), (3, 2), (2, 1)):
        advance(bench, broker, leo)
        bench.turn(3)
        assert outcomes(client) == []
    advance(bench, 2, 2)
    bench.turn(3)
    assert outcomes(client) == [(1, errors.NONE, 0)]
    assert len(bench.worker.purgatory) == 0


@pytest.mark.parametrize("acks", [1, 0])
def test_other_acks_do_not_wait_for_followers(bench: Bench, client: Client, acks: int) -> None:
    lead(bench, [1], [1])
    other = bench.connect()
    assert send(bench, client, produce(client, [b"a"])) == []
    found = send(bench, other, produce(other, [b"b"], acks=acks))
    assert found == ([(1, errors.NONE, 1)] if acks else [])
    assert bench.slot("t").state().leo == 2
    assert outcomes(client) == []


def test_answers_keep_the_order_of_requests(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    frames = [produce(client, [b"%d" % n], acks=-1 if n in (1, 3) else 1) for n in range(5)]
    assert send(bench, client, *frames) == [(1, errors.NONE, 0)]
    advance(bench, 1, 3)
    bench.turn(3)
    assert outcomes(client) == [(2, errors.NONE, 1), (3, errors.NONE, 2)]
    advance(bench, 1, 5)
    bench.turn(3)
    assert outcomes(client) == [(4, errors.NONE, 3), (5, errors.NONE, 4)]


def test_delayed_produce_keeps_no_records(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    send(bench, client, produce(client, [b"x" * 300_000]))
    (pending,) = bench.connection(client).in_flight
    assert (pending.size, len(pending.view)) == (0, 0)


def test_next_request_waits_for_a_delayed_produce(bench: Bench, client: Client) -> None:
    """Every request but Produce is a barrier."""
    lead(bench, [1], [1])
    versions = struct.pack(">ihhih", 10, 18, 0, 77, -1)
    assert send(bench, client, produce(client, [b"a"]), versions) == []
    advance(bench, 1, 1)
    bench.turn(3)
    first, second = client.answers(2)
    assert outcome(first) == (1, errors.NONE, 0)
    assert struct.unpack_from(">i", second) == (77,)


def test_produce_to_two_partitions_waits_for_the_slower_one(bench: Bench, client: Client) -> None:
    from kafka.protocol.producer import ProduceRequest as Request

    from ...clients.raw import batches

    bench.topic("two", 2)
    for index in (0, 1):
        lead(bench, [1], [1], topic="two", index=index)
    data = [Request.TopicProduceData.PartitionProduceData(index=i, records=batches.batch([b"v"])) for i in (0, 1)]
    topics = [Request.TopicProduceData(name="two", partition_data=data)]
    asked = Request[7](transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=topics)
    assert send(bench, client, client.frame(asked)) == []
    publish(bench, "two", 1, hw=1)
    bench.turn(3)
    assert outcomes(client) == []
    publish(bench, "two", 0, hw=1)
    bench.turn(3)
    (answer,) = client.frames()
    parts = decode_response(asked, answer).responses[0].partition_responses
    assert [(part.index, part.error_code, part.base_offset) for part in parts] == [(0, 0, 0), (1, 0, 0)]


def test_produce_times_out_after_its_own_timeout(bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [time.monotonic()]
    for module in (worker, acks_all):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    slot = lead(bench, [1], [1])
    other = bench.connect()
    assert send(bench, other, produce(other, [b"a"], timeout_ms=60_000)) == []
    assert send(bench, client, produce(client, [b"a"], timeout_ms=50)) == []
    now[0] += 0.049
    bench.turn(3)
    assert outcomes(client) == []
    now[0] += 0.002
    (answer,) = client.answers(1)
    assert outcome(answer)[:2] == (1, errors.REQUEST_TIMED_OUT)
    assert (outcomes(other), slot.state().leo) == ([], 2)
    advance(bench, 1, 2)
    bench.turn(3)
    assert outcomes(other) == [(1, errors.NONE, 0)]


def test_long_timeouts_are_explained_at_a_limited_rate(
    bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slot = lead(bench, [1, 2, 3], [1, 2], epoch=7, min_isr=2)

    def expire() -> list[str]:
        caplog.clear()
        client.send(produce(client, [b"a"], timeout_ms=50))
        (answer,) = client.answers(1)
        assert outcome(answer)[1] == errors.REQUEST_TIMED_OUT
        return [record.getMessage() for record in caplog.records]

    assert expire() == [], "the wait was short"
    advance(bench, 1, 1)
    monkeypatch.setattr(acks_all, "LONG_S", 0.05)
    (line,) = expire()
    assert line.startswith("t-0: acks=all timed out after 0 s: high watermark 0, required 2, log end ")
    assert "joining the ISR {1: 1, 2: -1}" in line
    assert "ISR size 3, min.insync.replicas=2, leader epoch 7; metadata version" in line
    assert expire() == [], "the last explanation was recent"
    bench.worker.acks_all.next_explanation -= acks_all.EXPLAIN_S
    assert len(expire()) == 1
    assert slot.state().leo == 4


def test_batches_of_one_append_have_their_own_timeouts(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    frames = [produce(client, [b"a"], timeout_ms=t) for t in (30, 60_000, 0)]
    client.send(b"".join(frames))
    (answer,) = client.answers(1)
    assert outcome(answer)[:2] == (1, errors.REQUEST_TIMED_OUT)
    advance(bench, 1, 3)
    bench.turn(3)
    assert [found[1] for found in outcomes(client)] == [errors.NONE, errors.REQUEST_TIMED_OUT]


def test_draining_worker_keeps_delayed_produces(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    send(bench, client, produce(client, [b"a"]))
    bench.worker.purgatory.answer_all()
    bench.turn(3)
    assert (outcomes(client), len(bench.worker.purgatory)) == ([], 1)
    advance(bench, 1, 1)
    bench.turn(3)
    assert outcomes(client) == [(1, errors.NONE, 0)]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"state": slots.FOLLOWER, "led_since": -1, "leader_epoch": 1}, errors.NOT_LEADER_OR_FOLLOWER),
        ({"led_since": 2, "leader_epoch": 2, "hw": 1}, errors.NOT_LEADER_OR_FOLLOWER),
        ({"state": slots.DELETING}, GONE),
        ({"incarnation": 4711}, GONE),
        ({"state": slots.OFFLINE}, errors.KAFKA_STORAGE_ERROR),
    ],
)
def test_delayed_produce_fails_when_leadership_is_lost(
    bench: Bench, client: Client, change: dict[str, int], error: int
) -> None:
    lead(bench, [1], [1])
    send(bench, client, produce(client, [b"a"]))
    publish(bench, **change)
    bench.turn(3)
    assert outcomes(client) == [(1, error, -1)]


def test_delayed_produce_survives_a_new_epoch_of_the_same_leader(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    send(bench, client, produce(client, [b"a"]))
    lead(bench, [1], [1], epoch=1, again=True)
    bench.turn(3)
    assert outcomes(client) == []
    advance(bench, 1, 1)
    bench.turn(3)
    assert outcomes(client) == [(1, errors.NONE, 0)]


def test_produce_with_too_small_an_isr_is_not_appended(bench: Bench, client: Client) -> None:
    slot = lead(bench, [1, 2], [1], min_isr=3)
    frames = [produce(client, [b"a"]), produce(client, [b"b"], acks=1), produce(client, [b"c"])]
    assert send(bench, client, *frames) == [
        (1, errors.NOT_ENOUGH_REPLICAS, -1),
        (2, errors.NONE, 0),
        (3, errors.NOT_ENOUGH_REPLICAS, -1),
    ]
    assert slot.state().leo == 1


def test_min_insync_replicas_applies_without_a_cluster(bench: Bench, client: Client) -> None:
    """The slot has the topic's min.insync.replicas also on a broker without a cluster."""
    publish(bench, min_isr=2)
    assert send(bench, client, produce(client, [b"a"]), produce(client, [b"a"], acks=1)) == [
        (1, errors.NOT_ENOUGH_REPLICAS, -1),
        (2, errors.NONE, 0),
    ]


def test_not_leader_error_precedes_not_enough_replicas(bench: Bench, client: Client) -> None:
    publish(bench, min_isr=2, isr_count=0, state=slots.FOLLOWER)
    assert send(bench, client, produce(client, [b"a"])) == [(1, errors.NOT_LEADER_OR_FOLLOWER, -1)]


def test_isr_that_shrinks_after_the_append_is_an_error(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1], min_isr=2)
    assert send(bench, client, produce(client, [b"a"])) == []
    shrink(bench, 1)
    bench.turn(3)
    assert outcomes(client) == [(1, errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1)]


def test_leader_alone_in_the_isr_answers_at_once(bench: Bench, client: Client) -> None:
    lead(bench, [1], [])
    assert send(bench, client, produce(client, [b"a"])) == [(1, errors.NONE, 0)]
    assert len(bench.worker.purgatory) == 0


def test_delayed_produce_is_answered_when_the_last_follower_leaves_the_isr(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    assert send(bench, client, produce(client, [b"a"])) == []
    shrink(bench, 1)
    bench.turn(3)
    assert outcomes(client) == [(1, errors.NONE, 0)]


def test_retry_waits_for_replication_like_its_original(bench: Bench, client: Client) -> None:
    slot = lead(bench, [1], [1])
    fields: dict[str, Any] = {"producer": 9, "epoch": 0, "sequence": 0}
    other = bench.connect()
    assert send(bench, client, produce(client, [b"a"], **fields)) == []
    assert send(bench, other, produce(other, [b"a"], **fields)) == []
    assert slot.state().leo == 1
    advance(bench, 1, 1)
    bench.turn(3)
    assert (outcomes(client), outcomes(other)) == ([(1, errors.NONE, 0)], [(1, errors.NONE, 0)])
    assert send(bench, other, produce(other, [b"a"], **fields)) == [(2, errors.NONE, 0)]


def test_retry_of_a_replicated_batch_is_answered_at_once(bench: Bench, client: Client) -> None:
    """The retry does not wait for later batches of the partition either."""
    lead(bench, [1], [1])
    fields: dict[str, Any] = {"producer": 9, "epoch": 0, "sequence": 0}
    other = bench.connect()
    send(bench, client, produce(client, [b"a"], **fields))
    advance(bench, 1, 1)
    assert send(bench, other, produce(other, [b"b"])) == []
    bench.turn(3)
    assert outcomes(client) == [(1, errors.NONE, 0)]
    assert send(bench, client, produce(client, [b"a"], **fields)) == [(2, errors.NONE, 0)]
    assert outcomes(other) == []


def test_high_watermark_change_without_a_wakeup_is_found(bench: Bench, client: Client) -> None:
    slot = lead(bench, [1], [1])
    assert send(bench, client, produce(client, [b"a"])) == []
    slot.update(hw=1)  # as a process that dies before it rings
    (answer,) = client.answers(1)
    assert outcome(answer) == (1, errors.NONE, 0)


def test_produce_waits_for_replication_after_its_fsync(bench: Bench, client: Client) -> None:
    """With flush.messages, the batch must be synced and replicated."""
    bench.configure("t", flush_messages="1")
    slot = lead(bench, [1], [1])
    client.send(produce(client, [b"a"]))
    wait_until(lambda: bench.turn() or slot.state().flushed == 1, 60, "the sync")
    bench.turn(3)
    assert outcomes(client) == []
    advance(bench, 1, 1)
    bench.turn(3)
    assert outcomes(client) == [(1, errors.NONE, 0)]


def test_produce_waits_for_its_fsync_after_replication(
    bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    from odradek.storage.log import flush

    go, sync = threading.Event(), flush.sync_files
    monkeypatch.setattr(flush, "sync_files", lambda paths: (go.wait(60), sync(paths)))
    bench.configure("t", flush_messages="1")
    lead(bench, [1], [1])
    assert send(bench, client, produce(client, [b"a"])) == []
    advance(bench, 1, 1)
    bench.turn(3)
    assert outcomes(client) == []
    go.set()
    (answer,) = client.answers(1)
    assert outcome(answer) == (1, errors.NONE, 0)


def test_exception_while_waiting_for_followers_fails_the_batches(
    bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the waiting batches would not be answered."""
    lead(bench, [1], [1])
    assert send(bench, client, produce(client, [b"a"])) == []
    with monkeypatch.context() as patch:
        patch.setattr(acks_all.DelayedProduce, "_lost", lambda *_: 1 // 0)
        advance(bench, 1, 1)
        bench.turn(3)
    assert outcomes(client) == [(1, errors.UNKNOWN_SERVER_ERROR, -1)]
    assert send(bench, client, produce(client, [b"b"], acks=1)) == [(2, errors.NONE, 1)]
