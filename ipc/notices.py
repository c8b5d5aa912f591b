"""What several processes of a broker notice, and one of them logs: a change of certificates, for example.

Layout    : `notices.json` in the run dir: when each text was noticed first, in seconds since 1970.
Owner     : no process; the first that notices creates the file.
Writers   : any process, under the file's lock.
Lock      : flock, for the time of one read and one write. It is only ever tried: a stopped process that has it
            delays no other process, and the line is logged twice.
Crash rule: the lock ends with its process. A file that cannot be read is as one that is empty: a line is logged twice.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

IsFirst = Callable[[str, float, float], bool]
"""Whether this process is the first of its broker to notice (a text, at a time, within so many seconds)."""
SAME_S = 60  # what processes that look now and then notice within this time of each other is the same
FILE_NAME = "notices.json"
_KEPT_S = 2 * 86_400
_TRIES, _PAUSE_S = 20, 0.001


class Notices:
    """The notices of one broker."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / FILE_NAME

    def is_first(self, text: str, now: float, period_s: float) -> bool:
        """Whether no process has noticed it within a period of `now`. If the disk refuses, each is the first.

        `now` may be a little earlier than that of another process which was faster.
        """
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "r+") as file:
                return not _try_lock(fd) or _noticed(file, text, now, period_s)
        except OSError:
            return True


def _try_lock(fd: int) -> bool:
    """Take the lock; False when another process keeps it."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(_PAUSE_S)
    return False


def _noticed(file: TextIO, text: str, now: float, period_s: float) -> bool:
    known = {key: at for key, at in _read(file.read()).items() if abs(now - at) < _KEPT_S}
    if text in known and abs(now - known[text]) < period_s:
        return False
    file.seek(0)
    file.truncate()
    json.dump({**known, text: now}, file)
    return True


def _read(text: str) -> dict[str, float]:
    try:
        found = json.loads(text)
        return {str(key): float(at) for key, at in found.items()}
    except (ValueError, AttributeError, TypeError):
        return {}
