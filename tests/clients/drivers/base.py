"""The interface of a driver: write records, read them back, and join a group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from ..records import Record

Make = Callable[[int], Record]
WAIT_SECONDS = 60


class Read(NamedTuple):
    """A record and its offset."""

    offset: int
    record: Record


class Member(Protocol):
    """One consumer in a group that runs until it is stopped."""

    def leave(self) -> None:
        """Commit, leave the group, end."""

    def kill(self) -> None:
        """End without leaving the group, if the client can do that."""

    def seen(self) -> list[bytes]:
        """The values processed so far."""


class Driver(Protocol):
    """A client of Kafka. `flavour` names the function of `records` whose records it can send."""

    name: str
    tool: str | None
    flavour: str

    def write(
        self,
        bootstrap: str,
        topic: str,
        partition: int,
        numbers: Iterable[int],
        make: Make,
        codec: str,
    ) -> None:
        """Write `make(i)` for each number, all acknowledged (acks=all) when it returns."""

    def read(self, bootstrap: str, topic: str, partition: int, count: int) -> Iterator[Read]:
        """The first `count` records of a partition in order."""

    def member(self, bootstrap: str, topic: str, group: str, folder: Path) -> Member:
        """Join `group` on `topic` from the earliest offset, committing often."""
