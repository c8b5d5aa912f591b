"""A fault found in a data directory: one promise that a file does not keep, one line."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Fault(NamedTuple):
    path: Path
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"
