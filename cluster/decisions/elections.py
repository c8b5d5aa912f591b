"""Kafka's four leader elections (kafka.controller.Election), as pure functions.

`assignment` has the partition's replicas in order of preference, `live` the brokers that have a working replica and are
not shutting down. Each returns the new leader and its first isr, or None when no replica is eligible.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

NO_LEADER = -1


class ElectionResult(NamedTuple):
    """An election's result; `unclean`: the leader was not in sync, so records that it lacks are lost."""

    leader: int
    isr: tuple[int, ...]
    unclean: bool = False


def offline(
    assignment: Sequence[int], isr: Sequence[int], live: Collection[int], unclean: bool = False
) -> ElectionResult | None:
    """For a partition without its leader: the first live in-sync replica; else, if `unclean`, the first live one."""
    leader = _first_in_sync(assignment, isr, live)
    if leader is not None:
        return ElectionResult(leader, tuple(broker for broker in isr if broker in live))
    leader = next((broker for broker in assignment if broker in live), None) if unclean else None
    return None if leader is None else ElectionResult(leader, (leader,), unclean=True)


def reassignment(target: Sequence[int], isr: Sequence[int], live: Collection[int]) -> ElectionResult | None:
    """For a reassigned partition whose leader is not in `target`: the first live in-sync replica of `target`."""
    leader = _first_in_sync(target, isr, live)
    return None if leader is None else ElectionResult(leader, tuple(isr))


def preferred(assignment: Sequence[int], isr: Sequence[int], live: Collection[int]) -> ElectionResult | None:
    """The first replica of the assignment, if it is live and in sync."""
    return reassignment(assignment[:1], isr, live)


def controlled_shutdown(
    assignment: Sequence[int], isr: Sequence[int], live: Collection[int], shutting_down: Collection[int]
) -> ElectionResult | None:
    """A leader that is not `shutting_down` (`live` may contain those); brokers that are leave the isr too."""
    staying = tuple(broker for broker in isr if broker not in shutting_down)
    leader = _first_in_sync(assignment, staying, live)
    return None if leader is None else ElectionResult(leader, staying)


def _first_in_sync(assignment: Sequence[int], isr: Collection[int], live: Collection[int]) -> int | None:
    return next((broker for broker in assignment if broker in live and broker in isr), None)
