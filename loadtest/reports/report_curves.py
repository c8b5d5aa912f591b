"""The part of RESULTS.md on curves, and the PNG next to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from odradek.loadtest.harness.store import Results

PICTURE = "curves.png"
FLAT = 1.2  # "flat": at most this much more at the far end
TITLES = {
    "partitions": "partitions",
    "connections": "connections",
    "retained": "gigabytes retained",
    "workers": "workers",
    "cold": "tail traffic: alone, with a reader of a cached backlog, of a cold one, of another broker's cold one",
}
_COLD_STEPS = ("alone", "cached", "cold", "elsewhere")


def curves_section(results: Results) -> str:
    """A table for each measured curve, and its conclusion."""
    keys = [key for key in TITLES if key in results.entries]
    if not keys:
        return ""
    parts = ["## As it grows", f"![cost per request]({PICTURE})"]
    for key in keys:
        parts += [f"**{TITLES[key]}**", _table(key, results.entries[key].data)]
        parts += [text for text in [told(key, results.entries[key].data)] if text]
    return "\n\n".join(parts)


def _table(key: str, data: dict[str, Any]) -> str:
    points = next(iter(next(iter(data.values())).values()))
    head = [_COLD_STEPS[int(one["x"])] if key == "cold" else f"{one['x']:,g}" for one in points]
    lines = [["", *head], ["---"] * (len(head) + 1)]
    for broker, curve in data.items():
        for series, row in curve.items():
            lines.append([f"{broker}, {series}", *(_cell(key, one) for one in row)])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(key: str, point: dict[str, float]) -> str:
    if key == "cold":
        return f"p50 {point['p50']:,.0f} µs, p99 {point['p99']:,.0f} µs"
    return f"{point['cpu_us']:.1f} µs, {point['rate']:,.0f}/s"


def told(key: str, data: dict[str, Any]) -> str:
    """Compare Odradek's curve with its target."""
    ours = data.get("Odradek")
    if not ours:
        return ""
    if key == "workers":
        return _told_workers(ours)
    if key == "cold":
        return _told_cold([point["p99"] for point in ours["tail p99"]])
    words = [_told_growth(series, points) for series, points in ours.items()]
    return f"CPU per request at the last point divided by the first, flat is ≤ {FLAT}: {', '.join(words)}."


def _told_growth(series: str, points: Sequence[dict[str, float]]) -> str:
    share, half = growth(points), growth(points[1:])
    return f"{series} {share:.2f}× ({_word(share <= FLAT)}; {half:.2f}× over the second)"


def _told_workers(ours: dict[str, Any]) -> str:
    faster = ours["20 partitions"][1]["rate"] / ours["20 partitions"][0]["rate"]
    dearer = ours["one partition"][1]["cpu_us"] / ours["one partition"][0]["cpu_us"]
    rate = ours["one partition"][1]["rate"] / ours["one partition"][0]["rate"]
    return (
        f"Two workers serve {faster:.2f}× the requests of one (the client shares the cores). On one partition, a "
        f"request costs {dearer:.2f}× the CPU that it costs with one worker, at {rate:.2f}× its rate; CPU ≤ {FLAT}×: "
        f"{_word(dearer <= FLAT)}."
    )


def _told_cold(p99: Sequence[float]) -> str:
    alone, _, cold, elsewhere = p99
    return (
        f"Cold reads: {cold / alone:.1f}× the p99 of the tail alone (≤ 2): {_word(cold <= 2 * alone)}. With a reader "
        f"that another broker serves on the same cores, it is {elsewhere / alone:.1f}×; the share of this broker is "
        f"{cold / elsewhere:.1f}×."
    )


def growth(points: Sequence[dict[str, float]]) -> float:
    """CPU a request at the last point over that at the first."""
    return points[-1]["cpu_us"] / points[0]["cpu_us"]


def _word(good: bool) -> str:
    return "met" if good else "MISSED"


def draw(results: Results, path: Path) -> bool:
    """Draw the curves of cost to `path`; False when matplotlib is not installed or there is nothing to draw."""
    keys = [key for key in ("partitions", "connections", "retained", "workers") if key in results.entries]
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    if not keys:
        return False
    figure = Figure(figsize=(4.2 * len(keys), 3.8), layout="constrained")
    for axes, key in zip(figure.subplots(1, len(keys), squeeze=False)[0], keys, strict=True):
        _draw_one(axes, key, results.entries[key].data)
    figure.savefig(path, dpi=110)
    return True


def _draw_one(axes: Any, key: str, data: dict[str, Any]) -> None:
    for broker, curve in data.items():
        for number, (series, points) in enumerate(curve.items()):
            style = {"color": "C0" if broker == "Odradek" else "C1", "linestyle": ("-", "--")[number % 2]}
            x, y = [one["x"] for one in points], [one["cpu_us"] for one in points]
            axes.plot(x, y, marker="o", label=f"{broker}: {series}", **style)
    axes.set(xlabel=TITLES[key], xscale="linear" if key == "workers" else "log", ylim=(0, None))
    if key == "workers":
        axes.set_xticks([1, 2])
    axes.set_title("broker CPU per request, µs", fontsize=9)
    axes.legend(fontsize=6)
