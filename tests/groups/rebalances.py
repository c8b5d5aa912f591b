"""Timeouts and protocols of these tests, and the state of a group."""

from __future__ import annotations

from odradek.groups.group import State

from .world import RANGE, World

ROUND_ROBIN = (("roundrobin", RANGE[0][1]),)
SESSION, REBALANCE, DELAY = 10_000, 60_000, 3_000


def state(world: World, group: str = "g") -> State:
    found = world.groups.get(group)
    assert found is not None
    return found.state
