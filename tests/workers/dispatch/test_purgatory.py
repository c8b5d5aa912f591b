"""Delayed fetches: no change is missed, whenever it happens, and finished ones leave nothing in memory."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from odradek.ipc import memory_order
from odradek.ipc.roles import worker_role
from odradek.ipc.slots import ANYTHING, Slot
from odradek.protocol import errors
from odradek.workers.dispatch.purgatory import Purgatory

from ...clients.raw import batches, calls
from ...harness.wire import decode_response
from ..inprocess import Bench, Client, raw
from ..net.test_connection import produce

ROLE = worker_role(0)


class _Fence:
    """Calls `between` at the fence, where another process may act."""

    def __init__(self, real: Callable[[], None]) -> None:
        self._real = real
        self.between: Callable[[], None] | None = None

    def __call__(self) -> None:
        self._real()
        if self.between is not None:
            between, self.between = self.between, None
            between()


class _Waiting:
    """Answers once the slots' log ends together reach `goal`."""

    waits_for = ANYTHING

    def __init__(self, slots: list[Slot], goal: int, deadline: float = 1e9) -> None:
        self.slots, self.goal, self.deadline, self.finished, self.queued = slots, goal, deadline, False, False
        self.looks = self.answers = self.expired = 0
        self.failures: list[Exception] = []

    def find_slots(self) -> list[Slot]:
        return self.slots

    def try_complete(self) -> bool:
        self.looks += 1
        return sum(slot.state().leo for slot in self.slots) >= self.goal

    def answer(self) -> None:
        self.answers += 1

    def expire(self) -> None:
        self.expired += 1

    def fail(self, fault: Exception) -> None:
        self.failures.append(fault)


@pytest.fixture
def fence(monkeypatch: pytest.MonkeyPatch) -> _Fence:
    made = _Fence(memory_order.fence)
    monkeypatch.setattr(memory_order, "fence", made)
    return made


@pytest.fixture
def purgatory(fence: _Fence) -> Purgatory:
    return Purgatory(ROLE)


def append(slot: Slot) -> list[int]:
    """Publish as another process does, then return the roles to ring."""
    slot.update(leo=slot.state().leo + 1)
    return list(slot.waiters())


def test_change_before_the_request_waits_is_seen(bench: Bench, purgatory: Purgatory) -> None:
    slot = bench.slot("t")
    append(slot)
    waiting = _Waiting([slot], 1)
    purgatory.watch(waiting)
    assert (waiting.answers, waiting.finished, len(purgatory)) == (1, True, 0)


def test_change_while_the_request_begins_to_wait_is_seen_or_rings(
    bench: Bench, purgatory: Purgatory, fence: _Fence
) -> None:
    slot, waiting, rung = bench.slot("t"), _Waiting([bench.slot("t")], 1), []
    fence.between = lambda: rung.extend(append(slot))
    purgatory.watch(waiting)
    assert waiting.answers == 1
    assert rung == [ROLE]


def test_change_after_the_request_waits_rings(bench: Bench, purgatory: Purgatory) -> None:
    slot, waiting = bench.slot("t"), _Waiting([bench.slot("t")], 1)
    purgatory.watch(waiting)
    purgatory.on_wakeup()
    assert (waiting.looks, waiting.answers) == (1, 0)
    assert append(slot) == [ROLE]
    purgatory.on_wakeup()
    assert (waiting.answers, waiting.finished) == (1, True)


def test_every_change_rings_until_the_request_is_complete(bench: Bench, purgatory: Purgatory, fence: _Fence) -> None:
    """This includes a change between the ring and the check."""
    slot, waiting = bench.slot("t"), _Waiting([bench.slot("t")], 3)
    purgatory.watch(waiting)
    assert append(slot) == [ROLE]
    second: list[int] = []
    fence.between = lambda: second.extend(append(slot))
    purgatory.on_wakeup()
    assert (second, waiting.answers) == ([ROLE], 0)
    purgatory.on_wakeup()
    assert append(slot) == [ROLE]
    purgatory.on_wakeup()
    assert waiting.answers == 1


def test_change_without_a_ring_is_found_by_the_next_comparison(bench: Bench, purgatory: Purgatory) -> None:
    slot, waiting = bench.slot("t"), _Waiting([bench.slot("t")], 2)
    purgatory.watch(waiting)
    append(slot)  # the process dies before it rings
    assert append(slot) == []
    purgatory.on_wakeup()
    assert waiting.answers == 1


@pytest.fixture
def many(bench: Bench) -> list[Slot]:
    """More slots than are compared one by one."""
    return [bench.worker.shared.slots[number] for number in range(100, 200)]


def test_change_without_a_ring_among_many_slots_is_found_by_the_next_comparison(
    many: list[Slot], purgatory: Purgatory
) -> None:
    waiting = _Waiting(many, 2)
    purgatory.watch(waiting)
    purgatory.compare()
    for lost in many[3], many[90]:
        lost.update(leo=1)  # the process dies before it rings
        assert waiting.answers == 0
        purgatory.compare()
    assert waiting.answers == 1


def test_lost_waiter_byte_among_many_slots_is_set_again(many: list[Slot], purgatory: Purgatory) -> None:
    waiting = _Waiting(many, 2)
    purgatory.watch(waiting)
    many[7].update(leo=1)
    purgatory.compare()
    assert many[7].waiters() == [ROLE]  # the publisher dies now
    for _ in range(10):
        purgatory.compare()
    assert append(many[7]) == [ROLE]


def test_idle_slots_are_not_checked_one_by_one(many: list[Slot], purgatory: Purgatory) -> None:
    purgatory.watch(_Waiting(many, 1))
    purgatory.compare()
    many[7].waiters()
    purgatory.compare()
    assert append(many[7]) == []  # no process has read its waiter byte


def test_second_request_on_a_slot_misses_no_change(bench: Bench, purgatory: Purgatory) -> None:
    slot = bench.slot("t")
    first, second = _Waiting([slot], 5), _Waiting([slot], 2)
    purgatory.watch(first)
    append(slot)
    purgatory.on_wakeup()
    purgatory.watch(second)
    append(slot)
    purgatory.on_wakeup()
    assert (first.answers, second.answers) == (0, 1)
    assert len(purgatory) == 1


def test_only_expired_requests_are_answered_by_expiry(purgatory: Purgatory, bench: Bench) -> None:
    soon, late = _Waiting([bench.slot("t")], 1, 10.0), _Waiting([bench.slot("t")], 1, 20.0)
    purgatory.watch(late)
    purgatory.watch(soon)
    assert purgatory.next_deadline() == 10.0
    purgatory.expire(9.9)
    assert soon.expired == 0
    purgatory.expire(10.0)
    assert (soon.expired, late.expired, purgatory.next_deadline()) == (1, 0, 20.0)
    purgatory.answer_all()
    assert late.expired == 1
    assert purgatory.next_deadline() is None


@pytest.mark.parametrize("what", ["try_complete", "answer", "expire", "find_slots"])
def test_exception_fails_only_its_request(
    purgatory: Purgatory, bench: Bench, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The exception must not reach the loop. Other requests are retried, and the failed one is removed."""
    bad, good = _Waiting([bench.slot("t")], 1, 10.0), _Waiting([bench.slot("t")], 1, 20.0)
    purgatory.watch(bad)
    purgatory.watch(good)
    monkeypatch.setattr(bad, what, lambda: 1 // 0)
    if what == "find_slots":
        purgatory.all_changed()
    elif what == "expire":
        purgatory.expire(10.0)
    append(bench.slot("t"))
    purgatory.on_wakeup()
    assert [type(fault) for fault in bad.failures] == [ZeroDivisionError]
    assert (good.answers, good.failures, len(purgatory)) == (1, [], 0)


def test_removed_request_is_not_answered(purgatory: Purgatory, bench: Bench) -> None:
    waiting = _Waiting([bench.slot("t")], 1, 10.0)
    purgatory.watch(waiting)
    purgatory.remove(waiting)
    purgatory.remove(waiting)
    append(bench.slot("t"))
    purgatory.on_wakeup()
    purgatory.expire(99)
    assert (waiting.answers, waiting.expired, len(purgatory)) == (0, 0, 0)


def test_finished_requests_with_far_deadlines_are_freed(purgatory: Purgatory, bench: Bench) -> None:
    for _ in range(5000):
        waiting = _Waiting([bench.slot("t")], 1, 1e9)
        purgatory.watch(waiting)
        purgatory.remove(waiting)
    purgatory.watch(_Waiting([bench.slot("t")], 1, 5.0))
    assert len(purgatory.deadlines) < 1000
    assert (len(purgatory), purgatory.next_deadline()) == (1, 5.0)


def test_new_metadata_retries_all_requests(purgatory: Purgatory, bench: Bench) -> None:
    waiting = _Waiting([bench.slot("t")], 1)
    purgatory.watch(waiting)
    purgatory.all_changed()
    assert waiting.looks == 2


# through a worker


def test_fetch_waits_for_records_of_another_connection(bench: Bench, client: Client) -> None:
    fetch = calls.fetch_request("t", 0, wait_ms=60_000)
    client.send(client.frame(fetch) + raw(18, 0, 9))
    bench.turn(3)
    assert client.frames() == []
    assert len(bench.worker.purgatory) == 1
    other = bench.connect()
    other.send(produce(other, [b"a"]))
    first, _ = client.answers(2)
    part = decode_response(fetch, first).responses[0].partitions[0]
    assert [record.value for record in batches.parse(part.records)] == [b"a"]
    assert len(bench.worker.purgatory) == 0


def test_fetch_waits_no_longer_than_its_max_wait(bench: Bench, client: Client) -> None:
    fetch = calls.fetch_request("t", 0, wait_ms=30)
    part = client.call(fetch).responses[0].partitions[0]
    assert (part.error_code, part.high_watermark, bytes(part.records or b"")) == (0, 0, b"")


def test_fetch_is_answered_when_its_topic_is_deleted(bench: Bench, client: Client) -> None:
    fetch = calls.fetch_request("t", 0, wait_ms=60_000)
    client.send(client.frame(fetch))
    bench.turn(3)
    bench.delete("t")
    part = decode_response(fetch, client.answers()[0]).responses[0].partitions[0]
    assert part.error_code == 3


@pytest.mark.parametrize("order", [("t", "gone"), ("gone", "t")])
def test_fetch_with_an_unknown_topic_waits_for_the_others(bench: Bench, client: Client, order: tuple[str, str]) -> None:
    fetch = calls.fetch_request(order[0], 0, wait_ms=60_000)
    fetch.topics += calls.fetch_request(order[1], 0).topics
    client.send(client.frame(fetch) + raw(18, 0, 9))
    bench.turn(3)
    assert client.frames() == []
    other = bench.connect()
    other.send(produce(other, [b"a"]))
    found = decode_response(fetch, client.answers(2)[0]).responses
    assert {row.topic: row.partitions[0].error_code for row in found} == {"t": 0, "gone": 3}


def test_fetch_with_an_unknown_topic_is_answered_when_the_other_is_deleted(bench: Bench, client: Client) -> None:
    fetch = calls.fetch_request("t", 0, wait_ms=60_000)
    fetch.topics += calls.fetch_request("gone", 0).topics
    client.send(client.frame(fetch))
    bench.turn(3)
    bench.delete("t")
    found = decode_response(fetch, client.answers()[0]).responses
    assert [row.partitions[0].error_code for row in found] == [3, 3]


def test_fetch_by_name_reads_the_topic_recreated_meanwhile(bench: Bench, client: Client) -> None:
    """The worker sees the deletion and the creation at once."""
    fetch = calls.fetch_request("t", 0, wait_ms=60_000)
    client.send(client.frame(fetch))
    bench.turn(3)
    bench.topic("t")
    bench.turn(3)
    other = bench.connect()
    other.send(produce(other, [b"new"]))
    part = decode_response(fetch, client.answers()[0]).responses[0].partitions[0]
    assert [record.value for record in batches.parse(part.records)] == [b"new"]


def test_fetch_by_id_fails_when_its_topic_is_recreated(bench: Bench, client: Client) -> None:
    fetch = calls.fetch_request(UUID(bytes=bench.id_of("t")), 0, version=13, wait_ms=60_000)
    client.send(client.frame(fetch))
    bench.turn(3)
    assert client.frames() == []
    bench.topic("t")
    part = decode_response(fetch, client.answers()[0]).responses[0].partitions[0]
    assert (part.error_code, part.records or b"") == (errors.UNKNOWN_TOPIC_ID, b"")


def test_delayed_fetch_of_a_disconnected_client_is_removed(bench: Bench, client: Client) -> None:
    client.send(client.frame(calls.fetch_request("t", 0, wait_ms=60_000)))
    bench.turn(3)
    client.sock.close()
    bench.turn(3)
    assert len(bench.worker.purgatory) == 0
    assert not bench.worker.loop.connections
