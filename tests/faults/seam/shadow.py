"""Data that survives a power failure: files and directories as of their last fsync.

<shadow>/<device>-<inode>.<nanoseconds>        a file's contents; the newest counts
<shadow>/<device>-<inode>.<nanoseconds>.dir    a directory's entries: JSON, name → `<device>-<inode>` (or null: a link…)
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import time
from collections.abc import Callable

_real_open = os.open


def key(found: os.stat_result) -> str:
    """A file's name in the shadow."""
    return f"{found.st_dev}-{found.st_ino}"


def before(fd: int, shadow: str) -> Callable[[], None]:
    """Copy the present state of `fd`; call the result once it is synced."""
    found = os.fstat(fd)
    target = os.path.join(shadow, f"{key(found)}.{time.monotonic_ns()}")
    if stat.S_ISDIR(found.st_mode):
        target += ".dir"
        with open(target + "~", "w") as out:
            json.dump(entries(fd), out)
    else:
        with open(f"/proc/self/fd/{fd}", "rb") as source, open(target + "~", "wb") as out:
            shutil.copyfileobj(source, out)
    return lambda: os.rename(target + "~", target)


def entries(directory: int | str) -> dict[str, str]:
    """The present entries of a directory."""
    found = {}
    for name in os.listdir(directory):
        try:
            path = f"/proc/self/fd/{directory}/{name}" if isinstance(directory, int) else os.path.join(directory, name)
            found[name] = key(os.stat(path, follow_symlinks=False))
        except FileNotFoundError:
            continue
    return found


def created(fd: int, shadow: str) -> None:
    """Record a new file without durable contents, even if its inode was used before."""
    fresh = os.path.join(shadow, f"{key(os.fstat(fd))}.{time.monotonic_ns()}")
    os.close(_real_open(fresh, os.O_WRONLY | os.O_CREAT, 0o600))
