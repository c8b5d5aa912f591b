"""Gathers the facts of a broker: from rows of its process table, its shared memory, /proc and file systems.

A row is one of ipc.processes with `alive`, which the lock of its role says. Asks no process of the broker.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Mapping, Sequence
from typing import Any

from odradek.broker.config import BrokerConfig
from odradek.broker.findings.facts import Affected, DirFacts, Facts, ProcessFacts
from odradek.cluster.configs import adopted_configs
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.ipc import roles
from odradek.ipc.region import SHM
from odradek.ipc.shm import Shared
from odradek.storage.files import disks

Row = Mapping[str, Any]


def facts(
    config: BrokerConfig, shared: Shared, snapshot: Snapshot, rows: Sequence[Row], recovering: int,
    faults: Mapping[str, Affected],
) -> Facts:  # fmt: skip
    """The facts; `recovering` is a number of logs, `faults` has sets of partitions (partition_faults)."""
    now = time.time()
    return Facts(
        not_serving=not_serving(rows),
        is_stopping=shared.draining,
        recovering=recovering,
        starting=[row["name"] for row in rows if row["alive"] and row["state"] == "starting"],
        processes=[_process(row, now, shared.processes.is_hosted(row["role"])) for row in rows],
        dirs=_dirs(config.log_dirs, shared.failed_dirs()),
        keep_free=int(config["odradek.retention.free.bytes"]),
        shm=_dir(SHM, False),
        zookeeper=str(config["zookeeper.connect"]),
        zookeeper_lost_s=_zookeeper_lost_s(rows, now),
        certificate_days=certificate_days(rows, now),
        retention_unknown=retention_unknown(snapshot),
        **faults,
    )


def not_serving(rows: Sequence[Row]) -> str:
    """Why the broker accepts no connections; empty when it does."""
    running = {row["role"] for row in rows if row["alive"] and row["state"] == "running"}
    if roles.ACCEPTOR not in running:
        return "the acceptor does not run"
    if not any(role >= roles.FIRST_WORKER for role in running):
        return "no worker runs"
    return ""


def retention_unknown(snapshot: Snapshot) -> list[str]:
    """Adopted topics whose retention is still unknown."""
    mark = adopted_configs.MARK
    return sorted(
        topic for topic, value in snapshot.overrides(mark).items() if adopted_configs.is_marked({mark: value})
    )


def certificate_days(rows: Sequence[Row], now: float) -> float | None:
    """Days until the first certificate in force expires; None without one."""
    expiries = [row["certificate_expires"] for row in rows if row["alive"] and row["certificate_expires"]]
    return round((min(expiries) - now) / 86_400, 1) if expiries else None


def _zookeeper_lost_s(rows: Sequence[Row], now: float) -> float | None:
    lost = [row["zookeeper_lost_ms"] for row in rows if row["alive"] and row["zookeeper_lost_ms"]]
    return max(0.0, now - lost[0] / 1000) if lost else None


def _process(row: Row, now: float, is_hosted: bool) -> ProcessFacts:
    files, limit = _files(row["pid"]) if row["alive"] and not is_hosted else (0, 0)
    up_s = now - row["started_ms"] / 1000
    is_worker = row["role"] >= roles.FIRST_WORKER
    restarts = row["starts"] - 1 - row["retired"]
    is_retired = bool(row["is_retired"])
    return ProcessFacts(row["name"], is_worker, row["alive"], restarts, up_s, files, limit, is_retired)


def _files(pid: int) -> tuple[int, int]:
    """Open descriptors of a process and their limit; zeros where this user may not see them."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd")), resource.prlimit(pid, resource.RLIMIT_NOFILE)[0]
    except (OSError, ValueError):
        return 0, 0


def _dirs(paths: Sequence[str], failed: Sequence[int]) -> list[DirFacts]:
    return [_dir(path, number in failed) for number, path in enumerate(paths)]


def _dir(path: str, has_failed: bool) -> DirFacts:
    """A failed disk is not asked: it may never answer."""
    try:
        space = disks.DiskSpace(0, 0) if has_failed else disks.disk_space(path)
    except OSError:
        space = disks.DiskSpace(0, 0)
    return DirFacts(path, has_failed, *space)
