"""`make conformance SUITES=FOLDER`: other projects' client suites, unmodified, against brokers of this tree.

FOLDER, or else tests/suites/, has a script for each suite: `bash NAME.sh HOST:PORT all` prints `FAILED name` for what
fails, and at last `N passed, N failed, N skipped`. Each gets a fresh broker with what its project's own brokers have.
Writes the rows of those that have run into tests/CONFORMANCE.md.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from odradek.loadtest.harness import store

from .conformance_brokers import OPEN, Ready, plain, with_acls, with_sasl
from .harness.process import die_with_parent

REPORT = Path(__file__).parent / "CONFORMANCE.md"
OWN = Path(__file__).parent / "suites"
SECONDS = 3600
_LAST = re.compile(r"(\d+) passed, (\d+) failed, (\d+) skipped")
_KAFKA_GO = {"message_max_bytes": 200_000_000, "group_min_session_timeout_ms": 6000}
_REASONS = (
    (r"TestReaderConsumerGroup", "the suite's own helper ends the process, on Apache Kafka as well (no connect in it)"),
    (r"exactly_once_v2", "it waits for a count of 1, and the program before it counted the same key: so on any broker"),
    (r"848", "there is no new consumer group protocol yet (KIP-848)"),
    (r"quorum|features", "a cluster on ZooKeeper has no quorum and no features, as Apache Kafka 3.9 on ZooKeeper"),
)
_COLUMNS = """| suite | date, commit | passed | failed | skipped | what failed, and why |
| --- | --- | --- | --- | --- | --- |"""
_HEAD = """# Conformance

Written by `make conformance`: client suites of other projects, unmodified, each against a fresh broker of this tree.

"""


@dataclass(frozen=True)
class Suite:
    """A suite's script, its broker with settings, and what the script wants in its environment."""

    name: str
    what: str
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    broker: Callable[..., Ready] = plain
    script: str = ""  # when it is not the name


SUITES = (
    Suite("kcat", "kcat: round trips, groups, transactions"),
    Suite("kcat-secured", "kcat over SASL_SSL with ACLs", broker=with_acls, script="kcat"),
    Suite("java-tools", "Apache Kafka's own tools and system-test programs", OPEN),
    Suite("kafka-go", "segmentio/kafka-go", OPEN | _KAFKA_GO, {"LIMIT": "1800"}, with_sasl),
    Suite("rust-rdkafka", "fede1024/rust-rdkafka", {"num_partitions": 3}, {"KAFKA_VERSION": "3.9.0"}),
    Suite("node-rdkafka", "Blizzard/node-rdkafka"),
    Suite("franz-go", "twmb/franz-go"),
)


@dataclass(frozen=True)
class Outcome:
    """What a suite said."""

    suite: Suite
    passed: int
    failed: int
    skipped: int
    names: tuple[str, ...]

    def row(self, when: str) -> str:
        """Of the table; each failure with its reason, where there is a known one."""
        told = "; ".join(f"{name}: {reason(name)}" for name in self.names).replace("|", "/") or "–"
        return f"| {self.suite.what} | {when} | {self.passed} | {self.failed} | {self.skipped} | {told} |"


def reason(name: str) -> str:
    """Why a test fails that is known to."""
    return next((why for pattern, why in _REASONS if re.search(pattern, name)), "**not explained**")


def parse(suite: Suite, text: str) -> Outcome:
    """What the script has printed; ValueError without its last line."""
    counts = _LAST.findall(text)
    if not counts:
        raise ValueError(f"{suite.name} did not say how many passed:\n{text[-2000:]}")
    names = re.findall(r"^FAILED (\S+)", text, re.MULTILINE)
    passed, failed, skipped = map(int, counts[-1])
    return Outcome(suite, passed, failed, skipped, tuple(names))


def script_of(suite: Suite, scripts: Path) -> Path:
    """In the given folder, or else in our own."""
    name = f"{suite.script or suite.name}.sh"
    return scripts / name if (scripts / name).exists() else OWN / name


def run(suite: Suite, scripts: Path, folder: Path) -> Outcome:
    """On a broker of its own."""
    ready = suite.broker(folder / suite.name, **suite.settings)
    try:
        words = ["bash", str(script_of(suite, scripts)), ready.address, "all"]
        places = {"TMPDIR": str(folder), "SUITES_LIB": str(scripts / "lib.sh")}
        environment = {**os.environ, **suite.environment, **ready.environment, **places}
        done = subprocess.run(
            words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS,
            preexec_fn=die_with_parent,
        )  # fmt: skip
    finally:
        ready.broker.close()
    return parse(suite, done.stdout)


def report(outcomes: list[Outcome], former: str = "") -> str:
    """CONFORMANCE.md; `former`: as it was, of which the rows of other suites stay."""
    rows = {line.split(" | ")[0]: line for line in former.splitlines() if line.startswith("| ")}
    when = f"{datetime.now(UTC):%Y-%m-%d}, {store.commit()}"
    rows |= {row.split(" | ")[0]: row for row in (outcome.row(when) for outcome in outcomes)}
    table = [row for suite in SUITES if (row := rows.get(f"| {suite.what}"))]
    where = [f"- {name}: {fact}" for name, fact in store.machine().items()]
    return "\n".join([_HEAD + _COLUMNS, *table, "", *where, ""])


@click.command()
@click.argument("scripts", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--suites", default=",".join(suite.name for suite in SUITES), show_default=True)
@click.option("--keep/--no-keep", default=True, help="Write tests/CONFORMANCE.md.")
def main(scripts: Path, suites: str, keep: bool) -> None:
    """Run client suites of other projects."""
    wanted, outcomes = suites.split(","), []
    with tempfile.TemporaryDirectory(prefix="odradek-conformance-") as folder:
        for suite in (suite for suite in SUITES if suite.name in wanted):
            outcomes.append(run(suite, scripts.resolve(), Path(folder)))
            click.echo(outcomes[-1].row("now"))
    if keep:
        REPORT.write_text(report(outcomes, REPORT.read_text()))
    sys.exit(any(reason(name).startswith("**") for outcome in outcomes for name in outcome.names))


if __name__ == "__main__":
    main()
