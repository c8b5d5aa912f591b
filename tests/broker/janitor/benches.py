"""Maker of a test's partitions, and a partition that this broker follows."""

from __future__ import annotations

from collections.abc import Callable

from odradek.ipc import slots

from ..partitions import Bench

Maker = Callable[..., Bench]


def follow(log: Bench, index: int = 0) -> None:
    log.partition(index).slot.update(state=slots.FOLLOWER)
