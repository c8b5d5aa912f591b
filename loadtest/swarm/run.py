"""One complete run: a separate broker, locust's users, the comparison, the report.

The broker's data and the ledgers are in a temporary folder, deleted after a good run and kept after a bad one.
"""

from __future__ import annotations

import contextlib
import html
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
from confluent_kafka import KafkaException

from odradek.loadtest.swarm import ledger
from odradek.loadtest.swarm.broker import free_port, running
from odradek.loadtest.swarm.chart_script import into_script
from odradek.loadtest.swarm.compare import Findings
from odradek.loadtest.swarm.options import TOPICS
from odradek.loadtest.swarm.reading import ReadError, verify

LOCUSTFILE = Path(__file__).parents[1] / "locustfile.py"
RAMP_UP = 0.2  # of the run time, in the steady shape
LEGEND = (
    "Aggregated, RPS and the first two charts count acknowledged records; lag counts records that groups have not "
    "committed."
)
GREEN, RED = "#15803d", "#b91c1c"


@dataclass(frozen=True)
class Plan:
    """The parameters of a run. `web`: the port of locust's page, where users start and stop it; None is headless."""

    users: int
    seconds: float
    processes: int
    shape: str
    web: int | None
    report: Path
    extra: tuple[str, ...] = ()

    def words(self, bootstrap: str, ledgers: Path) -> list[str]:
        """Locust's command line."""
        words = [sys.executable, "-m", "locust", "-f", LOCUSTFILE, "--host", bootstrap, "--ledger", ledgers]
        words += ["--users", self.users, "--spawn-rate", max(1, round(self.users / (self.seconds * RAMP_UP)))]
        words += ["--run-time", f"{round(self.seconds)}s", "--shape", self.shape, "--html", self.report]
        words += [*self._parts(), *self._page(), *self.extra]
        return [str(word) for word in words]

    def _parts(self) -> list[object]:
        if self.processes < 2:
            return []
        port = free_port()
        ports = ["--master-bind-port", port, "--master-port", port]
        return ["--processes", self.processes, "--master-bind-host", "127.0.0.1", *ports]

    def _page(self) -> list[object]:
        if self.web is None:
            return ["--headless", "--only-summary"]
        return ["--web-host", "127.0.0.1", "--web-port", self.web, "--class-picker"]


def run(plan: Plan) -> bool:
    """Execute the plan and print the result; True when the broker kept its guarantees and no user met an error."""
    room = Path(tempfile.mkdtemp(prefix="odradek-swarm-"))
    plan.report.parent.mkdir(parents=True, exist_ok=True)
    with running(room / "broker") as bootstrap, _interrupts_end_locust_only():
        status = subprocess.run(plan.words(bootstrap, room / "ledger")).returncode
        findings = _compare(bootstrap, room / "ledger")
    lines = [findings.verdict, *findings.faults, _of_locust(status), _of_ledgers(room / "ledger")]
    good = status == 0 and findings.kept
    _tell(plan.report, lines, good)
    if good:
        shutil.rmtree(room)
    else:
        click.echo(f"the broker's data, log and ledgers are kept in {room}", err=True)
    return good


@contextlib.contextmanager
def _interrupts_end_locust_only() -> Iterator[None]:
    """Ctrl-C ends locust, which writes its report: the comparison still follows."""
    former = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)


def _compare(bootstrap: str, ledgers: Path) -> Findings:
    try:
        return verify(bootstrap, ledgers, TOPICS)
    except (ReadError, KafkaException) as error:
        return Findings(faults=[f"the log cannot be read to its end: {error}"])


def _of_locust(status: int) -> str:
    if status == 0:
        return "no user had an error"
    return "users had errors, see the failures" if status == 1 else f"locust ended with exit code {status}"


def _of_ledgers(folder: Path) -> str:
    count = len(ledger.files(folder))
    return f"acknowledgements recorded by {count} locust process{'' if count == 1 else 'es'}"


def _tell(report: Path, lines: list[str], good: bool) -> None:
    for line in lines:
        click.echo(line, err=not good)
    if report.exists():
        report.write_text(_with_verdict(into_script(report.read_text()), lines, good))
        click.echo(f"report: {report}")


def _with_verdict(page: str, lines: list[str], good: bool) -> str:
    """The report with the comparison's result at the top."""
    style = f"font: 16px sans-serif; padding: 12px 24px; color: white; background: {GREEN if good else RED}"
    text = "<br>".join(map(html.escape, [*lines, LEGEND]))
    return page.replace("<body>", f'<body>\n    <div id="verdict" style="{style}">{text}</div>', 1)
