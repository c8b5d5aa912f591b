"""What the machine allows: open files and shared memory, each shortage in one line with its remedy."""

from __future__ import annotations

import os
import resource

from odradek.broker.supervisor import spawn
from odradek.ipc.region import SHM

# A worker keeps a file or three open for each partition it touches, and one for each connection.
WANTED_FILES = 4096
# Sockets reach a child by descriptors above SAFE_FD (broker.supervisor.spawn): with fewer, no process could be started.
LEAST_FILES = spawn.SAFE_FD + 64
WANTED_SHM = 64 << 20
NO_SHM = f"{SHM} does not exist: mount a tmpfs on it (mount -t tmpfs -o size=1g tmpfs {SHM})"


def raise_open_files() -> tuple[int, int]:
    """Raise this process's soft limit of open files to the hard one; returns both as they are now.

    Children inherit it across exec."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):  # an unlimited hard limit above fs.nr_open
            pass
    return soft, hard


def shortages() -> list[str]:
    """One line for each resource that is short; empty on a machine fit for a broker."""
    return [line for line in (_files_line(raise_open_files()[0]), _shm_line(shm_free())) if line]


def too_few_files() -> str:
    """The error line when too few open files are allowed to start a broker, else ""."""
    soft, _ = raise_open_files()
    return _files_line(soft) if 0 <= soft < LEAST_FILES else ""


def shm_free(path: str = SHM) -> int:
    """Free bytes in the file system of POSIX shared memory; -1 when it is not mounted."""
    try:
        found = os.statvfs(path)
    except FileNotFoundError:
        return -1
    return found.f_bavail * found.f_frsize


def _files_line(soft: int) -> str:
    if soft < 0 or soft >= WANTED_FILES:  # RLIM_INFINITY is -1
        return ""
    return (
        f"the limit of open files is {soft}, at least {WANTED_FILES} are recommended: run `ulimit -n 65536` first, or "
        "raise nofile in /etc/security/limits.conf (systemd: LimitNOFILE=)"
    )


def _shm_line(free: int) -> str:
    if free < 0:
        return NO_SHM
    if free >= WANTED_SHM:
        return ""
    return (
        f"{SHM} has {free >> 20} MiB free, {WANTED_SHM >> 20} MiB are recommended: enlarge it (mount -o "
        f"remount,size=1g {SHM}; with containers --shm-size=1g)"
    )
