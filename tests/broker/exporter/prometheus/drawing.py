"""Draws panels where the dashboard's JSON has them, as Grafana would: for people who read the documents."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.dates import DateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from .panels import Panel

_COLUMNS, _CELL_WIDTH, _CELL_HEIGHT = 24, 0.6, 0.36  # inches
_NAMED, _NAME_CHARACTERS = 9, 26  # of the lines in a legend, the highest
_INK, _PAPER, _PANEL = "#ccccdc", "#111217", "#181b1f"
_SCALES: dict[str, list[tuple[float, str]]] = {
    "s": [(1, "s"), (1e-3, "ms"), (1e-6, "µs")],
    "bytes": [(2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")],
    "Bps": [(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1, "B/s")],
    "cps": [(1e3, "k c/s"), (1, "c/s")],
    "reqps": [(1e3, "k req/s"), (1, "req/s")],
    "percentunit": [(1e-2, "%")],
    "short": [(1e6, "M"), (1e3, "k"), (1, "")],
}


def value(number: float, unit: str) -> str:
    """A number in one of Grafana's units: `value(0.0021, "s")` is "2.1 ms"."""
    scales = _SCALES[unit]
    size, name = next((scale for scale in scales if abs(number) >= scale[0]), scales[-1])
    return f"{number / size:.3g} {name}".strip() if number else "0"


def draw(panels: Sequence[Panel], path: Path) -> None:
    """Write all panels as one PNG."""
    rows = max(panel.at["y"] + panel.at["h"] for panel in panels)
    figure = Figure((_COLUMNS * _CELL_WIDTH, rows * _CELL_HEIGHT), facecolor=_PAPER)
    for panel in panels:
        axes = figure.add_axes(_box(panel, rows), facecolor=_PANEL)
        axes.set_title(panel.title, color=_INK, loc="left", fontsize=10)
        (_stat if panel.kind == "stat" else _lines)(axes, panel)
    figure.savefig(path, dpi=80)


def _box(panel: Panel, rows: int) -> tuple[float, float, float, float]:
    """Where the axes are, as parts of the figure: with room for the title and the numbers."""
    at = panel.at
    left, right, top, bottom = 1.4, 0.4, 1.2, 0.9  # cells
    x, y = at["x"] + left, rows - at["y"] - at["h"] + bottom
    return x / _COLUMNS, y / rows, (at["w"] - left - right) / _COLUMNS, (at["h"] - top - bottom) / rows


def _stat(axes: Axes, panel: Panel) -> None:
    axes.set_axis_off()
    last = value(panel.series[0].values[-1], panel.unit)
    axes.text(0.5, 0.5, last, color="#73bf69", fontsize=28, ha="center", va="center", transform=axes.transAxes)


def _lines(axes: Axes, panel: Panel) -> None:
    for index, series in enumerate(sorted(panel.series, key=lambda series: -series.values[-1])):
        name = series.legend[-_NAME_CHARACTERS:] if index < _NAMED else None
        times = [date2num(datetime.fromtimestamp(at, UTC)) for at in series.times]
        axes.plot(times, series.values, label=name, lw=1.2)
    axes.xaxis_date()
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M:%S"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: value(number, panel.unit)))
    axes.tick_params(colors=_INK, labelsize=7)
    axes.grid(color="#2c3235", lw=0.6)
    axes.legend(
        loc="upper left", fontsize=7, ncols=3, labelcolor=_INK, facecolor=_PANEL, framealpha=0.6, edgecolor=_PANEL
    )
    for edge in axes.spines.values():
        edge.set_color("#2c3235")
