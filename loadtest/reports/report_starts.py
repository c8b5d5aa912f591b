"""The parts of RESULTS.md on start-up, memory and recovery."""

from __future__ import annotations

from odradek.loadtest.harness.store import Results
from odradek.loadtest.measurements.recovery import GIGABYTES, PARTITIONS, Cost

RECOVERY = "recovery"
SIZES = {"start1": 1, "start1000": 1000}
KAFKA, ODRADEK = "Apache Kafka", "Odradek"
START_SECONDS, IDLE_SHARE, LOADED_SHARE, RECOVERY_SHARE = 1.0, 1 / 3, 1 / 6, 1 / 2


def starts_section(results: Results) -> str:
    """A table with a line for each broker and number of partitions, and the targets under it."""
    keys = [key for key in SIZES if key in results.entries]
    if not keys:
        return ""
    head = "| broker | partitions | after a stop | after kill -9 | idle PSS (RSS) | loaded PSS (RSS) |\n"
    lines = [_line(results, key, name) for key in keys for name in results.entries[key].data]
    table = head + "| --- " * 6 + "|\n" + "\n".join(lines)
    told = "Seconds from exec to the first Metadata response with a leader for every partition; MiB of all processes."
    return "\n\n".join(["## Start-up and memory", table, told, *_verdicts(results, keys)])


def recovery_section(results: Results) -> str:
    """The cost of a start that must check all records, and the target under it."""
    entry = results.entries.get(RECOVERY)
    if entry is None:
        return ""
    size = f"{GIGABYTES * entry.scale:g} GB over {PARTITIONS} partitions"
    told = (
        f"{size} that Apache Kafka wrote, after kill -9: seconds from exec until ListOffsets returns the end of each "
        "partition."
    )
    middle = {name: [results.middle(RECOVERY, name, what) or 0 for what in Cost._fields] for name in entry.data}
    lines = [f"| {name} | {seconds:.1f} s | {cpu:.1f} CPU s |" for name, (seconds, cpu) in middle.items()]
    parts = ["## Recovery", told, "\n".join(["| broker | time | CPU |", "| --- | --- | --- |", *lines])]
    if KAFKA in middle and ODRADEK in middle:
        share = middle[ODRADEK][0] / middle[KAFKA][0]
        parts.append(f"Time ≤ {RECOVERY_SHARE:g} of Kafka's: {share:.2f}, {_word(share <= RECOVERY_SHARE)}.")
    return "\n\n".join(parts)


def _line(results: Results, key: str, name: str) -> str:
    middle = {what: results.middle(key, name, what) or 0 for what in results.entries[key].data[name][0]}
    memory = [f"{middle[f'{when}_pss']:,.0f} ({middle[f'{when}_rss']:,.0f}) MiB" for when in ("idle", "loaded")]
    cells = [name, str(SIZES[key]), f"{middle['clean']:.2f} s", f"{middle['killed']:.2f} s", *memory]
    return f"| {' | '.join(cells)} |"


def _verdicts(results: Results, keys: list[str]) -> list[str]:
    slowest = [results.middle(key, ODRADEK, what) or 0 for key in keys for what in ("clean", "killed")]
    told = [f"Start-up ≤ {START_SECONDS:g} s: {_word(max(slowest) <= START_SECONDS)}."]
    for what, share in (("idle", IDLE_SHARE), ("loaded", LOADED_SHARE)):
        ours, theirs = (results.middle(keys[0], name, f"{what}_pss") for name in (ODRADEK, KAFKA))
        if ours and theirs:
            told.append(
                f"Memory {what} ≤ {share:.2f} of Kafka's: {ours / theirs:.2f}, {_word(ours / theirs <= share)}."
            )
    return [" ".join(told)]


def _word(good: bool) -> str:
    return "met" if good else "MISSED"
