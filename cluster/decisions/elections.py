"""Who leads a partition: Kafka's four elections (kafka.controller.Election), as pure functions.

`assignment` is the partition's replicas in order of preference, `live` the brokers whose replica is there and that are
not shutting down. Each gives the new leader and the isr it begins with, or None when nobody can be elected.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

NO_LEADER = -1


class Elected(NamedTuple):
    """An election's outcome; `unclean`: the leader was not in sync, so that what only others had is lost."""

    leader: int
    isr: tuple[int, ...]
    unclean: bool = False


def offline(
    assignment: Sequence[int], isr: Sequence[int], live: Collection[int], unclean: bool = False
) -> Elected | None:
    """For a partition whose leader is gone: the first live replica in sync; if there is none and `unclean`, any."""
    leader = _first_in_sync(assignment, isr, live)
    if leader is not None:
        return Elected(leader, tuple(broker for broker in isr if broker in live))
    leader = next((broker for broker in assignment if broker in live), None) if unclean else None
    return None if leader is None else Elected(leader, (leader,), unclean=True)


def reassignment(target: Sequence[int], isr: Sequence[int], live: Collection[int]) -> Elected | None:
    """For a partition whose leader is not among the replicas it moves to: the first of `target` that is in sync."""
    leader = _first_in_sync(target, isr, live)
    return None if leader is None else Elected(leader, tuple(isr))


def preferred(assignment: Sequence[int], isr: Sequence[int], live: Collection[int]) -> Elected | None:
    """Back to the first replica of the assignment, if it is there and in sync."""
    return reassignment(assignment[:1], isr, live)


def controlled_shutdown(
    assignment: Sequence[int], isr: Sequence[int], live: Collection[int], shutting_down: Collection[int]
) -> Elected | None:
    """Away from brokers that are `shutting_down` (whether or not `live` has them); they leave the isr too."""
    staying = tuple(broker for broker in isr if broker not in shutting_down)
    leader = _first_in_sync(assignment, staying, live)
    return None if leader is None else Elected(leader, staying)


def _first_in_sync(assignment: Sequence[int], isr: Collection[int], live: Collection[int]) -> int | None:
    return next((broker for broker in assignment if broker in live and broker in isr), None)
