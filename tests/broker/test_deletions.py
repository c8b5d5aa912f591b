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
