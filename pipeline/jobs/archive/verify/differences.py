"""The result of comparing an archive with the log."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Report:
    """A line for each difference, and for each thing not compared; `records` were compared with the log's."""

    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    records: int = 0

    def add(self, other: Report) -> None:
        """Add the results of `other`."""
        self.differences += other.differences
        self.notes += other.notes
        self.records += other.records
