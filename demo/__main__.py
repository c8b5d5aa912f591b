"""`make demo`: see `python -m odradek.demo --help`."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import click

from odradek.demo import direct, events, figures, found, picture, report, run
from odradek.demo.data import DemoError
from odradek.loadtest.swarm.broker import BrokerError

ARCHIVE = "flights-archive"
PICTURE = "delays.png"


@click.command()
@click.option("--flights", type=click.IntRange(1), metavar="N", help="Only the first N flights of the table.")
@click.option("--report-only", is_flag=True, help="Report and check the archive of an earlier run.")
def main(flights: int | None, report_only: bool) -> None:
    """Send a year of flights through producer, broker, stages and Parquet to a report, and check each number.

    Picture, tables and the archive go to ODRADEK_DEMO_DIR or demo-report/; each run recreates them.
    """
    folder = Path(os.environ.get("ODRADEK_DEMO_DIR") or "demo-report").absolute()
    try:
        if not report_only:
            _through(folder, flights)
        differences = _report(folder, flights)
    except (DemoError, BrokerError) as error:
        differences = [str(error)]
    for line in differences:
        click.echo(f"demo: {line}", err=True)
    sys.exit(1 if differences else 0)


def _through(folder: Path, flights: int | None) -> None:
    shutil.rmtree(folder / ARCHIVE, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    run.run(folder / ARCHIVE, flights)


def _report(folder: Path, flights: int | None) -> list[str]:
    """The differences from the direct computation; empty is good."""
    mine = found.figures(folder / ARCHIVE)
    click.echo(f"\n{report.table(mine)}\n")
    report.write_csv(mine, folder)
    picture.draw(mine, folder / PICTURE)
    differences = figures.differences(mine, direct.figures(flights, events.DOUBLED))
    if not differences:
        click.echo(
            f"{mine.count():,} numbers checked: all equal those computed directly from the table, without Kafka or "
            "Spark"
        )
    click.echo(f"picture: {folder / PICTURE}\ntables: {folder}/*.csv, Parquet: {folder / ARCHIVE}")
    return differences


if __name__ == "__main__":
    main()
