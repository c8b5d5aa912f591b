"""The `.lock` of each log directory (storage.dirs.logdirs), held while this process lives.

If a directory cannot be locked, because its disk fails or no descriptor is left, the process retries later: it has
other work, above all when disks fail.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence

from odradek.broker.errors import OdradekError
from odradek.storage.dirs import logdirs

log = logging.getLogger(__name__)

AGAIN_S = 1.0


class LogDirLocks:
    """`free`: the indexes in `log_dirs` of directories that are not locked yet, and why the last try failed."""

    def __init__(self, log_dirs: Sequence[str], broker: int | None, failed: Collection[int]) -> None:
        """`broker`: see `logdirs.lock_dir`. `failed`: directories that this broker no longer uses; another one may."""
        numbers = (number for number in range(len(log_dirs)) if number not in failed)
        self.free: dict[int, OSError | None] = dict.fromkeys(numbers)
        self._log_dirs = log_dirs
        self._broker = broker
        self._logged: set[int] = set()
        self._retry_at = 0.0

    def turn(self) -> None:
        """Lock free ones when a try is due. Raises OdradekError if another broker, perhaps just stopping, has one."""
        now = time.monotonic()
        if not self.free or now < self._retry_at:
            return
        self._retry_at = now + AGAIN_S
        for number in sorted(self.free):
            try:
                logdirs.lock_dir(self._log_dirs[number], self._broker)
            except logdirs.LogDirError as error:
                raise OdradekError(str(error)) from None
            except OSError as error:
                self._failed(number, error)
            else:
                del self.free[number]

    def _failed(self, number: int, error: OSError) -> None:
        self.free[number] = error
        if number not in self._logged:
            self._logged.add(number)
            log.warning("cannot lock log directory %s, retrying: %s", self._log_dirs[number], error)
