"""Effects that fail affect only the group or transactional id that they are for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from odradek.broker.coordinator.effects import settle
from odradek.groups.ownership import RELOAD_PAUSE_MS
from odradek.groups.transactions.events import InitResult, Markers, NeedIds, Producer
from odradek.groups.transactions.states import State
from odradek.protocol.errors import Error

from ...groups.transaction_world import TransactionWorld


def test_markers_that_cannot_be_begun_are_begun_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = TransactionWorld()
    bad, good = world.ongoing("bad"), world.ongoing("good")
    failures, settled = iter([ValueError("a fault")]), world.settle

    def do(effect: Any) -> None:
        for failure in failures if isinstance(effect, Markers) and effect.transactional_id == "bad" else ():
            raise failure
        world._do(effect)

    def settle_as_the_process_does() -> None:
        settle(world.transactions, do, world.writer, world.log, world.now)  # type: ignore[arg-type]  # a test double
        settled()

    monkeypatch.setattr(world, "settle", settle_as_the_process_does)
    assert world.end(bad) is Error.NONE
    assert world.end(good) is Error.NONE
    world.mark()
    assert world.state("good") is State.COMPLETE_COMMIT
    (said,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert said.exc_info and "bad" in said.message
    world.wait(RELOAD_PAUSE_MS)
    world.mark()
    assert world.state("bad") is State.COMPLETE_COMMIT


def test_ids_that_cannot_be_asked_for_are_asked_for_again(caplog: pytest.LogCaptureFixture) -> None:
    """The waiting producer gets a retriable error; when it retries, there are ids."""
    world = TransactionWorld()
    failures = iter([ValueError("a fault")])

    def do(effect: Any) -> None:
        for failure in failures if isinstance(effect, NeedIds) else ():
            raise failure
        world._do(effect)

    answers = [answer_of_init(world, "p", do) for _ in range(2)]
    assert [answer.error for answer in answers] == [Error.COORDINATOR_NOT_AVAILABLE, Error.NONE]
    assert [record.exc_info is not None for record in caplog.records if record.levelno >= logging.ERROR] == [True]


def answer_of_init(world: TransactionWorld, name: str, do: Callable[[Any], None]) -> InitResult:
    """The response to a producer while `do` carries out effects."""
    world.transactions.init_producer_id(Producer(name, -1, -1), 60_000, name, world.now)
    settle(world.transactions, do, world.writer, world.log, world.now)  # type: ignore[arg-type]  # a test double
    (answer,) = world.answers.pop(name)
    assert isinstance(answer, InitResult)
    return answer
