"""The ledgers of a run: acknowledged records and groups' reads, to be compared with the log at the end.

Layout: `acked-<host>-<pid>.ledger`, rows of `ACKED` in the order of the acknowledgements; `read-<host>-<pid>.ledger`,
rows of `RUN`, each a run of consecutive offsets that a group member read.
Owner and writer: one locust process each, so that workers need not communicate; with one writer there is no lock.
Reader: `acked` and `read`, once the processes have ended.
Crash: rows are buffered and reach the file at the latest when a test stops. A killed process leaves fewer rows, and
perhaps a partial one, which is ignored: fewer acknowledgements hide losses but never invent one, and a user's runs are
missing altogether, which does look like a group that skipped them.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from odradek.loadtest.swarm.record import digest
from odradek.loadtest.swarm.runs import Run

ACKED = np.dtype([("topic", "S64"), ("partition", "<i4"), ("offset", "<i8"), ("digest", "<u8")])
RUN = np.dtype([("group", "S64"), ("topic", "S64"), ("partition", "<i4"), ("first", "<i8"), ("last", "<i8")])
_ACKED = struct.Struct("<64siqQ")  # the same row: packing is ten times cheaper than an array of one


class Ledger:
    """This process's ledgers in `folder`; without a folder nothing is recorded."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._files: dict[str, BinaryIO] = {}
        self._pid = 0

    def acked(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        """Record that the broker acknowledged `value` at this place."""
        if self.folder is not None:
            row = _ACKED.pack(topic.encode(), partition, offset, digest(value))
            self._mine(self.folder, "acked").write(row)

    def read(self, group: str, runs: Iterable[Run]) -> None:
        """Record the reads of a member of `group`."""
        if self.folder is not None:
            rows = [(group.encode(), run.topic.encode(), run.partition, run.first, run.last) for run in runs]
            self._mine(self.folder, "read").write(np.array(rows, RUN).tobytes())

    def _mine(self, folder: Path, kind: str) -> BinaryIO:
        """Opened at first use: locust forks its workers, and two processes must not share a buffer."""
        if self._pid != os.getpid():
            self._pid, self._files = os.getpid(), {}
        if kind not in self._files:
            folder.mkdir(parents=True, exist_ok=True)
            self._files[kind] = (folder / f"{kind}-{socket.gethostname()}-{self._pid}.ledger").open("ab")
        return self._files[kind]

    def flush(self) -> None:
        """Flush all rows to the files."""
        if self._pid == os.getpid():
            for file in self._files.values():
                file.flush()


def files(folder: Path, kind: str = "acked") -> list[Path]:
    """The ledgers of one kind of all processes in `folder`."""
    return sorted(folder.glob(f"{kind}-*.ledger"))


def acked(folder: Path) -> np.ndarray:
    """The acknowledgements of all processes."""
    return _rows(folder, "acked", ACKED)


def read(folder: Path) -> np.ndarray:
    """The groups' reads of all processes."""
    return _rows(folder, "read", RUN)


def _rows(folder: Path, kind: str, row: np.dtype) -> np.ndarray:
    rows = [np.fromfile(path, row) for path in files(folder, kind)]
    return np.concatenate(rows) if rows else np.empty(0, row)
