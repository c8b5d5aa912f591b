"""The brokers of this user on this machine, living and dead, as their run directories and regions show them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from odradek.broker import config as configuration
from odradek.broker.config import BrokerConfig, InvalidConfig
from odradek.broker.process import process
from odradek.broker.supervisor import leftovers
from odradek.ipc import processes, region_files, roles, run_note, rundir
from odradek.ipc.locks import RoleLocks
from odradek.ipc.region import RegionError
from odradek.ipc.region_files import RegionFile
from odradek.ipc.shm import Shared

RUNNING, STARTING, STOPPING = "running", "starting", "stopping"
UNSUPERVISED = "without supervisor"  # its other processes serve on
DEAD = "dead"  # no process
UNKNOWN = "unknown"  # regions without a run directory: it is elsewhere, or in a container
_STATES = {processes.RUNNING: RUNNING, processes.DRAINING: STOPPING}


class KnownBroker(NamedTuple):
    """One broker. `shm_bytes`: memory of its regions; `removed_by_start`: the next start of any broker of this user
    removes what it left; `pid` is the supervisor's. None: not known."""

    state: str
    pid: int | None
    processes: int
    listeners: list[str]
    data_dir: str | None
    run_dir: str | None
    key: str
    regions: int
    shm_bytes: int
    removed_by_start: bool

    def as_json(self) -> dict[str, Any]:
        """All fields."""
        return self._asdict()


def find(files: Sequence[RegionFile]) -> list[KnownBroker]:
    """Those with a run directory, then those of which only regions are found among `files`."""
    brokers = [one for folder in rundir.run_dirs() if (one := _at(folder, files)) is not None]
    keys = {one.key for one in files if one.uid == os.getuid()} - {one.key for one in brokers}
    return [*brokers, *(_unknown(key, files) for key in sorted(keys))]


def _at(run_dir: Path, files: Sequence[RegionFile]) -> KnownBroker | None:
    """The broker of a run directory; None where there is none."""
    config = _config(run_dir)
    try:
        locks = _locks(run_dir, config)
    except OSError:
        return None
    try:
        return _described(run_dir, config, locks, files)
    finally:
        locks.close()


def _config(run_dir: Path) -> BrokerConfig | None:
    try:
        return configuration.saved(run_dir)
    except (InvalidConfig, OSError, ValueError, KeyError, TypeError):  # not there yet, or of another version
        return None


def _locks(run_dir: Path, config: BrokerConfig | None) -> RoleLocks:
    if config is not None:
        return process.role_locks(config, create=False)
    return RoleLocks(run_dir / process.ROLE_LOCK, create=False)


def _described(
    run_dir: Path, config: BrokerConfig | None, locks: RoleLocks, files: Sequence[RegionFile]
) -> KnownBroker | None:
    note = run_note.decode(locks.note())
    data_dir = config.data_dir if config is not None else note.data_dir if note is not None else None
    if data_dir is None:
        return None
    living = [role for role in range(roles.ROLES) if locks.alive(role)]
    plan = leftovers.removable(run_dir, locks, files)
    key = rundir.broker_key(data_dir) if note is None else note.key
    own = plan.regions or [one for one in files if one.key == key]
    state, pid = _state(living, data_dir)
    listeners = [] if config is None else [str(endpoint) for endpoint in config.listeners]
    removed = bool(plan.regions or plan.directory)
    return KnownBroker(
        state, pid, len(living), listeners, data_dir, str(run_dir), key, len(own), _size(own), removed
    )  # fmt: skip


def _state(living: Sequence[int], data_dir: str) -> tuple[str, int | None]:
    """The state, and the supervisor's pid."""
    if roles.SUPERVISOR not in living:
        return (UNSUPERVISED if living else DEAD), None
    try:
        table = Shared.attach(rundir.shm_prefix(data_dir)).processes
    except (RegionError, OSError):
        return STARTING, None
    return _STATES.get(table.get(roles.SUPERVISOR, "state"), STARTING), table.get(roles.SUPERVISOR, "pid") or None


def _unknown(key: str, files: Sequence[RegionFile]) -> KnownBroker:
    own = [one for one in files if one.key == key]
    return KnownBroker(UNKNOWN, None, 0, [], None, None, key, len(own), _size(own), False)


def _size(regions: Sequence[RegionFile]) -> int:
    return sum(one.size for one in regions)


def now() -> list[KnownBroker]:
    """`find` with the regions that exist."""
    return find(region_files.found())
