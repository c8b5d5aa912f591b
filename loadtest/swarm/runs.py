"""A group member's reads, as runs of offsets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Run:
    """Consecutive offsets of a partition that were read in order, both ends included."""

    topic: str
    partition: int
    first: int
    last: int


class Runs:
    """The runs of one member. `ended` is complete after `end_all`."""

    def __init__(self) -> None:
        self.ended: list[Run] = []
        self._open: dict[tuple[str, int], Run] = {}

    def note(self, topic: str, partition: int, offset: int) -> int:
        """Record a read; returns its distance from the next offset of the partition's run, 0 for a new run."""
        run = self._open.get((topic, partition))
        if run and run.last + 1 == offset:
            run.last = offset
            return 0
        self.end(topic, partition)
        self._open[topic, partition] = Run(topic, partition, offset, offset)
        return offset - run.last - 1 if run else 0

    def end(self, topic: str, partition: int) -> None:
        """The partition was assigned or revoked: other members may read it meanwhile."""
        run = self._open.pop((topic, partition), None)
        if run:
            self.ended.append(run)

    def end_all(self) -> None:
        """End all runs: there are no more reads."""
        for place in list(self._open):
            self.end(*place)

    def now(self) -> list[Run]:
        """The open runs."""
        return list(self._open.values())
