"""tests/CHAOS.md: a row for each run of `make chaos`, added by the command when it ends."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from odradek.loadtest.harness import store

_HEAD = """# Chaos

`make chaos` adds a row to this file at the end of each run. A run has a ZooKeeper and three brokers, each broker in its
own network namespace and with its own file system. The load is a topic with three partitions, replication factor 3 and
`min.insync.replicas` 2; six producers write (acks=all idempotent, acks=all and acks=1 without retries, each of them
uncompressed and with lz4), two members of a group read and commit, and a consumer without a group reads, too.
Administrators reassign replicas, elect leaders, add partitions, delete and recreate topics, and change
`min.insync.replicas` meanwhile. The seed determines the faults: `make chaos SEED=… MINUTES=…` repeats the sequence.
A round has four steps. After each round the run reads all records, checks every guarantee, and compares all replicas
byte by byte; after every fourth round it also stops all brokers and runs `odradek check` on their data directories. A
failover may lose records of acks=1; the run counts them. The security between brokers follows the seed
(`ARGS='--between SASL_SSL/SCRAM-SHA-512'`): clients then connect over SASL_SSL with exactly the ACLs that they need,
and brokers must refuse all requests of another client, which has none.

"""
_COLUMNS = (
    "date", "commit", "seed", "rounds", "minutes", "records acknowledged (acks=all / acks=1)",
    "records lost (acks=all / acks=1)", "commits", "errors found",
    "faults injected: count, name, longest time without an acknowledgement (s)",
)  # fmt: skip


@dataclass
class Summary:
    """The results of a run."""

    seed: int
    first_round: int = 0
    between: str | None = None  # the security between brokers
    rounds: int = 0
    minutes: float = 0.0
    acked: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    commits: int = 0
    came_late: int = 0
    done: Counter[str] = field(default_factory=Counter)
    gaps: dict[str, float] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def blow(self, name: str, gap: float) -> None:
        """Record a fault and its longest gap."""
        self.done[name] += 1
        self.gaps[name] = max(self.gaps.get(name, 0.0), gap)

    def row(self, commit: str) -> str:
        """The table's row."""
        kinds = "; ".join(f"{count} {name} {self.gaps[name]:.1f}" for name, count in sorted(self.done.items()))
        cells = [
            f"{datetime.now(UTC):%Y-%m-%d %H:%M}", commit, self._seed(),
            f"{self.first_round}–{self.first_round + self.rounds - 1}", f"{self.minutes:.0f}",
            f"{self.acked['all']:,} / {self.acked['1']:,}", f"{self.lost['all']} / {self.lost['1']}",
            self._commits(), _faults(self.faults), kinds,
        ]  # fmt: skip
        return f"| {' | '.join(cells)} |\n"

    def _seed(self) -> str:
        return f"{self.seed}, {self.between}" if self.between else str(self.seed)

    def _commits(self) -> str:
        return f"{self.commits:,}" + (f" ({self.came_late} late)" if self.came_late else "")


def _faults(faults: list[str]) -> str:
    if not faults:
        return "none"
    first = faults[0].splitlines()[0].replace("|", "/")[:160]
    return f"{len(faults)}: {first}"


def add(path: Path, summary: Summary) -> None:
    """Add the run's row to the file; create the file if it is missing."""
    if not path.exists():
        path.write_text(f"{_HEAD}| {' | '.join(_COLUMNS)} |\n|{' --- |' * len(_COLUMNS)}\n")
    with path.open("a") as file:
        file.write(summary.row(store.commit()))
