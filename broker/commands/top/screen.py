"""The screen of `odradek top`: keys change a View, a View and tables give lines. No input, no output, no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.broker.commands.top.rows import Table

KEYS = "q quit  1-6 Tab view  s sort  r reverse  / filter  ? search  n next  space pause"
FRAME = 5  # lines that are not rows
GOOD, BAD, WARN, PLAIN, BOLD, HEAD, CURSOR = "good", "bad", "warn", "", "bold", "head", "cursor"
_LEAST_NAME = 10
_MOVES: dict[str, Callable[[int], int]] = {
    "up": lambda page: -1,
    "down": lambda page: 1,
    "pageup": lambda page: -page,
    "pagedown": lambda page: page,
    "home": lambda page: -(10**9),
    "end": lambda page: 10**9,
}


class Line(NamedTuple):
    """One line, as wide as the screen, and its style."""

    text: str
    style: str = PLAIN


class Shown(NamedTuple):
    """What a sample gives: a line that says what is wrong, a line about the broker, and a table for each view."""

    wrong: str
    head: str
    tables: Sequence[Table]


@dataclass
class View:
    """What the user has chosen. `sorts`: for each table a column and whether it is in descending order."""

    tab: int = 1
    cursor: int = 0
    first: int = 0
    sorts: dict[int, tuple[int, bool]] = field(default_factory=dict)
    containing: str = ""  # the filter
    wanted: str = ""  # what is searched for
    entering: str = ""  # `/` or `?` while its text is entered
    entered: str = ""
    is_paused: bool = False
    has_ended: bool = False

    def press(self, key: str, shown: Shown, page: int) -> None:
        """Take one key: a character, or `up`, `down`, `pageup`, `pagedown`, `home`, `end`, `tab`, `enter`, …"""
        if key == "c-c":
            self.has_ended = True
        elif self.entering:
            self._enter(key, shown)
        elif key in _MOVES:
            self.cursor = max(0, self.cursor + _MOVES[key](page))
        else:
            self._command(key, shown)

    def _enter(self, key: str, shown: Shown) -> None:
        if key == "enter":
            if self.entering == "/":
                self.containing, self.cursor = self.entered, 0
            else:
                self.wanted = self.entered
                self._search(shown)
        if key in ("enter", "escape"):
            self.entering = self.entered = ""
        elif key == "backspace":
            self.entered = self.entered[:-1]
        elif len(key) == 1 and key.isprintable():
            self.entered += key

    def _command(self, key: str, shown: Shown) -> None:
        table = shown.tables[self.tab]
        sort, is_reverse = self.sorts.get(self.tab, (0, False))
        if key == "q":
            self.has_ended = True
        elif key == "tab":
            self._turn_to((self.tab + 1) % len(shown.tables))
        elif key.isdigit() and 1 <= int(key) <= len(shown.tables):
            self._turn_to(int(key) - 1)
        elif key == "s":
            after = table.next_sort(sort)
            self.sorts[self.tab] = after, after > 0  # names from a to z, numbers from the largest
        elif key == "r":
            self.sorts[self.tab] = sort, not is_reverse
        elif key in ("/", "?"):
            self.entering = key
        elif key == "n":
            self._search(shown)
        elif key == "escape":
            self.containing = ""
        elif key == " ":
            self.is_paused = not self.is_paused

    def _turn_to(self, tab: int) -> None:
        self.tab, self.cursor, self.first = tab, 0, 0

    def _search(self, shown: Shown) -> None:
        """Move to the next row whose name has the text, from the first on again after the last."""
        table = shown.tables[self.tab]
        rows = self.rows(table)
        matching = [at for at, row in enumerate(rows) if self.wanted.lower() in table.names[row].lower()]
        self.cursor = next((at for at in matching if at > self.cursor), matching[0] if matching else self.cursor)

    def rows(self, table: Table) -> list[int]:
        """The numbers of the table's rows in the order in which they are shown."""
        return table.order(*self.sorts.get(self.tab, (0, False)), self.containing)

    def scroll(self, count: int, page: int) -> None:
        """Keep the cursor on a row and on the screen."""
        self.cursor = max(0, min(self.cursor, count - 1))
        self.first = max(0, min(self.first, self.cursor, count - 1))
        self.first = max(self.first, self.cursor - page + 1)


def lines(view: View, shown: Shown, width: int, height: int) -> list[Line]:
    """The whole screen: `height` lines of `width` characters."""
    table = shown.tables[view.tab]
    page = max(1, height - FRAME)
    rows = view.rows(table)
    view.scroll(len(rows), page)
    made = [
        Line(shown.wrong, _style(shown.wrong)),
        Line(f"{shown.head}{'  PAUSED' if view.is_paused else ''}"),
        Line(_tabs(view, shown, len(rows)), BOLD),
        Line(_titles(table, *view.sorts.get(view.tab, (0, False)), width), HEAD),
        *_rows(view, table, rows, width, page),
    ]
    made += [Line("")] * (height - 1 - len(made))
    return [Line(_fit(one.text, width), one.style) for one in [*made[: height - 1], Line(_last(view))]]


def _style(wrong: str) -> str:
    return BAD if wrong.startswith("ERROR") else WARN if wrong.startswith("WARNING") else GOOD


def _tabs(view: View, shown: Shown, count: int) -> str:
    names = [f"{at} {table.title}" for at, table in enumerate(shown.tables, 1)]
    names[view.tab] = f"[{names[view.tab]}: {count:,}]"
    return "  ".join(names)


def _last(view: View) -> str:
    if view.entering:
        return f"{'filter' if view.entering == '/' else 'search'}: {view.entered}_"
    return f"filter: {view.containing} (Esc ends it)  {KEYS}" if view.containing else KEYS


def _titles(table: Table, sort: int, is_reverse: bool, width: int) -> str:
    titles = [table.title.upper(), *(column.title for column in table.columns)]
    titles[sort] += "v" if is_reverse else "^"
    return _join(table, titles, width)


def _rows(view: View, table: Table, rows: Sequence[int], width: int, page: int) -> Iterator[Line]:
    for at, row in enumerate(rows[view.first : view.first + page], view.first):
        yield Line(_join(table, table.cells(row), width), CURSOR if at == view.cursor else PLAIN)


def _join(table: Table, cells: Sequence[str], width: int) -> str:
    """The columns, right-aligned; the name in what they leave."""
    left = max(_LEAST_NAME, width - sum(column.width + 1 for column in table.columns))
    parts = [_fit(cells[0], left)]
    parts += [cell[: column.width].rjust(column.width) for cell, column in zip(cells[1:], table.columns, strict=True)]
    return " ".join(parts)


def _fit(text: str, width: int) -> str:
    """Exactly so wide; names of groups may have characters that would move the cursor."""
    clean = "".join(one if one.isprintable() else "?" for one in text)
    return clean.ljust(width) if len(clean) <= width else f"{clean[: width - 1]}…"
