"""Who waits for a topic's deletion is told once, and not kept after it has given up: a topic may wait for days."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from odradek.broker.deletions import Deletions


def _deletions() -> Deletions:
    def multi(operations: Any) -> None:
        pass

    tree = SimpleNamespace(removal=lambda path: [path], multi=multi)
    leadership = SimpleNamespace(topics={}, drop_topic=lambda topic: None)
    fenced = SimpleNamespace(in_office="in office")
    return Deletions(SimpleNamespace(tree=tree, leadership=leadership, fenced=fenced))  # type: ignore[arg-type]


def test_whoever_gave_up_is_neither_told_nor_kept() -> None:
    deletions, told = _deletions(), []
    forget = [deletions.when_gone("t", lambda error, n=n: told.append(n)) for n in range(3)]  # type: ignore[misc]
    forget[1]()
    forget[1]()
    assert len(deletions._waiting["t"]) == 2
    deletions._finish("t")
    assert told == [0, 2]
    forget[0]()


def test_one_that_is_told_may_give_up_for_all() -> None:
    deletions, told, forget = _deletions(), [], []

    def done(error: object) -> None:
        told.append(error)
        for each in forget:
            each()

    forget += [deletions.when_gone("t", done), deletions.when_gone("t", done)]
    deletions._finish("t")
    assert told == [None, None]


def test_who_dies_after_its_answer_is_asked_again() -> None:
    """A log directory of its had failed then, perhaps, with a log that it has again when it is back."""
    stopped: list[dict[Any, bool]] = []
    deletions = _deletions()
    leadership = deletions._leadership
    leadership.topics = {"t": SimpleNamespace(replicas={0: [1, 2]})}  # type: ignore[dict-item]
    leadership.live, leadership.deleting = {1: 0, 2: 0}, {"t"}
    answers = []

    def stop(replicas: dict[Any, bool], shown: object, answered: Any) -> None:
        stopped.append(replicas)
        answers.append(answered)

    deletions._elected.telling = SimpleNamespace(stop=stop)  # type: ignore[assignment]
    deletions._elected.attempt = lambda action: action()  # type: ignore[method-assign]
    gone: list[object] = []
    deletions.when_gone("t", gone.append)
    deletions.go_on()
    answers[0](2, 0, {})
    deletions.interrupted([2])
    answers[0](1, 0, {})
    assert not gone
    deletions.go_on()
    assert stopped == [{(("t", 0), 1): True, (("t", 0), 2): True}] * 2
    for broker in (1, 2):
        answers[1](broker, 0, {})
    assert gone == [None]
    deletions.go_on()
    leadership.topics.clear()  # by hand, before all have answered
    deletions.interrupted([1])
    assert not deletions._pending
