"""`python -m tests.faults.compaction_checker`: compaction under transactions and kills, compared with a ledger."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from . import report
from .targets import OneBroker, ThreeBrokers
from .trial import Summary, Trial


def main() -> int:
    """0 if no reading differs from the ledger."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.compaction_checker", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="of each run")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 16), help="of the first run; then the next")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="3: each partition on all of them")
    parser.add_argument("--no-harm", action="store_true", help="kill nothing")
    parser.add_argument("--report", type=Path, help="a file that gets a row for each run: tests/COMPACTION.md")
    given = parser.parse_args()
    differed = 0
    for seed in range(given.seed, given.seed + given.runs):
        summary = one(seed, given.minutes, not given.no_harm, given.brokers)
        differed += bool(summary.differences)
        print(report.row(summary), flush=True)
        if given.report:
            report.add(given.report, summary)
    print(f"{given.runs} runs, {differed} of them differ")
    return bool(differed)


def one(seed: int, minutes: float, harm: bool, brokers: int) -> Summary:
    """One run; its directory stays if there are differences."""
    folder = Path(tempfile.mkdtemp(prefix="odradek-compaction-"))
    trial = Trial(OneBroker(folder) if brokers == 1 else ThreeBrokers(folder), seed, minutes)
    try:
        summary = trial.run(harm)
    except AssertionError as error:
        print(error, file=sys.stderr)
        summary = trial.summary
        summary.differences.append(f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}")
    for difference in summary.differences[:10]:
        print(f"seed {seed}: {difference} ({folder})", flush=True)
    if not summary.differences:
        shutil.rmtree(folder)
    return summary


if __name__ == "__main__":
    sys.exit(main())
