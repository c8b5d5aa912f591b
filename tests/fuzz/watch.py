"""What bad input must not do to a broker's processes: end one, make one complain of a fault of its own, or grow one."""

from __future__ import annotations

import re
from typing import Any

import psutil

# What a fault of ours looks like in the log. A malformed request is one line of its own.
_FAULT = re.compile(r"Traceback|an internal error|unexpected error|process that answers it died")
_ROLES = ("supervisor", "acceptor", "worker", "coordinator", "controller", "replicator", "janitor")


class Watch:
    """Looks at one broker, from when it is made."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self._read = broker.log_file.stat().st_size
        self.pids = self._pids()
        self.lines = 0

    def _pids(self) -> dict[str, list[int]]:
        return {role: self._broker.pids(role) for role in _ROLES}

    def fault(self) -> str:
        """What went wrong since the last look; empty when nothing did."""
        with self._broker.log_file.open("rb") as log:
            log.seek(self._read)
            text = log.read().decode(errors="replace")
            self._read = log.tell()
        self.lines += text.count("\n")
        found = _FAULT.search(text)
        if found:
            return text[max(0, found.start() - 500) : found.start() + 4000]
        return "" if self._same() else f"processes were {self.pids}, are {self._pids()}:\n{text[-4000:]}"

    def _same(self) -> bool:
        """Are all its processes still there? (Cheap: their children are not looked for.)"""
        return all(_lives(pid) for pids in self.pids.values() for pid in pids)

    def memory(self) -> dict[str, int]:
        """Resident bytes of its own by role and number, without what is shared."""
        return {
            f"{role}-{at}": psutil.Process(pid).memory_full_info().uss
            for role, pids in self.pids.items()
            for at, pid in enumerate(pids)
        }


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
