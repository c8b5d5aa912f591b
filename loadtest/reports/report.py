"""RESULTS.md: medians of the rounds, Odradek next to the others, and whether each target is met."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from odradek.loadtest.harness.store import Results, machine
from odradek.loadtest.measurements.rows import ROWS
from odradek.loadtest.reports.report_cluster import cluster_section
from odradek.loadtest.reports.report_compaction import compaction_section
from odradek.loadtest.reports.report_curves import curves_section
from odradek.loadtest.reports.report_guards import guards_section, neighbours_section
from odradek.loadtest.reports.report_in_programs import in_programs_section
from odradek.loadtest.reports.report_parquet import parquet_section
from odradek.loadtest.reports.report_producers import producers_section
from odradek.loadtest.reports.report_record_looks import record_looks_section
from odradek.loadtest.reports.report_rows import missed, summary, table
from odradek.loadtest.reports.report_secure import secure_section
from odradek.loadtest.reports.report_starts import recovery_section, starts_section
from odradek.loadtest.reports.report_tables import tables_section

_METHOD = """\
For each row, the bench starts all brokers and keeps them running; only one of them has load at a time. Each broker gets
a warm-up that does not count, then the rounds in turn; a figure is the median of its rounds. Where a row says so, the
bench starts the brokers for each round instead, without a warm-up. The clients are C programs (`loadtest/*.c`) on the
same cores as the broker; a topic has one partition. CPU is the user and system time of all processes of the broker,
divided by the messages. RabbitMQ has durable queues, persistent messages and publisher confirms, and confirms a message
when it is on the disk, which the others do not do by default; a dash means that AMQP has no counterpart.
Before a load that writes, the bench touches and frees the memory that the load needs: a virtual machine may have
returned it to its host, and to get it back costs 1 to 2 µs per kilobyte, ten times the cost of the write.
librdkafka sends from one thread, which is almost always busy while idempotent requests are in flight (0.96 of a core in
five-idem, 0.86 in batch50-idem): the client dominates these rows, so the bench also measures them over a plain socket.
"""


def clients_told(results: Results) -> str:
    """The client's CPU where Odradek misses msg/s: one of its threads sends, and the machine has two cores."""
    keys = [row.key for row in ROWS if "msg/s" in (missed(results, row) or [])]
    told = [f"{key} {_client_cores(results.entries[key].data['Odradek']):.2f}" for key in keys]
    return f"Cores that the client used, where msg/s are missed: {', '.join(told)}." if told else ""


def _client_cores(rounds: Sequence[dict[str, float]]) -> float:
    return median(one["client_cpu"] / one["seconds"] for one in rounds)


def markdown(results: Results) -> str:
    """The whole of RESULTS.md."""
    parts = [
        "# What a message costs",
        "Written by `make bench` from `loadtest/results.json`.",
        table(results),
        summary(results),
        clients_told(results),
        "Latencies are p50 / p99 / p99.9. CPU is that of the broker per message; for consumers, per delivered message.",
        _METHOD.strip(),
        secure_section(results),
        guards_section(results),
        neighbours_section(results),
        record_looks_section(results),
        starts_section(results),
        recovery_section(results),
        compaction_section(results),
        producers_section(results),
        curves_section(results),
        cluster_section(results),
        parquet_section(results),
        tables_section(results),
        in_programs_section(results),
        "## When and on what",
        provenance(results),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def provenance(results: Results) -> str:
    """When, at which commit and with what each row was measured."""
    runs: dict[str, list[str]] = {}
    for key, entry in results.entries.items():
        extent = f"{entry.rounds} rounds" + ("" if entry.scale == 1 else f", {entry.scale:.0%} of each load: rough")
        runs.setdefault(f"{entry.date[:10]}, commit {entry.commit}, {extent}", []).append(key)
    facts = [f"- {when}: {', '.join(keys)}" for when, keys in runs.items()]
    facts += [f"- {name}: {text}" for name, text in (results.versions | machine()).items()]
    return "\n".join(facts)
