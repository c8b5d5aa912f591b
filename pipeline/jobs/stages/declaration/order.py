"""The order of stages that read one another's topics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Protocol, TypeVar


class Node(Protocol):
    """The attributes of a stage that matter here."""

    @property
    def name(self) -> str: ...

    @property
    def writes(self) -> tuple[str, ...]: ...

    @property
    def reads(self) -> tuple[str, ...]: ...


N = TypeVar("N", bound=Node)


def ordered(stages: Iterable[N]) -> tuple[N, ...]:
    """Each after those whose topics it reads, otherwise as given. CycleError where there is a `circle`."""
    given = {stage.name: stage for stage in stages}
    sorter = TopologicalSorter(_before(given.values()))
    sorter.prepare()
    found: list[N] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=list(given).index)
        found += [given[name] for name in ready]
        sorter.done(*ready)
    return tuple(found)


def circle(stages: Sequence[Node]) -> list[str]:
    """The names of stages that wait for one another, the first one again at the end; [] where there is none."""
    try:
        TopologicalSorter(_before(stages)).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _before(stages: Iterable[N]) -> dict[str, set[str]]:
    """The names of the stages that write what a stage reads, except for itself: that is a separate mistake."""
    all_ = list(stages)
    return {
        stage.name: {
            other.name for other in all_ if other.name != stage.name and set(other.writes).intersection(stage.reads)
        }
        for stage in all_
    }
