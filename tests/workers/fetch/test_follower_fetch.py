"""Followers fetch up to the log end, which moves the high watermark; and only what has changed is looked at."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from odradek.ipc import replicas, roles, slots
from odradek.ipc.replicas import IN, JOINING, OUT
from odradek.protocol import errors
from odradek.storage.segment.epochs import EpochCache
from odradek.workers.fetch import follower_fetch, follower_progress

from ...clients.raw import batches, calls
from ...harness.wire import decode_response
from ..inprocess import Bench, Client
from ..leading import Follower, lead, now_ms, part, produce, publish, request
from ..produce.test_acks_all import outcomes, send


def fill(bench: Bench, client: Client, count: int = 1, topic: str = "t") -> None:
    """Append `count` batches of one record, without acks from followers."""
    for n in range(count):
        client.send(produce(client, [b"%d" % n], acks=1, topic=topic))
        client.answers(1)


def values_in(part: Any) -> list[bytes | None]:
    """The records of a partition's answer."""
    return [record.value for record in batches.parse(part.records)]


def row_of(bench: Bench, broker: int) -> replicas.Replica:
    return next(row for row in replicas.read(bench.slot("t")) if row.broker == broker)


class InSession:
    """A follower in a session; `ask` sends a request, `answer` decodes what came: {partition: answer}."""

    def __init__(self, bench: Bench, broker: int, topic: str = "t", version: int = 12, wait_ms: int = 60_000) -> None:
        self.bench, self.broker, self.topic, self.version, self.wait_ms = bench, broker, topic, version, wait_ms
        self.client = bench.connect()
        self.session = self.epoch = 0
        self.error = 0
        self._asked: Any = None

    def ask(self, parts: list[Any], **options: Any) -> None:
        fields = {"session": self.session, "session_epoch": self.epoch, "wait_ms": self.wait_ms, **options}
        self._asked = request(self.broker, parts, topic=self.topic, version=self.version, **fields)
        self.client.send(self.client.frame(self._asked))
        self.bench.turn(3)

    def answered(self) -> dict[int, Any] | None:
        """None: not yet."""
        frames = self.client.frames()
        return self._take(frames[0]) if frames else None

    def answer(self) -> dict[int, Any]:
        (frame,) = self.client.answers(1)
        return self._take(frame)

    def _take(self, frame: bytes) -> dict[int, Any]:
        found = decode_response(self._asked, frame)
        self.error, self.session = found.error_code, found.session_id or self.session
        self.epoch += 1
        return {part.partition_index: part for topic in found.responses for part in topic.partitions}

    def open(self, parts: list[Any]) -> dict[int, Any]:
        self.ask(parts, wait_ms=0)
        return self.answer()


@pytest.mark.parametrize("version", [0, 1, 4, 7, 11, 12, 14, 15, 17])
def test_reads_up_to_the_log_end(bench: Bench, client: Client, version: int) -> None:
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


def test_the_high_watermark_waits_for_all_that_count(bench: Bench, client: Client) -> None:
    slot = lead(bench, [1, 2, 3], [1])
    replicas.set_isr_status(slot, {2: JOINING})
    publish(bench, hw_quorum=3)
    one, two, three = (Follower(bench, n) for n in (1, 2, 3))
    fill(bench, client, 3)
    for follower, offset, hw in ((one, 3, 0), (three, 3, 0), (two, 2, 2), (one, 3, 2), (two, 3, 3), (two, 1, 3)):
        follower.fetch(offset)
        assert slot.state().hw == hw
    assert [(r.broker, r.leo) for r in replicas.read(slot)] == [(1, 3), (2, 1), (3, 3)]


def test_the_follower_fetches_and_the_producer_is_answered(bench: Bench, client: Client) -> None:
    slot = lead(bench, [1], [1])
    follower = Follower(bench, 1)
    assert send(bench, client, produce(client, [b"a"])) == []
    assert values_in(follower.fetch(0)) == [b"a"]
    bench.turn(3)
    assert (outcomes(client), slot.state().hw) == ([], 0)
    assert follower.fetch(1).error_code == 0
    bench.turn(3)
    assert (outcomes(client), slot.state().hw) == ([(1, errors.NONE, 0)], 1)


def test_nothing_is_acknowledged_by_those_who_count_no_longer(bench: Bench, client: Client) -> None:
    """The controller process died when the row was set, before it published how many the high watermark waits for."""
    slot = lead(bench, [1, 2], [1, 2], min_isr=3)
    follower = Follower(bench, 1)
    assert send(bench, client, produce(client, [b"a"])) == []
    replicas.set_isr_status(slot, {2: OUT})
    follower.fetch(1)
    bench.turn(3)
    assert outcomes(client) == [(1, errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1)]
    assert (slot.state().hw, slot.state().hw_quorum) == (1, 2)


def test_the_log_start_of_a_follower_is_kept(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    fill(bench, client)
    Follower(bench, 1).fetch(1, log_start=1)
    assert row_of(bench, 1)[2:4] == (1, 1)


def test_a_follower_that_fetched_all_there_was_is_caught_up(bench: Bench, client: Client) -> None:
    """At the end, or where the end was at its fetch before (Kafka's Replica.updateFetchState)."""
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


def test_while_the_lock_is_taken_progress_waits_and_the_fetch_does_not(bench: Bench, client: Client) -> None:
    slot = lead(bench, [1], [1])
    follower = Follower(bench, 1)
    assert send(bench, client, produce(client, [b"a"])) == []
    with bench.held("t"):
        assert follower.fetch(1).error_code == 0
        bench.turn(5)
        assert (slot.state().hw, row_of(bench, 1).leo, outcomes(client)) == (0, replicas.UNKNOWN, [])
    bench.turn(5)
    assert (slot.state().hw, outcomes(client)) == (1, [(1, errors.NONE, 0)])


def test_an_error_with_one_progress_that_waits_costs_that_one_alone(
    bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the partitions whose lock was taken, the first is still busy when the second one fails."""
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
    assert bench.slot("u").state().hw == 1, "the next fetch says it again"


@pytest.mark.parametrize(
    "change",
    [
        {"leader_epoch": 1, "led_since": 1},
        {"state": slots.FOLLOWER, "leader_epoch": 1, "led_since": -1},
        {"state": slots.OFFLINE},
    ],
)
def test_progress_of_a_former_epoch_is_not_taken(bench: Bench, client: Client, change: dict[str, int]) -> None:
    slot = lead(bench, [1], [1])
    follower = Follower(bench, 1)
    fill(bench, client)
    with bench.held("t"):
        follower.fetch(1)
        slot.update(**change)
    bench.turn(5)
    assert (slot.state().hw, row_of(bench, 1).leo) == (0, replicas.UNKNOWN)


# -- refused, or informed where the logs diverge


def test_who_is_no_follower_is_refused(bench: Bench, client: Client) -> None:
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
def test_not_the_leader_they_look_for(bench: Bench, client: Client, state: int, epoch: int, error: int) -> None:
    lead(bench, [1], [1], epoch=3)
    publish(bench, state=state)
    assert Follower(bench, 1).fetch(0, epoch=epoch, wait_ms=60_000).error_code == error


def test_out_of_range(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    fill(bench, client, 3)
    publish(bench, log_start=2)
    follower = Follower(bench, 1)
    assert follower.fetch(1, last_epoch=0).error_code == errors.OFFSET_OUT_OF_RANGE
    assert follower.fetch(4).error_code == errors.OFFSET_OUT_OF_RANGE
    assert row_of(bench, 1).leo == replicas.UNKNOWN


def _epochs(bench: Bench, *entries: tuple[int, int]) -> None:
    EpochCache(entries).write(bench.root / "t-0")
    publish(bench, epoch_noted=entries[-1][0])


def test_where_the_logs_part(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1], epoch=5)
    fill(bench, client, 10)
    _epochs(bench, (1, 0), (3, 4), (5, 8))
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
    assert row_of(bench, 1).leo == 8  # nothing of these is believed
    assert follower.fetch(3, last_epoch=6).error_code == errors.OFFSET_OUT_OF_RANGE


def test_the_epochs_are_read_again_when_they_change(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1], epoch=5)
    fill(bench, client, 6)
    _epochs(bench, (1, 0), (5, 4))
    follower = Follower(bench, 1)
    assert follower.fetch(4, last_epoch=1).diverging_epoch is None
    _epochs(bench, (1, 0), (5, 2), (6, 6))
    publish(bench, truncations=1)
    assert follower.fetch(4, last_epoch=1, wait_ms=60_000).diverging_epoch.end_offset == 2


def test_reading_the_epochs_costs_no_file_each_time(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1], epoch=5)
    fill(bench, client, 6)
    _epochs(bench, (1, 0), (5, 4))
    follower = Follower(bench, 1)
    follower.fetch(4, last_epoch=1)
    (bench.root / "t-0" / "leader-epoch-checkpoint").unlink()
    assert follower.fetch(5, last_epoch=1).diverging_epoch.end_offset == 4


@pytest.mark.parametrize("text", ["rubbish\n", "0\n0\n", None])
def test_epochs_whose_file_is_broken_are_built_again(bench: Bench, client: Client, text: str | None) -> None:
    """Else a follower would be refused until the next epoch begins, or truncated for an epoch that is followed."""
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


def test_no_partition_here(bench: Bench, client: Client) -> None:
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
def test_the_controller_hears_of_who_may_join(bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
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


# -- waiting


def test_a_fetch_at_the_end_waits_for_records_and_not_for_the_high_watermark(bench: Bench, client: Client) -> None:
    lead(bench, [1, 2], [1])
    follower = InSession(bench, 1)
    follower.open([part(0)])
    follower.ask([])
    assert follower.answered() is None
    fill(bench, client)
    found = follower.answer()
    assert (values_in(found[0]), found[0].high_watermark) == ([b"0"], 0)


def test_least_bytes(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    follower = InSession(bench, 1)
    follower.open([part(0)])
    follower.ask([], min_bytes=100)
    fill(bench, client)
    bench.turn(3)
    assert follower.answered() is None
    fill(bench, client)
    assert values_in(follower.answer()[0]) == [b"0", b"0"]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"state": slots.FOLLOWER, "leader_epoch": 1, "led_since": -1}, errors.NOT_LEADER_OR_FOLLOWER),
        ({"incarnation": 4711}, errors.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_leadership_is_lost_while_it_waits(bench: Bench, client: Client, change: dict[str, int], error: int) -> None:
    lead(bench, [1], [1])
    follower = InSession(bench, 1)
    follower.open([part(0)])
    follower.ask([])
    publish(bench, **change)
    assert follower.answer()[0].error_code == error


def test_a_fresh_high_watermark_is_told_soon(bench: Bench, client: Client, later: Callable[[float], None]) -> None:
    slot = lead(bench, [1], [1])
    follower = InSession(bench, 1)
    follower.open([part(0)])
    fill(bench, client)
    follower.ask([])
    assert values_in(follower.answer()[0]) == [b"0"]
    follower.ask([part(1)])
    assert (slot.state().hw, follower.answered()) == (1, None)
    bench.worker.followers.tick()
    assert follower.answered() is None  # records may come any moment
    later(follower_progress.PROGRESS_DELAY_S * 0.9)
    bench.worker.followers.tick()
    assert follower.answered() is None
    later(follower_progress.PROGRESS_DELAY_S * 0.2)
    found = follower.answer()
    assert (found[0].high_watermark, found[0].records or b"") == (1, b"")
    follower.ask([])
    later(1)
    began = time.monotonic()
    while time.monotonic() < began + 0.3:
        bench.turn()
    assert follower.answered() is None  # it knows


@pytest.mark.usefixtures("later")
def test_where_records_keep_coming_the_high_watermark_comes_with_them(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    follower = InSession(bench, 1)
    follower.open([part(0)])
    for n in range(20):
        follower.ask([part(n)] if n else [])
        fill(bench, client)
        found = follower.answer()
        assert (values_in(found[0]), found[0].high_watermark) == ([b"0"], n)


def test_a_moved_log_start_is_told_soon(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    fill(bench, client, 2)
    follower = InSession(bench, 1)
    follower.open([part(2)])
    follower.ask([])
    publish(bench, log_start=1)
    assert follower.answer()[0].log_start_offset == 1


def test_its_client_goes_while_something_is_to_be_told(
    bench: Bench, client: Client, later: Callable[[float], None]
) -> None:
    lead(bench, [1], [1])
    follower = InSession(bench, 1)
    follower.open([part(0)])
    follower.ask([])
    publish(bench, log_start=0, hw=0, leo=0, min_isr=2)
    follower.client.sock.close()
    publish(bench, hw=1, leo=1)
    later(follower_progress.PROGRESS_DELAY_S)
    bench.turn(3)
    bench.worker.followers.tick()
    assert (len(bench.worker.purgatory), bench.worker.followers._scheduled) == (0, {})


# -- sessions


def test_an_answer_within_a_session_holds_what_is_new(bench: Bench, client: Client) -> None:
    bench.topic("many", 20)
    for index in range(20):
        lead(bench, [1], [1], topic="many", index=index)
    follower = InSession(bench, 1, "many")
    assert sorted(follower.open([part(0, n) for n in range(20)])) == list(range(20))
    follower.ask([])
    for index in (3, 17):
        client.send(produce(client, [b"x"], acks=1, topic="many", partition=index))
        client.answers(1)
    found = follower.answer()
    (first,) = found
    follower.ask([part(1, first)])
    (second,) = [n for n, p in follower.answer().items() if p.records]
    assert {first, second} == {3, 17}
    publish(bench, "many", 5, log_start=0, state=slots.FOLLOWER, led_since=-1)
    follower.ask([part(1, second)])
    found = follower.answer()
    assert {n: p.error_code for n, p in found.items() if p.error_code} == {5: errors.NOT_LEADER_OR_FOLLOWER}
    follower.ask([])  # what is refused is refused again until it is forgotten
    assert follower.answer()[5].error_code == errors.NOT_LEADER_OR_FOLLOWER
    follower.ask([], forget=[("many", [5])])
    bench.turn(5)
    assert 5 not in (follower.answered() or {})


def test_a_follower_that_goes_back_is_served_again(bench: Bench, client: Client) -> None:
    """It was at the end, and nothing has changed since but that it truncated its log."""
    lead(bench, [1], [1])
    fill(bench, client, 2)
    follower = InSession(bench, 1, wait_ms=0)
    follower.open([part(2)])
    follower.ask([])
    assert follower.answer() == {}
    follower.ask([part(1)])
    assert values_in(follower.answer()[0]) == [b"1"]


def test_what_did_not_fit_comes_with_the_next_answer(bench: Bench, client: Client) -> None:
    bench.topic("many", 3)
    for index in range(3):
        lead(bench, [1], [1], topic="many", index=index)
        client.send(produce(client, [b"x" * 1000], acks=1, topic="many", partition=index))
        client.answers(1)
    follower = InSession(bench, 1, "many")
    follower.ask([part(0, n) for n in range(3)], max_bytes=1100)
    served = [n for n, p in follower.answer().items() if p.records]
    for _ in range(2):
        follower.ask([part(1, served[-1])], max_bytes=1100)
        served += [n for n, p in follower.answer().items() if p.records]
    assert served == [0, 1, 2]


def test_who_is_served_goes_to_the_back_of_the_line(bench: Bench, client: Client) -> None:
    """One partition that always has more does not starve the others."""
    bench.topic("many", 2)
    for index in range(2):
        lead(bench, [1], [1], topic="many", index=index)
    for index in (0, 0, 0, 1):
        client.send(produce(client, [b"x" * 1000], acks=1, topic="many", partition=index))
        client.answers(1)
    follower, served = InSession(bench, 1, "many"), []
    follower.ask([part(0, 0), part(0, 1)], max_bytes=1100)
    for _ in range(2):
        served += [n for n, p in follower.answer().items() if p.records]
        follower.ask([part(len(served), 0)], max_bytes=1100)
    assert served == [0, 1]


def test_a_session_also_reports_where_the_logs_diverge(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1], epoch=5)
    fill(bench, client, 10)
    _epochs(bench, (1, 0), (5, 8))
    follower = InSession(bench, 1)
    follower.open([part(8, last_epoch=1)])
    follower.ask([part(8, last_epoch=5)])
    assert follower.answer()[0].high_watermark == 8
    follower.ask([part(9, last_epoch=1)])
    assert follower.answer()[0].diverging_epoch.end_offset == 8


def test_only_changed_partitions_are_read(bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.topic("many", 50)
    for index in range(50):
        lead(bench, [1], [1], topic="many", index=index)
    follower = InSession(bench, 1, "many")
    follower.open([part(0, n) for n in range(50)])
    looked: list[int] = []
    look = follower_fetch.FollowerPartitions._look_at
    monkeypatch.setattr(
        follower_fetch.FollowerPartitions,
        "_look_at",
        lambda self, followed, *more: (looked.append(followed.part.partition), look(self, followed, *more))[1],
    )
    follower.ask([])
    follower.ask([])
    assert looked == []
    client.send(produce(client, [b"x"], acks=1, topic="many", partition=7))
    bench.turn(5)
    assert set(looked) == {7}


def test_idle_partitions_record_progress_periodically(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    follower = InSession(bench, 1, wait_ms=0)
    follower.open([part(0)])
    slot = bench.slot("t")
    session = next(iter(bench.worker.sessions._sessions.values()))
    slot.words[replicas.find(slot, 1) + 4] = 5
    follower.ask([])
    follower.answer()
    assert row_of(bench, 1).caught_up_ms == 5
    session.follower_partitions._refreshed -= 15  # half of replica.lag.time.max.ms
    follower.ask([])
    follower.answer()
    assert row_of(bench, 1).caught_up_ms > 5


def test_a_recreated_topic_is_found(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    follower = InSession(bench, 1)
    follower.open([part(0)])
    follower.ask([])
    bench.topic("t")
    lead(bench, [1], [1])
    bench.turn(3)
    if follower.answered() is not None:
        follower.ask([])
    fill(bench, client)
    assert values_in(follower.answer()[0]) == [b"0"]


def test_consumers_are_not_followers(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    fill(bench, client)
    consumer = bench.connect()
    for _ in range(2):
        found = consumer.call(calls.fetch_request("t", 0, wait_ms=0)).responses[0].partitions[0]
        assert (found.error_code, found.records or b"") == (0, b"")
    assert row_of(bench, 1).leo == replicas.UNKNOWN
    assert (row_of(bench, 1).isr_status, IN, OUT) == (IN, IN, OUT)
