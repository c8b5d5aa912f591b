"""tests/COMPACTION.md: a row for each run of the checker, added by the command when it ends."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from odradek.loadtest.harness import store

from .trial import Summary

_HEAD = """# Compaction

Written by `python -m tests.faults.compaction_checker --runs 20 --report tests/COMPACTION.md`: a row for each run, added
when it ends. A broker compacts a topic of three partitions all the time (segments of 8 KB, `log.cleaner.backoff.ms` 50,
`min.cleanable.dirty.ratio` 0.01, `delete.retention.ms` 300) while five producers write and delete 25 keys: one that is
idempotent, one that does not retry, two with short transactions and one whose transactions stay open for seconds.
Two more commit offsets of groups, plainly and in transactions over rolls, and delete groups.
Processes are killed and the broker is restarted meanwhile. With `--brokers 3` each partition is on three brokers
(`min.insync.replicas` 2, `delete.retention.ms` 20 s), all writers are idempotent, leaders are moved and brokers killed,
and at the end each of the brokers is read alone. Every few seconds fresh read_committed readers are compared
with a ledger of what was written, beside the writers and while they are held up, and OffsetFetch and
DescribeTransactions with what is known of them; at the end `odradek check` goes over
the directory.

"""
_COLUMNS = (
    "date", "commit", "seed", "minutes", "records", "transactions (committed / aborted)", "commits of offsets",
    "rounds of the cleaner",
    "readings", "of them different", "done meanwhile", "the first difference",
)  # fmt: skip


def row(summary: Summary, commit: str = "") -> str:
    """The table's row."""
    cells = [
        f"{datetime.now(UTC):%Y-%m-%d %H:%M}", commit, _run(summary), f"{summary.minutes:g}",
        f"{summary.records:,}", f"{summary.transactions['committed']:,} / {summary.transactions['aborted']:,}",
        f"{summary.commits:,}", str(summary.rounds), str(summary.readings), str(summary.differing),
        "; ".join(f"{count} {kind}" for kind, count in sorted(summary.faults.items())) or "nothing",
        summary.differences[0].replace("|", "/") if summary.differences else "none",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _run(summary: Summary) -> str:
    return str(summary.seed) if summary.brokers == 1 else f"{summary.seed}, {summary.brokers} brokers"


def add(path: Path, summary: Summary) -> None:
    """Append the row of the run, after the table head if the file is new."""
    if not path.exists():
        head = f"| {' | '.join(_COLUMNS)} |\n|{' --- |' * len(_COLUMNS)}\n"
        path.write_text(_HEAD + head)
    with path.open("a") as file:
        file.write(row(summary, store.commit()) + "\n")
