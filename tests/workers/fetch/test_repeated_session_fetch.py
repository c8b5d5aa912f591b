"""A cached Fetch in a session has the answers and effects of the decoded request."""

from __future__ import annotations

import random
import struct
import uuid
from typing import Any

import pytest

from ...clients.raw import batches, calls
from ..inprocess import Bench, Client

LONG_WAIT = 60_000


class _InSession:
    """A client in a session of partition 0 of `t`; `memory`: whether its requests are cached."""

    def __init__(self, bench: Bench, version: int, memory: bool, **options: Any) -> None:
        self.bench, self.version, self.memory, self.options = bench, version, memory, options
        self.client: Client = bench.connect()
        self.session = self.epoch = self.remembered = 0

    def ask(self, *parts: Any, epoch: int | None = None, **options: Any) -> None:
        topic: Any = uuid.UUID(bytes=self.bench.id_of("t")) if self.version >= 13 else "t"
        request = calls.session_request(
            [(topic, list(parts))] if parts else [], version=self.version, session=self.session,
            session_epoch=self.epoch if epoch is None else epoch, **{**self.options, **options},
        )  # fmt: skip
        connection = self.bench.connection(self.client)
        if not self.memory:
            connection.repeated = None
        former = connection.repeated
        self.client.send(self.client.frame(request))
        self.bench.turn(2)
        self.remembered += former is not None and former is connection.repeated

    def answer(self) -> bytes | None:
        """The answer, without correlation and session ids."""
        frames = self.client.frames()
        assert len(frames) <= 1
        if not frames:
            return None
        at = 11 if self.version >= 12 else 10
        (error, session) = struct.unpack_from(">hi", frames[0], at - 2)
        self.session = session or self.session
        self.epoch += not error
        return frames[0][4:at] + frames[0][at + 4 :]

    def state(self) -> Any:
        session = self.bench.worker.sessions._sessions.get(self.session)
        return session and (session.epoch, session.parts, session.last_sent)


class _Pair:
    def __init__(self, bench: Bench, version: int, **options: Any) -> None:
        self.bench, self.producer = bench, bench.connect()
        self.both = [_InSession(bench, version, memory, **options) for memory in (True, False)]

    def ask(self, *parts: Any, **options: Any) -> None:
        for one in self.both:
            one.ask(*parts, **options)

    def same(self) -> bytes | None:
        short, long = [one.answer() for one in self.both]
        assert short == long
        assert self.both[0].state() == self.both[1].state()
        return short

    def produce(self, values: list[bytes]) -> None:
        self.producer.call(calls.produce_request("t", batches.batch(values)))
        self.bench.turn(2)

    def open(self) -> None:
        self.ask(calls.part(0, 0), wait_ms=0)
        assert self.same()


@pytest.mark.parametrize("version", [7, 9, 11, 12, 13, 15, 17])
@pytest.mark.parametrize("isolation", [0, 1])
def test_tail_fetch_in_a_session_is_answered_alike(bench: Bench, version: int, isolation: int) -> None:
    pair = _Pair(bench, version, isolation=isolation, wait_ms=LONG_WAIT)
    pair.open()
    for offset in range(5):
        pair.ask(calls.part(0, offset))
        assert pair.same() is None
        pair.produce([b"%d" % offset])
        answer = pair.same()
        assert answer
        assert b"%d" % offset in answer
    assert [one.remembered for one in pair.both] == [4, 0]


def test_answer_without_changes_has_no_topics(bench: Bench) -> None:
    pair = _Pair(bench, 11, wait_ms=0)
    pair.open()
    answers = []
    for _ in range(4):
        pair.ask(calls.part(0, 0))
        answers.append(pair.same())
    pair.ask()
    assert answers == [pair.same()] * 4
    assert pair.both[0].remembered == 3


@pytest.mark.parametrize("epoch", [0, 1, 7, -1])
def test_wrong_session_epoch_is_answered_alike(bench: Bench, epoch: int) -> None:
    pair = _Pair(bench, 11, wait_ms=0)
    pair.open()
    for _ in range(3):
        pair.ask(calls.part(0, 0))
        assert pair.same()
    pair.ask(calls.part(0, 0), epoch=epoch)
    assert pair.same()


def test_removed_or_extended_session_is_answered_alike(bench: Bench) -> None:
    bench.grow("t", 2)
    pair = _Pair(bench, 11, wait_ms=0)
    pair.open()
    for parts in [[0], [0], [0, 1], [0], [0]]:
        pair.ask(*(calls.part(index, 0) for index in parts))
        assert pair.same()
    assert pair.both[0].remembered == 1
    for one in pair.both:
        del bench.worker.sessions._sessions[one.session]
    pair.ask(calls.part(0, 0))
    answer = pair.same()
    assert answer
    assert struct.unpack_from(">h", answer, 4) == (70,)  # FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("seed", range(12))
def test_any_sequence_in_a_session_is_answered_alike(bench: Bench, seed: int) -> None:
    chance = random.Random(seed)
    pair = _Pair(bench, chance.choice([7, 11, 15]), isolation=seed % 2, min_bytes=chance.choice([0, 1, 400]))
    pair.open()
    slot = bench.slot("t")
    for _ in range(60):
        what = chance.randrange(8)
        if what < 2:
            pair.produce([b"x" * chance.choice([1, 300, 20_000])])
        elif what == 2:
            change = chance.choice(["hw", "unstable", "log_start", "back"])
            state = slot.state()
            slot.update(**_changed(change, state))
        else:
            tail = chance.randrange(3)
            offset = slot.state().leo - chance.randrange(3) if tail else chance.randrange(5)
            pair.ask(*([calls.part(0, offset)] if chance.randrange(6) else []), wait_ms=chance.choice([0, LONG_WAIT]))
            bench.worker.purgatory.answer_all()
        pair.same()
    assert pair.both[0].remembered


def _changed(change: str, state: Any) -> dict[str, int]:
    return {
        "hw": {"hw": max(state.log_start, state.hw - 1)},
        "unstable": {"unstable": max(state.log_start, state.leo - 1)},
        "log_start": {"log_start": min(state.hw, state.log_start + 1)},
        "back": {"hw": state.leo, "unstable": -1},
    }[change]
