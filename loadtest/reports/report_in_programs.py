"""The part of RESULTS.md on Odradek inside Python programs."""

from __future__ import annotations

from odradek.loadtest.harness.store import Results
from odradek.loadtest.measurements.in_programs import FILE_HANDLER, KAFKA_HANDLER, LOG, ODRADEK, RECORDS, START

SECONDS, MEGABYTES = 0.3, 60.0
_STARTED = (
    "A `Broker` of a Python program or test run, with its defaults: from `start()` to the first Metadata response. CPU "
    "and PSS are those of all its processes, then."
)
_LOGGED = (
    "Records of Python's `logging` as JSON objects, to a topic until the broker has acknowledged all, and to a file. "
    "CPU is that of the program, with the thread that sends, and of the broker."
)


def in_programs_section(results: Results) -> str:
    """A table for the start with its targets, and one for the handlers."""
    parts = _start(results) if START in results.entries else []
    parts += _handlers(results) if LOG in results.entries else []
    return "\n\n".join(["## Inside Python programs", *parts]) if parts else ""


def _start(results: Results) -> list[str]:
    seconds, cpu, pss = (results.middle(START, ODRADEK, name) or 0 for name in ("seconds", "cpu", "pss"))
    size = pss * (1 << 20) / 1e6
    table = "| first answer | CPU | PSS |\n| --- | --- | --- |\n" + f"| {seconds:.2f} s | {cpu:.2f} s | {size:.0f} MB |"
    verdicts = f"First answer ≤ {SECONDS:g} s: {_word(seconds <= SECONDS)}. PSS ≤ {MEGABYTES:g} MB: "
    return [_STARTED, table, f"{verdicts}{_word(size <= MEGABYTES)}."]


def _handlers(results: Results) -> list[str]:
    records = results.entries[LOG].scale * RECORDS
    head = f"| {records / 1000:g} k records | records/s | CPU of the program per record | of the broker |\n"
    names = [name for name in (KAFKA_HANDLER, FILE_HANDLER) if name in results.entries[LOG].data]
    return [_LOGGED, f"{head}{'| --- ' * 4}|\n" + "\n".join(_line(results, name, records) for name in names)]


def _line(results: Results, name: str, records: float) -> str:
    rate, own, broker = (results.middle(LOG, name, what) or 0 for what in ("rate", "client_cpu", "broker_cpu"))
    beside = f"{broker / records * 1e6:.2f} µs" if name == KAFKA_HANDLER else "–"
    return f"| {name} | {rate / 1000:,.0f} k | {own / records * 1e6:.2f} µs | {beside} |"


def _word(good: bool) -> str:
    return "met" if good else "MISSED"
