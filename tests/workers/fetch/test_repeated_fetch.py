"""A cached Fetch has the answers of the decoded request: of two clients with equal requests, one is never cached."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.ipc import slots
from odradek.storage.log import read, roll

from ...clients.raw import batches, calls
from ..inprocess import Bench
from ..inprocess import bench as make

VERSIONS = range(4, 18)
LONG_WAIT = 60_000


class _Pair:
    """A client whose requests are cached, and one whose requests never are."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.short, self.long, self.producer = bench.connect(), bench.connect(), bench.connect()
        self.remembered = 0

    def produce(self, values: list[bytes], **fields: Any) -> None:
        self.producer.call(calls.produce_request("t", batches.batch(values, **fields)))

    def _frames(self, offset: int, version: int, **options: Any) -> tuple[bytes, bytes]:
        topic: Any = uuid.UUID(bytes=self.bench.id_of("t")) if version >= 13 else "t"
        request = calls.fetch_request(topic, offset, version=version, **options)
        return self.short.frame(request), self.long.frame(request)

    def send(self, offset: int, version: int, **options: Any) -> None:
        short, long = self._frames(offset, version, **options)
        former = self.bench.connection(self.short).repeated
        self.bench.connection(self.long).repeated = None
        self.short.send(short)
        self.long.send(long)
        self.bench.turn(2)
        self.remembered += former is not None and former is self.bench.connection(self.short).repeated

    def same_answers(self) -> int:
        """Compare all answers so far; returns how many there were."""
        short, long = self.short.frames(), self.long.frames()
        assert [frame[4:] for frame in short] == [frame[4:] for frame in long]
        return len(short)

    def roll(self) -> None:
        partition = self.bench.worker.partition_of(b"t", 0, False)
        assert partition is not None
        with partition.locked() as values:
            roll.roll(partition, values)

    @property
    def waiting(self) -> bool:
        states = [self.bench.connection(client).waits for client in (self.short, self.long)]
        assert states[0] == states[1]
        return states[0]

    def end_wait(self) -> None:
        if self.waiting:
            self.bench.worker.purgatory.answer_all()
            self.bench.turn()
        assert not self.waiting


@pytest.fixture
def pair(bench: Bench) -> _Pair:
    return _Pair(bench)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("isolation", [0, 1])
def test_tail_fetch_in_every_version_is_answered_alike(pair: _Pair, version: int, isolation: int) -> None:
    for offset in range(4):
        pair.send(offset, version, wait_ms=LONG_WAIT, isolation=isolation)
        assert pair.waiting
        pair.produce([b"%d" % offset])
        assert not pair.waiting
        assert pair.same_answers() == 1
    assert pair.remembered == 3


def test_wait_that_ends_without_records_is_answered_alike(pair: _Pair) -> None:
    for _ in range(3):
        pair.send(0, 11, wait_ms=20)
        while len(pair.bench.worker.purgatory):
            pair.bench.turn()
        assert pair.same_answers() == 1
    assert pair.remembered == 2


def test_pipelined_fetches_wait_one_after_the_other(bench: Bench) -> None:
    client, producer = bench.connect(), bench.connect()
    for offset in range(3):
        client.send(client.frame(calls.fetch_request("t", offset, wait_ms=LONG_WAIT)))
    for count in range(3):
        bench.turn(2)
        assert len(bench.worker.purgatory) == 1
        producer.call(calls.produce_request("t", batches.batch([b"v"])))
        assert len(client.answers()) == 1, count
    assert len(bench.worker.purgatory) == 0


def test_metadata_change_during_a_wait_is_answered_alike(pair: _Pair) -> None:
    pair.produce([b"a"])
    for offset in (0, 1):
        pair.send(offset, 11, wait_ms=LONG_WAIT)
    assert pair.same_answers() == 1
    pair.bench.configure("t", retention_ms="100000000")
    pair.bench.turn(2)
    assert pair.waiting
    pair.produce([b"b"])
    assert not pair.waiting
    assert pair.same_answers() == 1


def test_a_hundred_equal_fetches_read_the_log_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    clients, producer, reads = [bench.connect() for _ in range(100)], bench.connect(), []
    real = read.end_of_log
    monkeypatch.setattr(read, "end_of_log", lambda *a: reads.append(a) or real(*a))
    for offset in range(3):
        for client in clients:
            client.send(client.frame(calls.fetch_request("t", offset, wait_ms=LONG_WAIT)))
        bench.turn(2)
        producer.call(calls.produce_request("t", batches.batch([b"v%d" % offset])))
        answers = {client.answers()[0][4:] for client in clients}
        assert len(answers) == 1
    assert len(reads) <= 4  # the first request is not cached yet


def test_cached_fetch_of_a_disconnected_client_is_removed(bench: Bench) -> None:
    client, producer = bench.connect(), bench.connect()
    for offset in range(2):
        client.send(client.frame(calls.fetch_request("t", offset, wait_ms=LONG_WAIT)))
        bench.turn(2)
        producer.call(calls.produce_request("t", batches.batch([b"v"])))
        client.answers()
    client.send(client.frame(calls.fetch_request("t", 2, wait_ms=LONG_WAIT)))
    bench.turn(2)
    assert len(bench.worker.purgatory) == 1
    client.sock.close()
    bench.turn(2)
    assert len(bench.worker.purgatory) == 0
    producer.call(calls.produce_request("t", batches.batch([b"v"])))


@pytest.mark.parametrize("offset", [-1, -(1 << 63), (1 << 63) - 1])
def test_impossible_offset_is_answered_alike(pair: _Pair, offset: int) -> None:
    for _ in range(3):
        pair.send(offset, 11, wait_ms=LONG_WAIT)
        assert not pair.waiting
        assert pair.same_answers() == 1
    assert pair.remembered == 2


Step = Callable[[_Pair], None]


def _produce(count: int, size: int) -> Step:
    return lambda pair: pair.produce([b"x" * size] * count)


def _fetch(offset: int, tail: bool, options: dict[str, Any]) -> Step:
    def step(pair: _Pair) -> None:
        pair.end_wait()
        pair.same_answers()
        state = pair.bench.slot("t").state()
        pair.send(state.leo - min(offset, 2) if tail else offset, **options)

    return step


def _change(change: Callable[[slots.SlotState], dict[str, int]]) -> Step:
    def step(pair: _Pair) -> None:
        slot = pair.bench.slot("t")
        slot.update(**change(slot.state()))
        pair.bench.worker.purgatory.on_wakeup()

    return step


def _turned(change: Callable[[Bench], None]) -> Step:
    def step(pair: _Pair) -> None:
        change(pair.bench)
        pair.bench.turn(2)

    return step


_CHANGES: list[Step] = [
    _change(lambda state: {"hw": max(state.log_start, state.hw - 1)}),
    _change(lambda state: {"hw": state.leo}),
    _change(lambda state: {"unstable": max(state.log_start, state.leo - 2)}),
    _change(lambda state: {"unstable": -1}),
    _change(lambda state: {"log_start": min(state.hw, state.log_start + 1)}),
    _change(lambda state: {"leader_epoch": state.leader_epoch + 1}),
    _change(lambda state: {"state": slots.FOLLOWER}),
    _change(lambda state: {"state": slots.LEADER}),
    _change(lambda state: {"incarnation": state.incarnation + 50_000}),
    _turned(lambda bench: bench.configure("t", segment_bytes="3000")),
    _turned(lambda bench: bench.topic("t", segment_bytes="2000")),
]


@pytest.mark.parametrize("change", range(len(_CHANGES)))
@pytest.mark.parametrize("isolation", [0, 1])
@pytest.mark.parametrize("partition_bytes", [300, 1_000_000])
@pytest.mark.parametrize("epoch", [-1, 0])
def test_change_between_equal_requests_is_answered_alike(
    pair: _Pair, change: int, isolation: int, partition_bytes: int, epoch: int
) -> None:
    def ask(*offsets: int) -> None:
        for offset in offsets:
            pair.send(offset, 11, isolation=isolation, partition_bytes=partition_bytes, epoch=epoch, wait_ms=0)
            assert pair.same_answers() == 1

    pair.produce([b"a" * 100])
    ask(0, 1)
    for _ in range(3):
        pair.produce([b"b" * 100])
    ask(1, 0, 2)
    _CHANGES[change](pair)
    ask(2, 1, 0, 3, 4, 5)
    assert pair.remembered >= 4


_OPTIONS = st.fixed_dictionaries(
    {
        "version": st.sampled_from([4, 5, 7, 9, 11, 12, 13, 15, 17]),
        "wait_ms": st.sampled_from([0, LONG_WAIT]),
        "isolation": st.sampled_from([0, 1]),
        "min_bytes": st.sampled_from([0, 1, 700]),
        "max_bytes": st.sampled_from([0, 500, 50_000_000]),
        "partition_bytes": st.sampled_from([0, 400, 1_000_000]),
        "epoch": st.sampled_from([-1, 0, 1]),
    }
)


@st.composite
def _steps(draw: st.DrawFn) -> list[Step]:
    """Draw few kinds of requests, so that they repeat."""
    kinds = draw(st.lists(_OPTIONS, min_size=1, max_size=2))
    fetch = st.builds(_fetch, st.integers(0, 30), st.booleans(), st.sampled_from(kinds))
    produce = st.builds(_produce, st.integers(1, 3), st.sampled_from([1, 200, 900, 20_000]))
    return draw(st.lists(st.one_of(fetch, produce, fetch, st.sampled_from(_CHANGES)), min_size=5, max_size=40))


@given(_steps())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_any_sequence_is_answered_alike(tmp_path_factory: pytest.TempPathFactory, steps: list[Step]) -> None:
    with make(tmp_path_factory.mktemp("standing")) as bench:
        pair = _Pair(bench)
        for step in steps:
            step(pair)
            pair.bench.turn()
            pair.same_answers()
        pair.end_wait()
        pair.same_answers()


def test_fetch_in_a_sealed_segment_does_not_wait(pair: _Pair) -> None:
    """As in Kafka (DelayedFetch, case F): a sealed segment gets no more records, and later records exist."""
    for number in range(3):
        pair.produce([b"%d" % number])
        pair.roll()
    for offset in range(3):
        pair.send(offset, 11, wait_ms=LONG_WAIT, min_bytes=10_000)
        assert pair.waiting == (offset == 2)
        pair.end_wait()
        assert pair.same_answers() == 1
    assert pair.remembered == 2


@pytest.mark.parametrize("isolation", [0, 1])
def test_fetch_in_the_active_segment_waits_for_min_bytes(pair: _Pair, isolation: int) -> None:
    pair.produce([b"0"])
    pair.roll()
    pair.produce([b"1"])
    for offset in (1, 1):
        pair.send(offset, 11, wait_ms=LONG_WAIT, min_bytes=10_000, isolation=isolation)
        assert pair.waiting
        pair.end_wait()
        assert pair.same_answers() == 1
