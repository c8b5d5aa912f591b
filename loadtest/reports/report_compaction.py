"""The part of RESULTS.md on compaction."""

from __future__ import annotations

from odradek.loadtest.harness.store import Results
from odradek.loadtest.measurements.compaction import LOADS

KAFKA, ODRADEK = "Apache Kafka", "Odradek"
_TOLD = """\
Both brokers get the same segments, in batches of 16 KiB with random keys, and their topic becomes compacted. The time
ends when the cleaner's checkpoint reaches the active segment. MB count the log before compaction; CPU is that of all
processes of the broker per GB of it. Apache Kafka is 3.9.1; both have their default settings (`log.cleaner.threads=1`,
128 MiB for the offset map), and Odradek's cleaner runs at nice 10.
"""


def compaction_section(results: Results) -> str:
    """A table with a line for each load, and the targets under it."""
    keys = [key for key in LOADS if key in results.entries]
    if not keys:
        return ""
    head = f"| log | {KAFKA} | {ODRADEK} | Odradek / Kafka | to reach | |\n" + "| --- " * 6 + "|"
    return "\n\n".join(["## Compaction", _TOLD.strip(), "\n".join([head, *(_line(results, key) for key in keys)])])


def _line(results: Results, key: str) -> str:
    cells = [_cell(results, key, name) for name in (KAFKA, ODRADEK)]
    last = [_share(results, key), "≥ 1× MB/s, ≤ 1× CPU", _word(results, key)]
    return f"| {' | '.join([LOADS[key].title, *cells, *last])} |"


def _cell(results: Results, key: str, name: str) -> str:
    speed, cpu = results.middle(key, name, "mb_s"), results.middle(key, name, "cpu_per_gb")
    return "–" if speed is None or cpu is None else f"{speed:,.0f} MB/s, {cpu:.2f} CPU s/GB"


def _ratios(results: Results, key: str) -> tuple[float, float] | None:
    found = [[results.middle(key, name, what) for name in (ODRADEK, KAFKA)] for what in ("mb_s", "cpu_per_gb")]
    shares = [ours / theirs for ours, theirs in found if ours is not None and theirs]
    return (shares[0], shares[1]) if len(shares) == 2 else None


def _share(results: Results, key: str) -> str:
    shares = _ratios(results, key)
    return "–" if shares is None else f"{shares[0]:.2f}× MB/s, {shares[1]:.2f}× CPU"


def _word(results: Results, key: str) -> str:
    shares = _ratios(results, key)
    if shares is None:
        return "–"
    missed = [name for name, bad in (("MB/s", shares[0] < 1), ("CPU", shares[1] > 1)) if bad]
    return f"MISSED: {', '.join(missed)}" if missed else "met"
