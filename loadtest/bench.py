"""`make bench`: Odradek beside Apache Kafka, the same loads in turn, written to loadtest/RESULTS.md.

Both brokers stay up for the whole run and only one has work at a time, so a figure includes a little of the other's
idling; how much is under the table. Each broker gets one uncounted round first: the JVM compiles, caches fill.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click
from odradek.loadtest.brokers import BrokerError, Running, apache_kafka, odradek
from odradek.loadtest.report import Results, line, markdown, verdict
from odradek.loadtest.work import LOADS, Lines, Load, LoadError, run

QUICK_SCALE = 0.1
IDLE_SECONDS = 3


def measure(brokers: Sequence[Running], loads: Sequence[Load], lines: Lines, results: Results) -> None:
    """All `loads` on all `brokers`, `results.rounds` times, one broker at a time."""
    for turn in range(results.rounds + 1):
        for load in loads:
            for broker in brokers:
                cost = run(load, broker, lines, results.scale)
                click.echo(f"{_turn(turn)} {broker.name:13} {load.key:17} {line(broker.name, [cost])}", err=True)
                if turn:
                    results.add(load, broker, cost)


def _turn(turn: int) -> str:
    return f"round {turn}:" if turn else "warm-up:"


def note_facts(brokers: Sequence[Running], results: Results) -> None:
    """Start-up time, memory and idle CPU of each broker, after the loads."""
    before = [broker.cpu() for broker in brokers]
    time.sleep(IDLE_SECONDS)
    for broker, cpu in zip(brokers, before, strict=True):
        results.fact(broker, f"first answer {broker.start_s:.1f} s after exec")
        results.fact(broker, f"{broker.memory():,.0f} MiB after the loads")
        results.fact(broker, f"{(broker.cpu() - cpu) / IDLE_SECONDS:.1%} of a core when idle")


def bench(rounds: int, scale: float, loads: Sequence[Load], only_odradek: bool, folder: Path) -> Results:
    """Start the brokers under `folder`, measure, stop them."""
    results = Results(rounds, scale)
    with contextlib.ExitStack() as stack:
        starters = [odradek] if only_odradek else [apache_kafka, odradek]
        brokers = [stack.enter_context(start(folder / start.__name__)) for start in starters]
        measure(brokers, loads, Lines(folder), results)
        note_facts(brokers, results)
    return results


@click.command()
@click.option("--quick", is_flag=True, help="A tenth of each load, one round: for use while developing.")
@click.option("--rounds", default=3, show_default=True, help="How often each load is measured.")
@click.option("--only-odradek", is_flag=True, help="Leave Apache Kafka out.")
@click.option("--load", "keys", multiple=True, type=click.Choice([load.key for load in LOADS]), help="Only these.")
@click.option("--folder", type=click.Path(path_type=Path), help="Put the data here (default: a temporary folder).")
@click.option("--out", type=click.Path(path_type=Path), help="Where the report goes (default: loadtest/RESULTS.md).")
def main(
    quick: bool, rounds: int, only_odradek: bool, keys: Sequence[str], folder: Path | None, out: Path | None
) -> None:
    """Measure what a message costs the broker."""
    loads = [load for load in LOADS if not keys or load.key in keys]
    with tempfile.TemporaryDirectory(prefix="odradek-bench-", dir=folder) as room:
        try:
            results = bench(1 if quick else rounds, QUICK_SCALE if quick else 1, loads, only_odradek, Path(room))
        except (BrokerError, LoadError) as error:
            click.echo(f"bench: {error}", err=True)
            sys.exit(1)
    _write(results, out, whole=not (quick or keys or only_odradek))


def _write(results: Results, out: Path | None, whole: bool) -> None:
    """Print a part run's report; a whole run's, or one with `--out`, goes to its file."""
    path = out or (Path(__file__).parent / "RESULTS.md" if whole else None)
    if path is None:
        click.echo(markdown(results))
        return
    path.write_text(markdown(results))
    click.echo(f"wrote {path}\n{verdict(results)}")


if __name__ == "__main__":
    main()
