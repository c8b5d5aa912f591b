"""What is wrong in a data directory: a fault, one promise that a file does not keep, one line; and a damaged index."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Fault(NamedTuple):
    path: Path
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class DamagedIndex(OSError):
    """An index file of a segment does not say what its log does; it can be made again from the log."""
