"""The part of RESULTS.md on clusters of three brokers."""

from __future__ import annotations

from odradek.loadtest.clusters.catching_up import CATCH_UP
from odradek.loadtest.clusters.cluster_rows import IDLE, IDLE_PARTITIONS, ROWS
from odradek.loadtest.clusters.failovers import CONTROLLER, CONTROLLER_PARTITIONS, FAILOVER, FAILOVER_PARTITIONS
from odradek.loadtest.clusters.zookeeper import VERSION
from odradek.loadtest.harness.store import Results
from odradek.loadtest.reports.report_rows import summary, table

_KAFKA, _ODRADEK = "Apache Kafka", "Odradek"
_IDLE_CPU, _IDLE_MEMORY, _FAILOVER_S, _CATCH_UP = 1 / 2, 1 / 5, 2.0, 0.7
_METHOD = f"""\
Three brokers and ZooKeeper on this machine's cores, Apache Kafka {VERSION} in ZooKeeper mode with a heap of 1 GiB each;
only one cluster runs at a time. Replication factor 3, acks=all, min.insync.replicas=2, librdkafka; one partition unless
stated otherwise. CPU is that of all three brokers, without ZooKeeper. All other settings are defaults."""


def cluster_section(results: Results) -> str:
    """Loads, idleness, and the cost of a lost leader."""
    rows = [row for row in ROWS if row.key in results.entries]
    parts = [table(results, ROWS, (_KAFKA, _ODRADEK)), summary(results, ROWS)] if rows else []
    others = {IDLE: _idle, FAILOVER: _failover, CONTROLLER: _controller, CATCH_UP: _catch_up}
    parts += [tell(results) for key, tell in others.items() if key in results.entries]
    return "\n\n".join(["## Three brokers", _METHOD, *parts]) if parts else ""


def _idle(results: Results) -> str:
    head = f"Idle with {IDLE_PARTITIONS:,} partitions, factor 3:\n\n| brokers | CPU s per second | RSS | PSS |\n"
    lines = [_idle_line(results, name) for name in results.entries[IDLE].data]
    text = head + "| --- " * 4 + "|\n" + "\n".join(lines)
    pairs = [("cpu", _IDLE_CPU, "CPU"), ("pss", _IDLE_MEMORY, "Memory (PSS: shared pages count once)")]
    return text + "\n\n" + " ".join(_share(results, IDLE, what, most, word) for what, most, word in pairs)


def _idle_line(results: Results, name: str) -> str:
    cpu, rss, pss = (results.middle(IDLE, name, what) or 0 for what in ("cpu", "rss", "pss"))
    return f"| {name} | {cpu:.3f} | {rss:,.0f} MiB | {pss:,.0f} MiB |"


def _share(results: Results, key: str, what: str, most: float, word: str) -> str:
    ours, theirs = results.middle(key, _ODRADEK, what), results.middle(key, _KAFKA, what)
    if ours is None or not theirs:
        return ""
    return f"{word} ≤ {most:g} of Kafka's: {ours / theirs:.2f}, {'met' if ours / theirs <= most else 'MISSED'}."


def _failover(results: Results) -> str:
    head = (
        "Time from kill -9 of the leader of all partitions to the next acknowledged record, with default settings:\n\n"
    )
    title = "| brokers | partitions | first partition | all partitions |\n" + "| --- " * 4 + "|\n"
    names = results.entries[FAILOVER].data
    lines = [_failover_line(results, name, count) for name in names for count in FAILOVER_PARTITIONS]
    ours = results.middle(FAILOVER, _ODRADEK, "first_1")
    told = f"One partition ≤ {_FAILOVER_S:g} s: {'met' if ours is not None and ours <= _FAILOVER_S else 'MISSED'}."
    return head + title + "\n".join(line for line in lines if line) + "\n\n" + told


def _failover_line(results: Results, name: str, count: int) -> str:
    first, last = (results.middle(FAILOVER, name, f"{what}_{count}") for what in ("first", "last"))
    if first is None or last is None:
        return ""
    return f"| {name} | {count} | {first:.2f} s | {last:.2f} s |"


def _controller(results: Results) -> str:
    names = results.entries[CONTROLLER].data
    times = [f"{name} {results.middle(CONTROLLER, name, 'controller') or 0:.2f} s" for name in names]
    return (
        f"Time from kill -9 of the controller to the next created topic, with {CONTROLLER_PARTITIONS:,} partitions: "
        f"{', '.join(times)}."
    )


def _catch_up(results: Results) -> str:
    head = (
        "A follower with an empty disk copies 2 GB from a leader, and one consumer reads them from the same leader:\n\n"
    )
    title = "| brokers | follower | consumer |\n" + "| --- " * 3 + "|\n"
    lines, told = [], ""
    for name in results.entries[CATCH_UP].data:
        copied, read = (results.middle(CATCH_UP, name, what) or 0 for what in ("copied", "read"))
        lines.append(f"| {name} | {copied / 1e6:,.0f} MB/s | {read / 1e6:,.0f} MB/s |")
        if name == _ODRADEK and read:
            met = "met" if copied / read >= _CATCH_UP else "MISSED"
            told = f"\n\nOdradek's follower ≥ {_CATCH_UP:g} of its consumer: {copied / read:.2f}, {met}."
    return head + title + "\n".join(lines) + told
