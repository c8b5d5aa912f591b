"""Followers fetch up to the log end, which moves the high watermark."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.ipc import replicas, roles, slots
from odradek.ipc.replicas import IN, JOINING, OUT
from odradek.protocol import errors

from ...clients.raw import calls
from ..inprocess import Bench, Client
from ..leading import Follower, lead, now_ms, part, produce, publish, request
from ..produce.test_acks_all import outcomes, send
from .follower_requests import InSession, fill, row_of, values_in, write_epochs


@pytest.mark.parametrize("version", [0, 1, 4, 7, 11, 12, 14, 15, 17])
def test_follower_reads_up_to_the_log_end(bench: Bench, client: Client, version: int) -> None:
    import uuid

    lead(bench, [1], [1])
    fill(bench, client, 2)
    topic: Any = uuid.UUID(bytes=bench.id_of("t")) if version >= 13 else "t"
    asked = request(1, [part(0)], version=version, topic=topic)
    found = bench.connect().call(asked).responses[0].partitions[0]
    assert (found.error_code, found.high_watermark) == (0, 0)
    if version >= 4:
        assert values_in(found) == [b"0", b"1"]
    assert client.call(calls.fetch_request("t", 0, wait_ms=0)).responses[0].partitions[0].records in (None, b"")


def test_high_watermark_waits_for_its_quorum(bench: Bench, client: Client) -> None:
    slot = lead(bench, [1, 2, 3], [1])
    replicas.set_isr_status(slot, {2: JOINING})
    publish(bench, hw_quorum=3)
    one, two, three = (Follower(bench, n) for n in (1, 2, 3))
    fill(bench, client, 3)
    for follower, offset, hw in ((one, 3, 0), (three, 3, 0), (two, 2, 2), (one, 3, 2), (two, 3, 3), (two, 1, 3)):
        follower.fetch(offset)
        assert slot.state().hw == hw
    assert [(r.broker, r.leo) for r in replicas.read(slot)] == [(1, 3), (2, 1), (3, 3)]


def test_fetch_of_follower_completes_produce(bench: Bench, client: Client) -> None:
    slot = lead(bench, [1], [1])
    follower = Follower(bench, 1)
    assert send(bench, client, produce(client, [b"a"])) == []
    assert values_in(follower.fetch(0)) == [b"a"]
    bench.turn(3)
    assert (outcomes(client), slot.state().hw) == ([], 0)
    assert follower.fetch(1).error_code == 0
    bench.turn(3)
    assert (outcomes(client), slot.state().hw) == ([(1, errors.NONE, 0)], 1)


def test_removed_replica_acknowledges_nothing(bench: Bench, client: Client) -> None:
    """The controller process died after it set the row, before it published the quorum of the high watermark."""
    slot = lead(bench, [1, 2], [1, 2], min_isr=3)
    follower = Follower(bench, 1)
    assert send(bench, client, produce(client, [b"a"])) == []
    replicas.set_isr_status(slot, {2: OUT})
    follower.fetch(1)
    bench.turn(3)
    assert outcomes(client) == [(1, errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1)]
    assert (slot.state().hw, slot.state().hw_quorum) == (1, 2)


def test_log_start_of_follower_is_recorded(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    fill(bench, client)
    Follower(bench, 1).fetch(1, log_start=1)
    assert row_of(bench, 1)[2:4] == (1, 1)


def test_follower_at_log_end_is_caught_up(bench: Bench, client: Client) -> None:
    """The follower is at the log end, or at that of its previous fetch (Kafka's Replica.updateFetchState)."""
    slot = lead(bench, [1], [])
    slot.words[replicas.find(slot, 1) + 4] = 5
    follower = Follower(bench, 1)
    fill(bench, client)
    follower.fetch(0)
    assert row_of(bench, 1).caught_up_ms == 5
    seen = row_of(bench, 1).seen_ms
    fill(bench, client)
    follower.fetch(1)
    assert row_of(bench, 1).caught_up_ms == seen
    before = now_ms()
    follower.fetch(2)
    assert row_of(bench, 1).caught_up_ms >= before


def test_held_lock_delays_progress_but_not_the_fetch(bench: Bench, client: Client) -> None:
    slot = lead(bench, [1], [1])
    follower = Follower(bench, 1)
    assert send(bench, client, produce(client, [b"a"])) == []
    with bench.held("t"):
        assert follower.fetch(1).error_code == 0
        bench.turn(5)
        assert (slot.state().hw, row_of(bench, 1).leo, outcomes(client)) == (0, replicas.UNKNOWN, [])
    bench.turn(5)
    assert (slot.state().hw, outcomes(client)) == (1, [(1, errors.NONE, 0)])


def test_failed_progress_affects_only_its_partition(
    bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first partition's lock is still held when the second one fails."""
    fetched = replicas.record_fetch

    def failing(slot: Any, *arguments: Any) -> None:
        if slot.number == bench.slot("u").number:
            raise MemoryError
        fetched(slot, *arguments)

    bench.topic("u")
    first = lead(bench, [1], [1])
    lead(bench, [1], [1], topic="u")
    fill(bench, client)
    fill(bench, client, topic="u")
    one, two = InSession(bench, 1), InSession(bench, 1, topic="u")
    with bench.held("t"):
        with bench.held("u"):
            one.open([part(1)])
            two.open([part(1)])
        monkeypatch.setattr(replicas, "record_fetch", failing)
        bench.turn(5)
    bench.turn(5)
    assert first.state().hw == 1
    monkeypatch.undo()
    two.open([part(1)])
    bench.turn(5)
    assert bench.slot("u").state().hw == 1, "the next fetch repeats the offset"


@pytest.mark.parametrize(
    "change",
    [
        {"leader_epoch": 1, "led_since": 1},
        {"state": slots.FOLLOWER, "leader_epoch": 1, "led_since": -1},
        {"state": slots.OFFLINE},
    ],
)
def test_progress_of_former_epoch_is_dropped(bench: Bench, client: Client, change: dict[str, int]) -> None:
    slot = lead(bench, [1], [1])
    follower = Follower(bench, 1)
    fill(bench, client)
    with bench.held("t"):
        follower.fetch(1)
        slot.update(**change)
    bench.turn(5)
    assert (slot.state().hw, row_of(bench, 1).leo) == (0, replicas.UNKNOWN)


# -- refused, or informed where the logs diverge


def test_unassigned_broker_is_refused(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    stranger = Follower(bench, 7)
    assert stranger.fetch(0, epoch=0).error_code == errors.UNKNOWN_LEADER_EPOCH
    assert stranger.fetch(0).error_code == errors.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("state", "epoch", "error"),
    [
        (slots.LEADER, 2, errors.FENCED_LEADER_EPOCH),
        (slots.LEADER, 4, errors.UNKNOWN_LEADER_EPOCH),
        (slots.FOLLOWER, 3, errors.NOT_LEADER_OR_FOLLOWER),
        (slots.FOLLOWER, -1, errors.NOT_LEADER_OR_FOLLOWER),
        (slots.OFFLINE, 3, errors.KAFKA_STORAGE_ERROR),
    ],
)
def test_wrong_leader_or_epoch_is_refused(bench: Bench, client: Client, state: int, epoch: int, error: int) -> None:
    lead(bench, [1], [1], epoch=3)
    publish(bench, state=state)
    assert Follower(bench, 1).fetch(0, epoch=epoch, wait_ms=60_000).error_code == error


def test_fetch_outside_of_the_log_is_out_of_range(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    fill(bench, client, 3)
    publish(bench, log_start=2)
    follower = Follower(bench, 1)
    assert follower.fetch(1, last_epoch=0).error_code == errors.OFFSET_OUT_OF_RANGE
    assert follower.fetch(4).error_code == errors.OFFSET_OUT_OF_RANGE
    assert row_of(bench, 1).leo == replicas.UNKNOWN


def test_diverging_epoch_is_answered_without_progress(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1], epoch=5)
    fill(bench, client, 10)
    write_epochs(bench, (1, 0), (3, 4), (5, 8))
    follower = Follower(bench, 1)

    def diverging(offset: int, last_epoch: int) -> tuple[int, int] | None:
        found = follower.fetch(offset, last_epoch=last_epoch, wait_ms=60_000)
        assert found.error_code == 0
        told = found.diverging_epoch
        assert not (told and found.records)
        return (told.epoch, told.end_offset) if told else None

    assert diverging(8, 3) is None
    assert row_of(bench, 1).leo == 8
    assert diverging(9, 3) == (3, 8)
    assert diverging(6, 2) == (1, 4)
    assert diverging(6, 1) == (1, 4)
    assert diverging(12, 5) == (5, 10)
    assert row_of(bench, 1).leo == 8  # no progress is recorded from these
    assert follower.fetch(3, last_epoch=6).error_code == errors.OFFSET_OUT_OF_RANGE


def test_changed_epochs_are_read_again(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1], epoch=5)
    fill(bench, client, 6)
    write_epochs(bench, (1, 0), (5, 4))
    follower = Follower(bench, 1)
    assert follower.fetch(4, last_epoch=1).diverging_epoch is None
    write_epochs(bench, (1, 0), (5, 2), (6, 6))
    publish(bench, truncations=1)
    assert follower.fetch(4, last_epoch=1, wait_ms=60_000).diverging_epoch.end_offset == 2


def test_epochs_are_cached(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1], epoch=5)
    fill(bench, client, 6)
    write_epochs(bench, (1, 0), (5, 4))
    follower = Follower(bench, 1)
    follower.fetch(4, last_epoch=1)
    (bench.root / "t-0" / "leader-epoch-checkpoint").unlink()
    assert follower.fetch(5, last_epoch=1).diverging_epoch.end_offset == 4


@pytest.mark.parametrize("text", ["rubbish\n", "0\n0\n", None])
def test_broken_epoch_file_is_rebuilt(bench: Bench, client: Client, text: str | None) -> None:
    """Otherwise a follower would be refused until the next epoch, or truncated for an epoch that others follow."""
    lead(bench, [1], [1], epoch=5)
    fill(bench, client, 6)
    lead(bench, [1], [1], epoch=7)
    fill(bench, client, 2)
    file = bench.root / "t-0" / "leader-epoch-checkpoint"
    before = file.read_text()
    file.unlink() if text is None else file.write_text(text)
    found = Follower(bench, 1).fetch(7, last_epoch=5, epoch=7)
    assert (found.error_code, found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (errors.NONE, 5, 6)
    assert file.read_text() == before


def test_partition_that_is_not_here_is_refused(bench: Bench, client: Client) -> None:
    row = bench._topics["t"]["partitions"][0]
    row[0], row[2] = -1, 1
    bench._publish()
    assert Follower(bench, 1).fetch(0, wait_ms=60_000).error_code == errors.NOT_LEADER_OR_FOLLOWER
    assert Follower(bench, 1).fetch(0, 1, wait_ms=60_000).error_code == errors.UNKNOWN_TOPIC_OR_PARTITION


# -- the ISR


class _Rings:
    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rung: list[int] = []
        ring = bench.worker.catalog.log.ring
        monkeypatch.setattr(bench.worker.catalog.log, "ring", lambda role: (self.rung.append(role), ring(role)))

    def controller(self) -> int:
        return self.rung.count(roles.CONTROLLER)


@pytest.mark.usefixtures("later")
def test_controller_is_rung_when_a_follower_may_join(
    bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(bench, client, 4)
    publish(bench, hw=2)
    lead(bench, [1, 2], [1])
    publish(bench, epoch_start=3)
    rings = _Rings(bench, monkeypatch)
    two = Follower(bench, 2)
    two.fetch(1)
    two.fetch(2)
    assert rings.controller() == 0
    two.fetch(3)
    assert rings.controller() == 1
    two.fetch(4)
    assert rings.controller() == 1  # not more often than every 100 ms
    bench.worker.followers._next_ring = 0.0
    two.fetch(4)
    assert rings.controller() == 2
    publish(bench, hw=4)
    bench.worker.followers._next_ring = 0.0
    two.fetch(3)
    assert rings.controller() == 2
    replicas.set_isr_status(bench.slot("t"), {2: JOINING})
    bench.worker.followers._next_ring = 0.0
    two.fetch(4)
    assert rings.controller() == 2


def test_consumers_are_not_followers(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    fill(bench, client)
    consumer = bench.connect()
    for _ in range(2):
        found = consumer.call(calls.fetch_request("t", 0, wait_ms=0)).responses[0].partitions[0]
        assert (found.error_code, found.records or b"") == (0, b"")
    assert row_of(bench, 1).leo == replicas.UNKNOWN
    assert row_of(bench, 1).isr_status == IN
