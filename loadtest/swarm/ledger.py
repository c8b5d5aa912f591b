"""The ledger of what was acknowledged, to be compared with what is read at the end.

Layout: `acked-<host>-<pid>.ledger`, rows of `ROW` one after another, in the order of the acknowledgements.
Owner and writer: one locust process each, so that workers need not talk; nobody else writes, so there is no lock.
Reader: `read`, once the processes have ended.
Crash: rows are buffered and reach the file at the latest when a test stops; a killed process leaves fewer rows, and
perhaps part of one, which is not read. What is there is true, so a crash hides losses but never invents one.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np
from odradek.loadtest.swarm.record import digest

ROW = np.dtype([("topic", "S64"), ("partition", "<i4"), ("offset", "<i8"), ("digest", "<u8")])
_PACKED = struct.Struct("<64siqQ")  # the same row: packing is ten times cheaper than an array of one


class Ledger:
    """This process's ledger in `folder`; without a folder it notes nothing."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._file: BinaryIO | None = None
        self._pid = 0

    def acked(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        """Note that the broker acknowledged `value` at this place."""
        if self.folder is None:
            return
        self._mine(self.folder).write(_PACKED.pack(topic.encode(), partition, offset, digest(value)))

    def _mine(self, folder: Path) -> BinaryIO:
        """Opened on first use: locust forks its workers, and two processes may not share a buffer."""
        if self._file is None or self._pid != os.getpid():
            self._pid = os.getpid()
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / f"acked-{socket.gethostname()}-{self._pid}.ledger").open("ab")
        return self._file

    def flush(self) -> None:
        """Bring all rows to the file."""
        if self._file is not None and self._pid == os.getpid():
            self._file.flush()


def files(folder: Path) -> list[Path]:
    """The ledgers of all processes in `folder`."""
    return sorted(folder.glob("acked-*.ledger"))


def read(folder: Path) -> np.ndarray:
    """The rows of all ledgers in `folder`."""
    rows = [np.fromfile(path, ROW) for path in files(folder)]
    return np.concatenate(rows) if rows else np.empty(0, ROW)
