"""Measurements of a cluster other than the loads of the table: a name, and its work for some rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.loadtest.clusters import catching_up, cluster_rows, failovers
from odradek.loadtest.clusters.clusters import Cluster
from odradek.loadtest.measurements.curves import Bench

_MOST_ROUNDS = 3
Found = dict[str, Any]
Work = Callable[[Cluster, Bench], list[Found]]


def _rounds(once: Callable[[Cluster, Bench], Found]) -> Work:
    return lambda cluster, bench: [once(cluster, bench) for _ in range(min(bench.rounds, _MOST_ROUNDS))]


def _failover(cluster: Cluster, bench: Bench) -> Found:
    one: Found = {}
    for count in failovers.FAILOVER_PARTITIONS:
        one |= {f"{name}_{count}": value for name, value in failovers.failover(cluster, count).items()}
    return one


WORKS: dict[str, Work] = {
    cluster_rows.IDLE: _rounds(lambda cluster, bench: cluster_rows.idle(cluster)),
    catching_up.CATCH_UP: _rounds(lambda cluster, bench: catching_up.catch_up(cluster, bench.scale)),
    failovers.CONTROLLER: _rounds(lambda cluster, bench: failovers.controller_failover(cluster)),
    failovers.FAILOVER: _rounds(_failover),
}
