"""`python -m tests.cluster.chaos`: runs random faults for some minutes, judges, and adds a row to tests/CHAOS.md."""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import sys
import tempfile
import time
import traceback
from functools import partial
from pathlib import Path

from ...harness.needs import missing
from . import plan, report
from .chaos_cluster import ChaosCluster
from .report import Summary
from .trial import Blow, bounce, strike, strike_both, target
from .world import World

BROKERS = 3
REPORT = Path(__file__).parents[2] / "CHAOS.md"
_DESCRIPTION = "Run a cluster under load with random faults, check it, and add a row to tests/CHAOS.md."


def say(text: str) -> None:
    """Print a line with the time, to compare with the brokers' logs."""
    print(f"{time.strftime('%X')} {text}", flush=True)


def take(world: World, step: plan.Step, rng: random.Random) -> Blow:
    """Run one step."""
    whose = partial(target, world, step.whose, rng)
    if step.bounce:
        return bounce(world, step.kind, whose, step.seconds)
    broker = whose()
    if not step.second:
        return strike(world, step.kind, broker, step.seconds)
    other = target(world, step.second_whose, rng)
    if other == broker:
        other = (broker + 1) % len(world.chaos_cluster.ids)
    return strike_both(world, (step.kind, broker), (step.second, other), step.seconds)


def play(chaos_cluster: ChaosCluster, one: plan.Round, summary: Summary) -> None:
    """Run a round, and judge it."""
    rng = random.Random(f"{summary.seed}/{one.number}/targets")
    world = World(chaos_cluster)
    with world.running():
        for step in one.steps:
            say(f"round {one.number}: {step}")
            blow = take(world, step, rng)
            summary.blow(blow.name, blow.gap)
            say(f"    broker {blow.broker}: no acknowledgement for up to {blow.gap:.1f} s")
        verdict = world.verify()
    summary.acked.update(verdict.acked)
    summary.lost.update(verdict.lost)
    summary.commits += verdict.commits
    summary.came_late += verdict.came_late
    summary.faults += verdict.faults
    say(f"round {one.number}: {verdict.counts()}; {len(verdict.faults)} errors found")
    if not verdict.faults:
        summary.faults += chaos_cluster.check() if one.check else []
    if not summary.faults:
        chaos_cluster.delete_topic(world.topic)
    summary.rounds += 1


def run(seed: int, first: int, minutes: float, folder: Path, between: str | None = None) -> Summary:
    """Run rounds until the time is over or a fault is found."""
    summary, began = Summary(seed, first, between), time.monotonic()
    with ChaosCluster(folder, BROKERS, between) as chaos_cluster:
        try:
            for one in itertools.islice(plan.rounds(seed), first, None):
                if time.monotonic() - began > minutes * 60 or summary.faults:
                    break
                play(chaos_cluster, one, summary)
        except (Exception, KeyboardInterrupt) as error:
            traceback.print_exc()
            summary.faults.append(f"{type(error).__name__}: {error}")
        if summary.faults:
            _keep(chaos_cluster, folder)
    summary.minutes = (time.monotonic() - began) / 60
    return summary


def _keep(chaos_cluster: ChaosCluster, folder: Path) -> None:
    """Keep the logs and the current data, which the end of the namespaces would remove."""
    for number in chaos_cluster.ids:
        shutil.copytree(chaos_cluster.data(number), folder / f"data-{number}", ignore=shutil.ignore_patterns("ballast"))


def main() -> int:
    """Run chaos; return 0 if no fault is found."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.chaos", description=_DESCRIPTION)
    parser.add_argument("--minutes", type=float, default=1.0, help="start no round after this time (default: 1)")
    drawn = "seed of the faults: the same seed gives the same sequence (default: random)"
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help=drawn)
    parser.add_argument("--first", type=int, default=0, help="number of the first round, to continue an earlier run")
    secured = "secure the cluster, with this security between brokers: SSL or SASL_SSL/SCRAM-SHA-512, for example"
    parser.add_argument("--between", metavar="PROTOCOL[/MECHANISM]", help=secured)
    parser.add_argument("--report", type=Path, default=REPORT, help="file to add a row to (default: tests/CHAOS.md)")
    given = parser.parse_args()
    why = missing("java-3.9.1")
    if why:
        parser.error(why)
    folder = Path(tempfile.mkdtemp(prefix="odradek-chaos-"))
    say(f"SEED={given.seed} MINUTES={given.minutes:g}, first round {given.first}; logs in {folder}")
    summary = run(given.seed, given.first, given.minutes, folder, given.between)
    report.add(given.report, summary)
    say(f"{summary.rounds} rounds in {summary.minutes:.1f} minutes; {summary.row('')}")
    for fault in summary.faults[:20]:
        print(fault)
    if not summary.faults:
        shutil.rmtree(folder, ignore_errors=True)
    return bool(summary.faults)


if __name__ == "__main__":
    sys.exit(main())
