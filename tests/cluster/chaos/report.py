"""tests/CHAOS.md: a row for each run of `make chaos`, added by the command when it ends."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from odradek.loadtest.harness import store

_HEAD = """# Chaos

Written by `make chaos`: a row for each run, added when it ends. Three brokers on network namespaces of their own, each
with a file system of its own, and a ZooKeeper; a topic of three partitions, factor 3, `min.insync.replicas` 2, under
six producers (acks=all idempotent, acks=all and acks=1 without retries; plain and lz4), a group of two that commits and
a reader that follows. Administrators reassign, elect, add partitions, delete topics and make them again, and change
`min.insync.replicas` meanwhile. Faults are drawn from the seed (`make chaos SEED=… MINUTES=…` repeats the sequence);
after each four all is read, every promise is checked, and all replicas are compared byte by byte; now and then all
brokers are stopped and every data directory is checked. What acks=1 loses in a failover is allowed, and counted.
Behind a seed: what secures the connections between brokers (`ARGS='--between SASL_SSL/SCRAM-SHA-512'`); clients then
come over SASL_SSL with exactly the ACLs that they need, and an outsider without any tries to write and read as well.

"""
_COLUMNS = (
    "date", "commit", "seed", "rounds", "minutes", "records acked (all / 1)", "lost (all / 1)", "commits",
    "faults found", "done, and the longest time without an acknowledgement in s",
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
        return f"{self.commits:,}" + (f" ({self.came_late} came late)" if self.came_late else "")


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
