"""acks=all: answered when the followers have the batch, refused when that cannot be known, in the order asked."""

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
    """What has been answered."""
    return [outcome(answer) for answer in client.frames()]


def advance(bench: Bench, broker: int, leo: int) -> None:
    """As another worker that serves the follower's fetch: its log end is `leo`."""
    slot = bench.slot("t")
    state = slot.state()
    replicas.record_fetch(slot, slot.fields(), replicas.find(slot, broker), leo, 0, state.leo, 0)
    publish(bench, hw=max(state.hw, min(state.leo, replicas.committed(slot, state.leo)[0])))


def send(bench: Bench, client: Client, *frames: bytes) -> list[tuple[int, int, int]]:
    """Send, let the worker run, and return what was answered."""
    client.send(b"".join(frames))
    bench.turn(5)
    return outcomes(client)


def test_answered_only_when_all_that_count_have_it(bench: Bench, client: Client) -> None:
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
def test_others_are_not_held_up(bench: Bench, client: Client, acks: int) -> None:
    lead(bench, [1], [1])
    other = bench.connect()
    assert send(bench, client, produce(client, [b"a"])) == []
    found = send(bench, other, produce(other, [b"b"], acks=acks))
    assert found == ([(1, errors.NONE, 1)] if acks else [])
    assert bench.slot("t").state().leo == 2
    assert outcomes(client) == []


def test_the_answers_of_a_connection_keep_the_order_of_its_requests(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    frames = [produce(client, [b"%d" % n], acks=-1 if n in (1, 3) else 1) for n in range(5)]
    assert send(bench, client, *frames) == [(1, errors.NONE, 0)]
    advance(bench, 1, 3)
    bench.turn(3)
    assert outcomes(client) == [(2, errors.NONE, 1), (3, errors.NONE, 2)]
    advance(bench, 1, 5)
    bench.turn(3)
    assert outcomes(client) == [(4, errors.NONE, 3), (5, errors.NONE, 4)]


def test_what_waits_keeps_no_records(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    send(bench, client, produce(client, [b"x" * 300_000]))
    (pending,) = bench.connection(client).in_flight
    assert (pending.size, len(pending.view)) == (0, 0)


def test_a_request_behind_it_waits_for_it(bench: Bench, client: Client) -> None:
    """Anything but Produce is a barrier."""
    lead(bench, [1], [1])
    versions = struct.pack(">ihhih", 10, 18, 0, 77, -1)
    assert send(bench, client, produce(client, [b"a"]), versions) == []
    advance(bench, 1, 1)
    bench.turn(3)
    first, second = client.answers(2)
    assert outcome(first) == (1, errors.NONE, 0)
    assert struct.unpack_from(">i", second) == (77,)


def test_a_request_of_two_partitions_waits_for_the_slower(bench: Bench, client: Client) -> None:
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


def test_time_is_up(bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_long_wait_is_explained_now_and_then(
    bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slot = lead(bench, [1, 2, 3], [1, 2], epoch=7, min_isr=2)

    def expire() -> list[str]:
        caplog.clear()
        client.send(produce(client, [b"a"], timeout_ms=50))
        (answer,) = client.answers(1)
        assert outcome(answer)[1] == errors.REQUEST_TIMED_OUT
        return [record.getMessage() for record in caplog.records]

    assert expire() == [], "after a short time"
    advance(bench, 1, 1)
    monkeypatch.setattr(acks_all, "LONG_S", 0.05)
    (line,) = expire()
    assert line.startswith("t-0: acks=all timed out after 0 s: high watermark 0, required 2, log end ")
    assert "joining the ISR {1: 1, 2: -1}" in line
    assert "ISR size 3, min.insync.replicas=2, leader epoch 7; metadata version" in line
    assert expire() == [], "soon after the last one"
    bench.worker.acks_all.next_explanation -= acks_all.EXPLAIN_S
    assert len(expire()) == 1
    assert slot.state().leo == 4


def test_each_of_one_append_has_its_own_time(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    frames = [produce(client, [b"a"], timeout_ms=t) for t in (30, 60_000, 0)]
    client.send(b"".join(frames))
    (answer,) = client.answers(1)
    assert outcome(answer)[:2] == (1, errors.REQUEST_TIMED_OUT)
    advance(bench, 1, 3)
    bench.turn(3)
    assert [found[1] for found in outcomes(client)] == [errors.NONE, errors.REQUEST_TIMED_OUT]


def test_draining_gives_nobody_up(bench: Bench, client: Client) -> None:
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
def test_leadership_is_lost(bench: Bench, client: Client, change: dict[str, int], error: int) -> None:
    lead(bench, [1], [1])
    send(bench, client, produce(client, [b"a"]))
    publish(bench, **change)
    bench.turn(3)
    assert outcomes(client) == [(1, error, -1)]


def test_a_new_epoch_of_the_same_leader_changes_nothing(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    send(bench, client, produce(client, [b"a"]))
    lead(bench, [1], [1], epoch=1, again=True)
    bench.turn(3)
    assert outcomes(client) == []
    advance(bench, 1, 1)
    bench.turn(3)
    assert outcomes(client) == [(1, errors.NONE, 0)]


def test_too_few_in_sync_before_the_append(bench: Bench, client: Client) -> None:
    slot = lead(bench, [1, 2], [1], min_isr=3)
    frames = [produce(client, [b"a"]), produce(client, [b"b"], acks=1), produce(client, [b"c"])]
    assert send(bench, client, *frames) == [
        (1, errors.NOT_ENOUGH_REPLICAS, -1),
        (2, errors.NONE, 0),
        (3, errors.NOT_ENOUGH_REPLICAS, -1),
    ]
    assert slot.state().leo == 1


def test_too_few_alone(bench: Bench, client: Client) -> None:
    """What the topic's configuration says is in the slot, also of a broker without a cluster."""
    publish(bench, min_isr=2)
    assert send(bench, client, produce(client, [b"a"]), produce(client, [b"a"], acks=1)) == [
        (1, errors.NOT_ENOUGH_REPLICAS, -1),
        (2, errors.NONE, 0),
    ]


def test_not_the_leader_comes_before_too_few(bench: Bench, client: Client) -> None:
    publish(bench, min_isr=2, isr_count=0, state=slots.FOLLOWER)
    assert send(bench, client, produce(client, [b"a"])) == [(1, errors.NOT_LEADER_OR_FOLLOWER, -1)]


def test_too_few_in_sync_after_the_append(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1], min_isr=2)
    assert send(bench, client, produce(client, [b"a"])) == []
    shrink(bench, 1)
    bench.turn(3)
    assert outcomes(client) == [(1, errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1)]


def test_nobody_is_waited_for_alone(bench: Bench, client: Client) -> None:
    lead(bench, [1], [])
    assert send(bench, client, produce(client, [b"a"])) == [(1, errors.NONE, 0)]
    assert len(bench.worker.purgatory) == 0


def test_the_last_follower_leaves_the_isr(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    assert send(bench, client, produce(client, [b"a"])) == []
    shrink(bench, 1)
    bench.turn(3)
    assert outcomes(client) == [(1, errors.NONE, 0)]


def test_a_retry_waits_like_its_original(bench: Bench, client: Client) -> None:
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


def test_a_retry_of_what_is_replicated_waits_for_nothing(bench: Bench, client: Client) -> None:
    """Nor for what others of its partition wait for."""
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


def test_a_change_that_nobody_rang_for_is_found(bench: Bench, client: Client) -> None:
    slot = lead(bench, [1], [1])
    assert send(bench, client, produce(client, [b"a"])) == []
    slot.update(hw=1)  # whoever did this died before it rang
    (answer,) = client.answers(1)
    assert outcome(answer) == (1, errors.NONE, 0)


def test_synced_and_replicated(bench: Bench, client: Client) -> None:
    """flush.messages: both must hold, whichever comes first."""
    bench.configure("t", flush_messages="1")
    slot = lead(bench, [1], [1])
    client.send(produce(client, [b"a"]))
    wait_until(lambda: bench.turn() or slot.state().flushed == 1, 60, "the sync")
    bench.turn(3)
    assert outcomes(client) == []
    advance(bench, 1, 1)
    bench.turn(3)
    assert outcomes(client) == [(1, errors.NONE, 0)]


def test_replicated_before_it_is_synced(bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_fault_while_followers_are_waited_for(bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails the waiting batches, which would not be answered otherwise."""
    lead(bench, [1], [1])
    assert send(bench, client, produce(client, [b"a"])) == []
    with monkeypatch.context() as patch:
        patch.setattr(acks_all.DelayedProduce, "_lost", lambda *_: 1 // 0)
        advance(bench, 1, 1)
        bench.turn(3)
    assert outcomes(client) == [(1, errors.UNKNOWN_SERVER_ERROR, -1)]
    assert send(bench, client, produce(client, [b"b"], acks=1)) == [(2, errors.NONE, 1)]
