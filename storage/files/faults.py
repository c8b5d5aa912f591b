"""Faults in a data directory: a fault is one inconsistency of a file, on one line; and the damaged-index error."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Fault(NamedTuple):
    path: Path
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class DamagedIndex(OSError):
    """An index file of a segment contradicts its log; it can be rebuilt from the log."""
