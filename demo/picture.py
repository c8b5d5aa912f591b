"""The picture: mean departure delay by day of the year, by airline, and by hour of the day."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib import dates
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from odradek.demo.figures import Figures, Sums

INK, SOFT, BLUE, RED = "#1f2933", "#7b8794", "#2f6f9f", "#c8553d"
WORST = 3


def draw(figures: Figures, path: Path) -> None:
    """Write it as a PNG file."""
    sheet = Figure(figsize=(13, 9), dpi=120, facecolor="white")
    FigureCanvasAgg(sheet)
    _title(sheet, figures)
    _days(sheet.add_axes((0.055, 0.55, 0.92, 0.29)), figures.days)
    _airlines(sheet.add_axes((0.175, 0.07, 0.31, 0.37)), figures.airlines)
    _hours(sheet.add_axes((0.555, 0.07, 0.42, 0.37)), figures.hours)
    sheet.savefig(path)


def _title(sheet: Figure, figures: Figures) -> None:
    total, cancelled = figures.total(), figures.cancelled.total()
    told = f"{total.flights:,} departures, {total.mean:.1f} minutes late on average; {cancelled:,} flights cancelled"
    sheet.text(0.025, 0.945, "How late flights left New York City in 2013", size=20, weight="bold", color=INK)
    sheet.text(0.025, 0.912, told, size=12, color=SOFT)


def _days(axes: Any, days: Sums) -> None:
    means = {day: one.mean for day, one in sorted(days.items())}
    worst = sorted(means, key=lambda day: -means[day])[:WORST]
    axes.bar(list(means), list(means.values()), width=1, color=[RED if day in worst else BLUE for day in means])
    for day in worst:
        where = {"xytext": (4, -2), "textcoords": "offset points"}
        axes.annotate(f"{day.day} {day:%B}", (day, means[day]), **where, color=INK, size=9)
    axes.xaxis.set_major_locator(dates.AutoDateLocator(maxticks=13))
    axes.xaxis.set_major_formatter(dates.DateFormatter("%-d %b"))
    axes.set_xmargin(0.005)
    _dress(axes, "Mean delay of each day, minutes", "y")


def _airlines(axes: Any, airlines: Sums) -> None:
    order = sorted(airlines, key=lambda name: airlines[name].mean)
    means = [airlines[name].mean for name in order]
    axes.barh(order, means, color=BLUE, height=0.7)
    for at, mean in enumerate(means):
        axes.text(max(mean, 0) + 0.3, at, f"{mean:.1f}", va="center", size=9, color=INK)
    _dress(axes, "Mean delay of each airline, minutes", "x")


def _hours(axes: Any, hours: Sums) -> None:
    order = sorted(hours)
    axes.bar(order, [hours[hour].mean for hour in order], width=0.8, color=BLUE)
    axes.set_xticks(order, [str(hour) for hour in order])
    _dress(axes, "Mean delay by scheduled hour, minutes", "y")


def _dress(axes: Any, title: str, grid: str) -> None:
    axes.set_title(title, loc="left", size=12, color=INK, pad=10)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, colors=SOFT, labelsize=9)
    axes.grid(axis=grid, color="#e4e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
