"""The files that a broker creates in its run directory, and their removal."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from odradek.broker.process import checkpoint_lock
from odradek.ipc import notices
from odradek.ipc.locks import RoleLocks

OFFLINE = "offline"  # exists once all log directories are offline: odradek-offline.path makes systemd stop the broker
_RUN_FILES = (
    "config.json",
    "log-levels.json",
    "*.json.new",
    "partition.lock",
    "quotas.lock",
    notices.FILE_NAME,
    checkpoint_lock.FILE_NAME,
    "acceptor.sock",
    "coordinator.sock",
    "controller.sock",
    "upgrade-*.sock",
    "bell-*",
    "control-*.ipc",
    "events.ipc",
    OFFLINE,
)


def clear(run_dir: Path) -> int:
    """Remove only files that brokers create: odradek.run.dir may be a directory with other files. Returns how many."""
    found = [path for path in run_dir.iterdir() if any(path.match(pattern) for pattern in _RUN_FILES)]
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)


def remove(run_dir: Path, locks: RoleLocks | None) -> None:
    """Remove the lock file, if it is in the run directory, and this. Caller has sealed the locks."""
    if locks is not None:
        locks.remove()
    with suppress(OSError):  # the directory has other files, too
        run_dir.rmdir()
