"""What a comparison of an archive with the log has found."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Report:
    """A line for each difference, and for each thing that could not be compared; `records` were, with the log's."""

    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    records: int = 0

    def add(self, other: Report) -> None:
        """What that has found, too."""
        self.differences += other.differences
        self.notes += other.notes
        self.records += other.records
