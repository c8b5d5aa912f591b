"""A table of any number of rows, of which only those that are shown are turned into text. No input, no output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Row = Sequence[str]


class Column(NamedTuple):
    """One column after the name: its title, its width, and the values that rows are sorted by; None: not sorted by."""

    title: str
    width: int
    values: Sequence[Any] | None
    text: Callable[[int], str]  # of a row, by its number


@dataclass
class Table:
    """Rows by number: a name, which filters match and which fills what the columns leave, and the columns."""

    title: str
    names: Sequence[str] = ()
    columns: Sequence[Column] = field(default_factory=list)

    def order(self, sort: int, is_reverse: bool, containing: str) -> list[int]:
        """The numbers of the rows whose name contains a text, sorted by a column; 0 is the name."""
        wanted = containing.lower()
        found = [row for row, name in enumerate(self.names) if wanted in name.lower()]
        values = self.names if sort == 0 else self.columns[sort - 1].values
        if values is not None:
            found.sort(key=lambda row: values[row], reverse=is_reverse)
        return found

    def next_sort(self, sort: int) -> int:
        """The column after this one that rows can be sorted by."""
        sortable = [0, *(at for at, column in enumerate(self.columns, 1) if column.values is not None)]
        return next((at for at in sortable if at > sort), 0)

    def cells(self, row: int) -> list[str]:
        """The texts of one row."""
        return [self.names[row], *(column.text(row) for column in self.columns)]


def numbers(title: str, width: int, values: Sequence[float], text: Callable[[float], str]) -> Column:
    """A column of numbers."""
    return Column(title, width, values, lambda row: text(values[row]))


def words(title: str, width: int, values: Sequence[str]) -> Column:
    """A column of texts."""
    return Column(title, width, values, lambda row: values[row])


def short(value: float) -> str:
    """A number in at most six characters: 12, 3.4k, 56M."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            scaled = value / size
            return f"{scaled:.1f}{unit}" if scaled < 100 else f"{scaled:.0f}{unit}"
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"
