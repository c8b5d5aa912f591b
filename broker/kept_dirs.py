"""The `.lock` of each log directory, held for as long as this process lives: against a second broker, of Kafka's too.

What cannot be locked now, on a disk that failed or without a descriptor left, is tried again: who holds the others has
more to do, above all when disks fail.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from odradek.broker.errors import BootError
from odradek.storage import logdirs

log = logging.getLogger(__name__)

AGAIN_S = 1.0


class KeptDirs:
    """`free`: the numbers of those in `log_dirs` that are not locked yet."""

    def __init__(self, log_dirs: Sequence[str]) -> None:
        self.free = set(range(len(log_dirs)))
        self._log_dirs = log_dirs
        self._said: set[int] = set()
        self._again_at = 0.0

    def turn(self) -> None:
        """Lock what is free, if it is time. Raises BootError where another broker has it."""
        now = time.monotonic()
        if not self.free or now < self._again_at:
            return
        self._again_at = now + AGAIN_S
        for number in sorted(self.free):
            try:
                logdirs.lock_dir(self._log_dirs[number])
            except logdirs.LogDirError as error:
                raise BootError(str(error)) from None
            except OSError as error:
                self._failed(number, error)
            else:
                self.free.discard(number)

    def _failed(self, number: int, error: OSError) -> None:
        if number not in self._said:
            self._said.add(number)
            log.warning("log directory %s cannot be locked, trying again: %s", self._log_dirs[number], error)
