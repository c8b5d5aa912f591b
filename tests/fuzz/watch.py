"""Checks that bad input ends no process of a broker, causes no internal error, and leaks no memory."""

from __future__ import annotations

import re
from typing import Any

import psutil

# Log lines of internal errors. A malformed request has a log line of its own.
_FAULT = re.compile(r"Traceback|an internal error|unexpected error|process that answers it died")
_ROLES = ("supervisor", "acceptor", "worker", "coordinator", "controller", "replicator", "janitor")


class Watch:
    """Watches one broker from its creation on."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self._read = broker.log_file.stat().st_size
        self.pids = self._pids()
        self.lines = 0

    def _pids(self) -> dict[str, list[int]]:
        return {role: self._broker.pids(role) for role in _ROLES}

    def fault(self) -> str:
        """The fault since the last call; empty if there is none."""
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
        """Whether all first processes still run; cheap, since it does not search for children."""
        return all(_lives(pid) for pids in self.pids.values() for pid in pids)

    def memory(self) -> dict[str, int]:
        """Unique set size in bytes, by role and number of the process."""
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
