"""The run directory of a broker's sockets and locks: a private directory derived from its data directory.

UNIX socket paths are limited to 107 bytes, and Kafka refuses unknown sub-directories in a log directory, so
neither sockets nor their folder can live in the data directory. The name is a digest of the data directory's
real path, so that every command with the same `log.dirs` finds the same broker. A start removes those of dead brokers
(broker.supervisor.leftovers).
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from pathlib import Path

from odradek.protocol import digests

SYSTEM_RUN_DIR = Path("/run/odradek")  # of the systemd units
SESSION_FILE = "zookeeper-session"  # broker.interbroker.zookeeper_session
_KEY_SIZE = 12
_KEY = re.compile(f"[0-9a-f]{{{_KEY_SIZE}}}")
_SHORT = "/tmp"
LONGEST = 107 - len("/control-coordinator.ipc")  # bytes of a run directory's path: no socket has a longer name


class RunDirError(Exception):
    """The run directory is not safe or cannot be created; the message says what to change."""


def broker_key(data_dir: str | os.PathLike[str]) -> str:
    """Twelve hex digits that identify the broker on `data_dir` in the names of run directory and shared memory."""
    return digests.sha256(os.path.realpath(data_dir).encode()).hex()[:_KEY_SIZE]


def shm_prefix(data_dir: str | os.PathLike[str]) -> str:
    """The prefix of the names of this broker's shared-memory regions."""
    return f"/odradek-{broker_key(data_dir)}-"


def run_dir(data_dir: str | os.PathLike[str]) -> Path:
    """The directory for the broker on `data_dir`; `make_run_dir` creates it."""
    explicit = os.environ.get("ODRADEK_RUN_DIR")
    if explicit:
        return Path(explicit)
    base = os.environ.get("RUNTIME_DIRECTORY")
    return (Path(base) if base else default_base()) / broker_key(data_dir)


def default_base() -> Path:
    """The directory of this user's run directories, unless a setting or the environment says otherwise.

    It is below the temporary directory, or below /tmp where TMPDIR is too long for the names of sockets.
    """
    name = f"odradek-{os.getuid()}"
    base = Path(tempfile.gettempdir(), name)
    return base if len(os.fsencode(base)) + _KEY_SIZE < LONGEST else Path(_SHORT, name)


def run_dirs() -> list[Path]:
    """The run directories of this user, and of the systemd units."""
    return [folder for base in (default_base(), SYSTEM_RUN_DIR) for folder in _entries(base)]


def keyed(base: Path) -> list[Path]:
    """The run directories below `base` that have the name of a key."""
    return [folder for folder in _entries(base) if _KEY.fullmatch(folder.name)]


def _entries(base: Path) -> list[Path]:
    try:
        return sorted(base.iterdir())
    except OSError:  # missing, or owned by another user
        return []


def make_run_dir(path: Path) -> Path:
    """Create `path` with mode 0700 and check that it and its parent belong to us; RunDirError otherwise."""
    if len(os.fsencode(path)) > LONGEST:
        raise RunDirError(
            f"{path}: the path has more than {LONGEST} bytes, too long for sockets: change odradek.run.dir"
        )
    for part in (path.parent, path):
        try:
            part.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise RunDirError(f"{path}: {error.strerror}: change odradek.run.dir, or ODRADEK_RUN_DIR") from None
    _check_parent(path.parent)
    _check_private(path)
    return path


def _check_parent(path: Path) -> None:
    """Refuse a parent of another user, who could replace our directory by another one."""
    if os.stat(path).st_uid not in (0, os.getuid()):
        raise RunDirError(f"{path} belongs to another user: remove it, or set ODRADEK_RUN_DIR to your own directory")


def _check_private(path: Path) -> None:
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise RunDirError(f"{path} belongs to another user: remove it, or set ODRADEK_RUN_DIR to your own directory")
    if stat.S_IMODE(found.st_mode) & 0o077:
        os.chmod(path, 0o700)
