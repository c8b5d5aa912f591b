"""In-memory logs of a few partitions that respond to offset requests as brokers do."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from odradek.pipeline.types import EARLIEST, LATEST, Partition


@dataclass
class Kept:
    """One partition: its first offset, the timestamps of its records from there on, its last stable offset."""

    first: int
    times: list[int]
    stable: int

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.first + len(self.times)


@dataclass
class Logs:
    """Logs by partition; `asked` has all requests in order."""

    kept: Mapping[Partition, Kept]
    asked: list[tuple[str, list[Partition]]] = field(default_factory=list)

    def offsets(self, partitions: Collection[Partition], at: int, committed: bool) -> dict[Partition, int]:
        """First or end offsets, as `brokers.Brokers.offsets`."""
        self.asked.append(({EARLIEST: "first", LATEST: "end"}[at], sorted(partitions)))
        return {key: self._at(self.kept[key], at, committed) for key in partitions}

    def offsets_by_time(self, times: Mapping[Partition, int]) -> dict[Partition, int | None]:
        """Offsets by time, as `brokers.Brokers.offsets_by_time`; timestamps are in order here."""
        self.asked.append(("time", sorted(times)))
        return {key: self._since(self.kept[key], time) for key, time in times.items()}

    @staticmethod
    def _at(kept: Kept, at: int, committed: bool) -> int:
        return kept.first if at == EARLIEST else kept.stable if committed else kept.end

    @staticmethod
    def _since(kept: Kept, time: int) -> int | None:
        index = bisect_left(kept.times, time)
        return kept.first + index if index < len(kept.times) else None
