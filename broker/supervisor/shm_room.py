"""Whether /dev/shm has room for a broker, before its regions are created, and what fills it if not.

The processes of a broker create some of their regions after the supervisor's, when it is late for a clear error.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence

from odradek.broker.config import BrokerConfig
from odradek.broker.errors import BootError
from odradek.broker.supervisor import known_brokers, machine_limits
from odradek.broker.supervisor.known_brokers import KnownBroker
from odradek.cluster.configs import quota_windows
from odradek.ipc import latencies, partition_counts, quotas, region_files, shm, slots
from odradek.ipc.region import SHM
from odradek.security.quotas.rates import Rate

_METADATA = 256 << 10  # bytes: two versions of little metadata, and headers
_NAMED = 3


def check(config: BrokerConfig) -> None:
    """Raises BootError, without /dev/shm or with too little room in it."""
    try:
        room = os.statvfs(SHM)
    except OSError:
        raise BootError(machine_limits.NO_SHM) from None
    if room.f_blocks and room.f_bavail * room.f_frsize < needed(config):  # no blocks: it has no limit
        raise BootError(full(config))


def needed(config: BrokerConfig) -> int:
    """Bytes of the regions that a start creates. Partitions with idempotent producers take more."""
    chunks: int = -(-config["odradek.partition.slots"] // slots.CHUNK)
    rates = quotas.bytes_for(Rate.size(quota_windows.client_window(config)))
    workers = config.workers * (latencies.SIZE + partition_counts.SIZE)
    return shm.CONTROL_SIZE + chunks * slots.CHUNK * slots.STRIDE * 8 + rates + workers + _METADATA


def full(config: BrokerConfig) -> str:
    """The line of a start without room: what there is, what fills it, what to do."""
    room = os.statvfs(SHM)
    free, size = _mib(room.f_bavail * room.f_frsize), _mib(room.f_blocks * room.f_frsize)
    fills = "; ".join(_fills(config)) or "it is that small"
    return (
        f"{SHM} has no room for this broker, which takes {_mib(needed(config))} MiB: {free} of {size} MiB are free; "
        f"{fills}. Enlarge it (mount -o remount,size=1g {SHM}; with containers --shm-size=1g), or stop what fills it "
        "(`odradek status --all`), or lower odradek.partition.slots"
    )


def _fills(config: BrokerConfig) -> Iterator[str]:
    """One text for each kind of what is in /dev/shm."""
    files = region_files.found()
    brokers = [one for one in known_brokers.find(files) if one.run_dir != str(config.run_dir)]
    yield from _brokers("running", [one for one in brokers if one.processes])
    yield from _brokers("dead", [one for one in brokers if one.state == known_brokers.DEAD])
    ours = {one.key for one in brokers if one.run_dir is not None}
    left = [one for one in files if one.key not in ours]
    if left:
        keys = sorted({one.key for one in left})
        what = _names([f"{SHM}/odradek-{key}-*" for key in keys])
        yield f"{_mib(sum(one.size for one in left))} MiB belong to brokers that are not known here ({what})"
    yield from _other_files({one.name for one in files})


def _brokers(kind: str, brokers: Sequence[KnownBroker]) -> Iterator[str]:
    brokers = [one for one in brokers if one.shm_bytes]
    if brokers:
        size = _mib(sum(one.shm_bytes for one in brokers))
        yield f"{size} MiB belong to {len(brokers)} {kind} brokers ({_names([one.data_dir or '' for one in brokers])})"


def _other_files(regions: set[str]) -> Iterator[str]:
    """The largest files that are not of brokers."""
    sizes = {entry.path: _blocks(entry) for entry in os.scandir(SHM) if entry.name not in regions}
    if total := sum(sizes.values()):
        largest = sorted(sizes, key=lambda path: -sizes[path])
        yield f"{_mib(total)} MiB are files of other programs ({_names(largest)})"


def _blocks(entry: os.DirEntry[str]) -> int:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return 0
    return found.st_blocks * 512 if stat.S_ISREG(found.st_mode) else 0


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f}"
