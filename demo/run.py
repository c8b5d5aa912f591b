"""Run the whole demo; each step is a command that any user could run."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import click

from odradek.demo import events, produce
from odradek.demo.jobs import Jobs
from odradek.loadtest.swarm.broker import running

PARTITIONS = 2
AUDIT = "audit"
FIRST = date(2013, 1, 1)
TOPICS = {
    "airlines": produce.COMPACT,
    "flights": produce.KEEP,
    "flights.departed": produce.KEEP,
    "flights.unique": produce.KEEP,
    "flights.cancelled": produce.KEEP,
    "flights.hourly": produce.KEEP,
    AUDIT: produce.KEEP,
}


def run(archive: Path, limit: int | None) -> None:
    """Send `limit` flights (None: all) through a separate broker and the stages into a new archive.

    Raises DemoError, or the broker's error; then data and logs stay in a temporary folder, which is printed.
    """
    room = Path(tempfile.mkdtemp(prefix="odradek-demo-"))
    try:
        with running(room / "broker") as bootstrap:
            _run(Jobs(bootstrap, room), archive, limit)
    except BaseException:
        click.echo(f"data and logs are kept in {room}", err=True)
        raise
    shutil.rmtree(room)


def _run(jobs: Jobs, archive: Path, limit: int | None) -> None:
    with _step("producer -> broker") as told:
        produce.create(jobs.bootstrap, TOPICS, PARTITIONS)
        sender = produce.Sender(jobs.bootstrap, AUDIT)
        airlines = sender.send("airlines", events.airlines())
        told += [f"{sender.send('flights', events.flights(limit)):,} events of flights, {airlines} airlines"]
        sender.close()
    with _step("stages: flights -> departed | cancelled -> unique, named -> hourly"):
        jobs.run("stages", str(jobs.stages()), "--once")
    with _step("archive: all topics -> Parquet"):
        jobs.run("archive", *_archive(archive), "--no-compact")
    with _step("archive --verify"):
        jobs.run("archive", *_archive(archive), "--verify")
    with _step("audit: producer = broker = archive = departed + cancelled"):
        jobs.run("audit", *_audit(archive))


def _archive(archive: Path) -> list[str]:
    """By months: a folder for each hour of a year would give thousands of files with a few rows."""
    which = [topic for topic in TOPICS if topic != AUDIT]
    return ["--to", str(archive), "--topics", ",".join(which), "--event-time", "date_trunc('month', timestamp)"]


def _audit(archive: Path) -> list[str]:
    """A dead letter keeps its record's timestamp, so each day's flights are found again in two topics."""
    days = (date.today() - FIRST).days + 1
    what = ["--audit-topic", AUDIT, "--archive", str(archive), "--stage", "flights=flights.departed+flights.cancelled"]
    return [*what, "--last", f"{days}d", "--window", "1d"]


@contextmanager
def _step(text: str) -> Iterator[list[str]]:
    """Print the step and its duration; the list gets more to print."""
    click.echo(f"{text} …", nl=False)
    begun, more = time.monotonic(), list[str]()
    try:
        yield more
    finally:
        click.echo(" " + ", ".join([*more, f"{time.monotonic() - begun:.0f} s"]))
