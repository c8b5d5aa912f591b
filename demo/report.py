"""The tables: the airlines' on the terminal, all as CSV."""

from __future__ import annotations

import csv
from pathlib import Path

from odradek.demo.figures import Figures, Sum, Sums

Row = tuple[object, ...]
CELLS = ("flights", "minutes", "mean_delay")


def table(figures: Figures) -> str:
    """By airline, the largest mean delay first."""
    lines = [f"{'airline':<28}{'flights':>9}{'cancelled':>11}{'mean delay':>14}"]
    for name, one in _by_delay(figures.airlines):
        lines.append(_line(name, one, figures.cancelled[name]))
    return "\n".join([*lines, _line("all", figures.total(), figures.cancelled.total())])


def _line(name: str, one: Sum, cancelled: int) -> str:
    return f"{name:<28}{one.flights:>9,}{cancelled:>11,}{one.mean:>10.2f} min"


def _by_delay(airlines: Sums) -> list[tuple[str, Sum]]:
    return sorted(airlines.items(), key=lambda item: -item[1].mean)


def write_csv(figures: Figures, folder: Path) -> None:
    """airlines.csv, days.csv and hours.csv."""
    rows = [(name, *_cells(one), figures.cancelled[name]) for name, one in _by_delay(figures.airlines)]
    _write(folder / "airlines.csv", ("airline", *CELLS, "cancelled"), rows)
    for name, sums in {"day": figures.days, "hour": figures.hours}.items():
        _write(folder / f"{name}s.csv", (name, *CELLS), [(key, *_cells(one)) for key, one in sorted(sums.items())])


def _cells(one: Sum) -> Row:
    return *one, f"{one.mean:.4f}"


def _write(path: Path, head: Row, rows: list[Row]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([head, *rows])
