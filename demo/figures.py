"""The numbers of the report, and the differences between two computations of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, NamedTuple


class Sum(NamedTuple):
    """Flights that departed, and the sum of their departure delays: minutes, negative for an early one."""

    flights: int
    minutes: int

    @property
    def mean(self) -> float:
        """Minutes a flight."""
        return self.minutes / self.flights

    def __str__(self) -> str:
        return f"{self.flights} flights with {self.minutes} minutes"


class Sums(dict[Any, Sum]):
    """A table of sums by some key."""

    def add(self, key: Any, flights: int, minutes: int) -> None:
        """Add these numbers under `key`."""
        had = self.get(key, Sum(0, 0))
        self[key] = Sum(had.flights + flights, had.minutes + minutes)


@dataclass
class Figures:
    """Each table by its key. Hours and days are New York's, except for `windows`, which begin at an hour of UTC."""

    events: Counter[str] = field(default_factory=Counter)  # events that passed each stage
    windows: Sums = field(default_factory=Sums)  # by hour and airline
    means: dict[tuple[datetime, str], float] = field(default_factory=dict)  # of the windows, minutes a flight
    airlines: Sums = field(default_factory=Sums)
    days: Sums = field(default_factory=Sums)
    hours: Sums = field(default_factory=Sums)
    cancelled: Counter[str] = field(default_factory=Counter)  # by airline

    def count(self) -> int:
        """The number of figures."""
        tables = [getattr(self, one.name) for one in fields(self)]
        return sum(len(table) * (2 if isinstance(table, Sums) else 1) for table in tables)

    def total(self) -> Sum:
        """The sum of all airlines."""
        every = self.airlines.values()
        return Sum(sum(one.flights for one in every), sum(one.minutes for one in every))


def differences(found: Figures, expected: Figures) -> list[str]:
    """A line for each key whose number is not the expected one, and for each missing or surplus key."""
    pairs = [(one.name, getattr(found, one.name), getattr(expected, one.name)) for one in fields(Figures)]
    return [line for pair in pairs for line in _of(*pair)]


def _of(name: str, found: dict[Any, Any], expected: dict[Any, Any]) -> Iterator[str]:
    for key in sorted(found.keys() | expected.keys()):
        mine, directly = found.get(key), expected.get(key)
        if mine != directly:
            told = ", ".join(map(str, key)) if isinstance(key, tuple) else key
            yield f"{name}, {told}: {_or_nothing(mine)}, and directly {_or_nothing(directly)}"


def _or_nothing(value: object) -> object:
    return "nothing" if value is None else value
