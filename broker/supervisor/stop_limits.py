"""Timeouts of the stages of a stop, in seconds: one table, so that a waiting process outwaits a working one.

A process ends by itself when its own time is over (`own_s`); the supervisor kills it a margin later (`limit_s`), and
systemd, where it is the parent, a margin after that (`unit_s`): no process is killed just before it is done. A
controlled shutdown may take as long as its tries (`departure_s`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from odradek.ipc import roles

MARGIN_S = 5.0  # to end in after the timeout: connections to close, a disk that answers late
ANSWER_S = 5.0  # for a controller to answer one try of a controlled shutdown
DEATH_S = 30.0  # for the kernel to end a killed process, which may be waiting for a disk
WRITER_S = 10.0  # for another process to finish a checkpoint, although none should run
_UNIT_S = 30.0  # systemd need not be in a hurry
_WORKERS = tuple(range(roles.FIRST_WORKER, roles.ROLES))


class StopStage(NamedTuple):
    """Processes that stop together. `own_s`: the most they take; they are killed after `limit_s`."""

    roles: tuple[int, ...]
    own_s: float

    @property
    def limit_s(self) -> float:
        return self.own_s + MARGIN_S

    @property
    def unit_s(self) -> int:
        """TimeoutStopSec= of the units of these processes."""
        return math.ceil(max(self.limit_s + MARGIN_S, _UNIT_S))


# Dependencies decide the order: no new connections, then no requests, then no state to keep.
ORDER = (
    (roles.ACCEPTOR,),
    _WORKERS,
    (roles.COORDINATOR,),
    (roles.REPLICATOR,),
    (roles.EXPORTER,),
    (roles.JANITOR,),
    (roles.CONTROLLER,),
)
_OWN_S = {roles.ACCEPTOR: 0.0}  # it has nothing to finish
_REST_S = 5.0  # one turn of a loop, which may be waiting for the disk


def drain_s(config: Mapping[str, Any]) -> float:
    """How long a worker waits for its connections' last answers (odradek.drain.timeout.ms)."""
    return float(config["odradek.drain.timeout.ms"]) / 1000


def stages(config: Mapping[str, Any]) -> list[StopStage]:
    """All stages, in order."""
    return [StopStage(of, drain_s(config) if of is _WORKERS else _OWN_S.get(of[0], _REST_S)) for of in ORDER]


def stage_of(role: int, config: Mapping[str, Any]) -> StopStage:
    """The stage in which `role` stops."""
    return next(stage for stage in stages(config) if role in stage.roles)


def departure_s(config: Mapping[str, Any]) -> float:
    """How long to wait for a controlled shutdown: for all its tries, and the pauses between them."""
    if not config["controlled.shutdown.enable"]:
        return MARGIN_S
    retries = config["controlled.shutdown.max.retries"]
    pauses_s = retries * config["controlled.shutdown.retry.backoff.ms"] / 1000
    return float((retries + 1) * ANSWER_S + pauses_s + MARGIN_S)


def departure_unit_s(config: Mapping[str, Any]) -> int:
    """TimeoutStopSec= of odradek-cluster.service."""
    return math.ceil(departure_s(config) + MARGIN_S)


def whole_s(config: Mapping[str, Any]) -> float:
    """How long a whole stop may take, without the final syncs."""
    leaving_s = departure_s(config) if config["zookeeper.connect"] else 0.0
    return leaving_s + sum(stage.limit_s for stage in stages(config))
