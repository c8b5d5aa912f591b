"""`make bench`: compare Odradek with Apache Kafka and RabbitMQ, the same loads in turn; writes loadtest/RESULTS.md.

New figures replace the former ones in results.json, and the report is written from all results: rows can be measured
one at a time. A quick run or a part of the load is for development: it keeps nothing without `--out`.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from odradek.loadtest.clusters import cluster_rows
from odradek.loadtest.clusters.cluster_works import WORKS, Work
from odradek.loadtest.clusters.clusters import CLUSTERS, Cluster
from odradek.loadtest.harness.brokers import KINDS, Broker
from odradek.loadtest.harness.load_clients import Cost, LoadError
from odradek.loadtest.harness.store import Entry, Results, load, save
from odradek.loadtest.harness.tools import BrokerError, say
from odradek.loadtest.harness.wire import WireError
from odradek.loadtest.measurements import (
    compaction,
    guard_rows,
    in_programs,
    neighbours,
    parquet,
    producers,
    record_looks,
    recovery,
    secure_rows,
    starts,
    tables,
)
from odradek.loadtest.measurements.curves import CURVES, Bench
from odradek.loadtest.measurements.parquet import LOADS
from odradek.loadtest.measurements.rows import ROWS, Row, once, prepare
from odradek.loadtest.reports.report import markdown
from odradek.loadtest.reports.report_curves import PICTURE, draw
from odradek.loadtest.reports.report_rows import micros, summary
from odradek.loadtest.reports.report_starts import RECOVERY, SIZES

QUICK_SCALE = 0.05
HERE = Path(__file__).parent
GROUPS = {
    "table": [row.key for row in ROWS],
    "tls": [row.key for row in secure_rows.ROWS],
    "guards": [row.key for row in guard_rows.ROWS],
    neighbours.KEY: [neighbours.KEY],
    "look": list(record_looks.LOADS),
    "start": list(SIZES),
    RECOVERY: [RECOVERY],
    "compaction": list(compaction.LOADS),
    "producers": list(producers.LOADS),
    "curves": list(CURVES),
    "pipeline": list(LOADS),
    "arrow": list(tables.LOADS),
    "programs": list(in_programs.KEYS),
    "cluster": [*(row.key for row in cluster_rows.ROWS), *WORKS],
}
Kinds = Sequence[type[Broker]]
Once = Callable[[Row, Broker, float], Cost]


def attempt(key: str, work: Callable[[], Entry], results: Results) -> bool:
    """Store the result of `work` as `key`; returns whether there is one. A failure affects that key only."""
    try:
        results.entries[key] = work()
    except (BrokerError, LoadError, WireError, OSError) as error:
        say(f"bench: {key}: {error}")
        results.failed.append(key)
    return key not in results.failed


def measure_rows(kinds: Kinds, rows: Sequence[Row], bench: Bench, results: Results, warm: bool) -> Iterator[str]:
    """Measure all `rows`, each on freshly started brokers; yields each row's key when it is done."""
    with contextlib.ExitStack() as stack:
        brokers = [stack.enter_context(kind(bench.folder / kind.key)) for kind in kinds]
        yield from _measure_on(brokers, rows, bench, results, warm, once)
    _clear(brokers)


def measure_secure_rows(kinds: Kinds, rows: Sequence[Row], bench: Bench, results: Results, warm: bool) -> Iterator[str]:
    """The same over TLS, on the brokers that speak Kafka's protocol."""
    tls = secure_rows.certificates(bench.folder)
    with contextlib.ExitStack() as stack:
        brokers = [
            stack.enter_context(kind(bench.folder / kind.key, tls=tls)) for kind in kinds if kind.speaks == "kafka"
        ]
        yield from _measure_on(brokers, rows, bench, results, warm, secure_rows.once)
    _clear(brokers)


def measure_guard_rows(rows: Sequence[Row], bench: Bench, results: Results, warm: bool) -> Iterator[str]:
    """Loads of Odradek with and without an authorizer and quotas."""
    with guard_rows.brokers(bench.folder) as brokers:
        yield from _measure_on(brokers, rows, bench, results, warm, once)
    _clear(brokers)


def _measure_on(
    brokers: Sequence[Broker], rows: Sequence[Row], bench: Bench, results: Results, warm: bool, once: Once
) -> Iterator[str]:
    results.versions.update({type(broker).name: broker.version for broker in brokers})
    for row in rows:
        if attempt(row.key, partial(measure_row, brokers, row, bench, warm, once), results):
            yield row.key


def _clear(brokers: Sequence[Broker]) -> None:
    """Free the disk for the next measurement."""
    for broker in brokers:
        shutil.rmtree(broker.folder, ignore_errors=True)


def measure_row(brokers: Sequence[Broker], row: Row, bench: Bench, warm: bool, once: Once = once) -> Entry:
    """`row` in turn on each broker, `bench.rounds` times, after one round in which the JVM compiles."""
    entry, able = Entry({}, bench.rounds, bench.scale), [one for one in brokers if row.call(one, bench.scale)]
    for broker in able:
        _restart(broker)
    for turn in range(0 if warm and not row.cold else 1, bench.rounds + 1):
        for broker in able:
            if row.cold:
                prepare(row, broker, bench.scale)
                _restart(broker)
            cost = once(row, broker, bench.scale)
            late = f", p99 {micros(cost.p99)}" if cost.p99 else ""
            say(f"{row.key} {turn or 'warm-up'}: {broker.name} {cost.rate:,.0f} msg/s, {cost.cpu_us:.2f} µs{late}")
            if turn:
                entry.data.setdefault(broker.name, []).append(cost.as_dict())
    return entry


def _restart(broker: Broker) -> None:
    """Code that a JVM compiled in one row would speed up the next: the order of rows must not matter."""
    broker.stop()
    broker.start()


def measure_starts(kinds: Kinds, key: str, bench: Bench) -> Entry:
    """Start-up and memory, in turn."""
    entry, partitions = Entry({}, bench.rounds, bench.scale), SIZES[key]
    chosen = [kind for kind in kinds if partitions == 1 or kind.speaks == "kafka"]
    brokers = [starts.prepared(kind, bench.folder / f"{key}-{kind.key}", partitions) for kind in chosen]
    for turn in range(bench.rounds):
        for broker in brokers:
            found = starts.once(broker, partitions, bench.scale)
            say(
                f"{key} {turn + 1}: {broker.name} " + ", ".join(f"{name} {value:,.2f}" for name, value in found.items())
            )
            entry.data.setdefault(broker.name, []).append(found)
    _clear(brokers)
    return entry


def measure_recovery(kinds: Kinds, _: str, bench: Bench) -> Entry:
    """Starts after kill -9 on gigabytes of unchecked logs, in turn."""
    entry, names = Entry({}, bench.rounds, bench.scale), [kind.name for kind in kinds]
    folder = bench.folder / RECOVERY
    found = recovery.measure(folder, recovery.GIGABYTES * bench.scale, recovery.PARTITIONS, bench.rounds, names)
    entry.data = {name: [cost._asdict() for cost in costs] for name, costs in found.items()}
    shutil.rmtree(folder)
    return entry


def measure_compaction(kinds: Kinds, key: str, bench: Bench) -> Entry:
    """A log that becomes compacted, in turn."""
    names = [kind.key for kind in kinds]
    chosen = [kind for kind in compaction.KINDS if kind.key in names]
    return compaction.measure(key, bench.folder, bench.rounds, bench.scale, chosen)


def measure_looks(kinds: Kinds, key: str, bench: Bench) -> Entry:
    """The cost of checking records, of Odradek alone."""
    return record_looks.measure(key, bench.folder, bench.rounds, bench.scale)


def measure_producers(kinds: Kinds, key: str, bench: Bench) -> Entry:
    """A table of producers, without a comparison to other brokers."""
    return producers.measure(key, bench.folder, bench.rounds, bench.scale)


def measure_neighbours(kinds: Kinds, key: str, bench: Bench) -> Entry:
    """A client's latency beside others, of Odradek alone."""
    return neighbours.measure(bench.folder, bench.rounds, bench.scale)


def measure_cluster_rows(kinds: Kinds, keys: Sequence[str], bench: Bench, results: Results) -> Iterator[str]:
    """Loads of clusters, which run one at a time: two clusters of three JVMs would disturb each other."""
    for row in [row for row in cluster_rows.ROWS if row.key in keys]:
        if attempt(row.key, partial(_in_turn, kinds, row.key, partial(_one_row, row), bench), results):
            yield row.key
    for key, work in WORKS.items():
        if key in keys and attempt(key, partial(_in_turn, kinds, key, work, bench), results):
            yield key


def _in_turn(kinds: Kinds, key: str, work: Work, bench: Bench) -> Entry:
    entry, names = Entry({}, bench.rounds, bench.scale), [kind.key for kind in kinds]
    for kind in [kind for kind in CLUSTERS if kind.key in names]:
        folder = bench.folder / f"{key}-{kind.key}"
        with kind(folder) as cluster:
            cluster.start()
            entry.data[kind.name] = work(cluster, bench)
        shutil.rmtree(folder, ignore_errors=True)
    return entry


def _one_row(row: Row, cluster: Cluster, bench: Bench) -> list[dict[str, Any]]:
    costs = [once(row, cluster, bench.scale) for _ in range(bench.rounds + 1)]
    for cost in costs:
        late = f", p50 {micros(cost.p50)}, p99 {micros(cost.p99)}" if cost.p99 else ""
        say(f"{row.key}: {cluster.name} {cost.rate:,.0f} msg/s, {cost.cpu_us:.2f} µs{late}")
    return [cost.as_dict() for cost in costs[1:]]


def measure_curve(kinds: Kinds, key: str, bench: Bench) -> Entry:
    """One curve, broker by broker."""
    work, possible = CURVES[key]
    entry = Entry({}, bench.rounds, bench.scale)
    for kind in possible:
        if kind in kinds:
            say(f"{key}: {kind.name}")
            entry.data[kind.name] = work(bench, kind)
    return entry


def measure(kinds: Kinds, keys: Sequence[str], bench: Bench, results: Results, warm: bool) -> Iterator[str]:
    """Measure everything in `keys`, into `results`; yields each key when it is done."""
    rows = [row for row in ROWS if row.key in keys]
    if rows:
        yield from measure_rows(kinds, rows, bench, results, warm)
    secure = [row for row in secure_rows.ROWS if row.key in keys]
    if secure:
        yield from measure_secure_rows(kinds, secure, bench, results, warm)
    guarded = [row for row in guard_rows.ROWS if row.key in keys]
    if guarded:
        yield from measure_guard_rows(guarded, bench, results, warm)
    yield from measure_cluster_rows(kinds, keys, bench, results)
    works = {
        neighbours.KEY: measure_neighbours,
        **dict.fromkeys(record_looks.LOADS, measure_looks),
        **dict.fromkeys(SIZES, measure_starts),
        RECOVERY: measure_recovery,
        **dict.fromkeys(compaction.LOADS, measure_compaction),
        **dict.fromkeys(producers.LOADS, measure_producers),
        **dict.fromkeys(CURVES, measure_curve),
        **dict.fromkeys(LOADS, parquet.measure),
        **dict.fromkeys(tables.LOADS, tables.measure),
        **dict.fromkeys(in_programs.KEYS, in_programs.measure),
    }
    for key in keys:
        work = works.get(key)
        if work and attempt(key, partial(work, kinds, key, bench), results):
            yield key


def chosen_keys(words: str) -> list[str]:
    """The keys in a comma-separated list of rows and groups, in the report's order; all for an empty one."""
    everything = [key for group in GROUPS.values() for key in group]
    asked = [key for word in words.split(",") if word for key in GROUPS.get(word, [word])]
    for key in asked:
        if key not in everything:
            raise click.BadParameter(f"unknown row {key}; the rows are {', '.join([*GROUPS, *everything])}")
    return [key for key in everything if not asked or key in asked]


def chosen_kinds(words: str) -> Kinds:
    """The brokers in a comma-separated list; all for an empty one."""
    asked = [word for word in words.split(",") if word]
    for word in asked:
        if word not in [kind.key for kind in KINDS]:
            raise click.BadParameter(f"unknown broker {word}; the brokers are {', '.join(kind.key for kind in KINDS)}")
    return [kind for kind in KINDS if not asked or kind.key in asked]


@click.command()
@click.option(
    "--quick", is_flag=True, help="Run a twentieth of each load in one round; print the report and keep nothing."
)
@click.option("--rounds", default=5, show_default=True, help="Number of measurements of each row.")
@click.option("--scale", default=1.0, show_default=True, help="Share of each load; if it is not 1, keep nothing.")
@click.option(
    "--rows",
    default="",
    help=(
        "Only these rows or groups, comma-separated; the groups are table, tls, guards, neighbours, look, start, "
        "recovery, compaction, producers, curves, pipeline, arrow, programs, cluster."
    ),
)
@click.option("--brokers", default="", help="Only these brokers out of odradek, kafka and rabbitmq, comma-separated.")
@click.option("--folder", type=click.Path(path_type=Path), help="Folder for the data (default: a temporary folder).")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for results and report, instead of loadtest/.")
@click.option("--report", is_flag=True, help="Measure nothing; write the report from the kept results.")
def main(
    quick: bool, rounds: int, scale: float, rows: str, brokers: str, folder: Path | None, out: Path | None, report: bool
) -> None:
    """Measure the cost of a message in each broker."""
    keys, kinds = chosen_keys(rows), chosen_kinds(brokers)
    scale, rounds = (QUICK_SCALE, 1) if quick else (scale, rounds)
    keep = out or (HERE if scale == 1 else None)
    results = load(keep / "results.json") if keep else Results()
    with tempfile.TemporaryDirectory(prefix="odradek-bench-", dir=folder) as room:
        bench = Bench(Path(room), rounds, scale)
        try:
            for _ in [] if report else measure(kinds, keys, bench, results, warm=not quick):
                write(results, keep)
        except BrokerError as error:
            click.echo(f"bench: {error}", err=True)
            sys.exit(1)
    write(results, keep)
    click.echo(markdown(results) if keep is None else f"wrote {keep / 'RESULTS.md'}\n{summary(results)}")
    if results.failed:
        click.echo(f"bench: no figure for {', '.join(results.failed)}: see above", err=True)
        sys.exit(1)


def write(results: Results, keep: Path | None) -> None:
    """Write results, report and picture to `keep`, if there is one."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        save(results, keep / "results.json")
        draw(results, keep / PICTURE)
        (keep / "RESULTS.md").write_text(markdown(results))


if __name__ == "__main__":
    main()
