"""What a group member has read, as runs of offsets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Run:
    """Offsets of a partition that were read one after another, both ends included."""

    topic: str
    partition: int
    first: int
    last: int


class Runs:
    """The runs of one member. `ended` is whole once `end_all` was called."""

    def __init__(self) -> None:
        self.ended: list[Run] = []
        self._open: dict[tuple[str, int], Run] = {}

    def note(self, topic: str, partition: int, offset: int) -> int:
        """A record was read; returns how far it is from where the partition's run should go on, 0 for a new run."""
        run = self._open.get((topic, partition))
        if run and run.last + 1 == offset:
            run.last = offset
            return 0
        self.end(topic, partition)
        self._open[topic, partition] = Run(topic, partition, offset, offset)
        return offset - run.last - 1 if run else 0

    def end(self, topic: str, partition: int) -> None:
        """The partition came or went: others may read there meanwhile."""
        run = self._open.pop((topic, partition), None)
        if run:
            self.ended.append(run)

    def end_all(self) -> None:
        """Nothing more is read."""
        for place in list(self._open):
            self.end(*place)

    def now(self) -> list[Run]:
        """Those that go on."""
        return list(self._open.values())
