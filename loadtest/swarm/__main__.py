"""`make locust`: see `python -m odradek.loadtest.swarm --help`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from odradek.loadtest.swarm.broker import BrokerError
from odradek.loadtest.swarm.run import Plan, run

REPORTS = Path("build", "locust")


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--users", default=50, show_default=True, help="The most users at a time.")
@click.option("--minutes", default=1.0, show_default=True, help="How long; parts of a minute are allowed.")
@click.option("--processes", default=1, show_default=True, help="Locust's worker processes (a master is added to two).")
@click.option("--shape", default="steady", show_default=True, help="steady, ramp, spike or soak.")
@click.option("--web", type=int, metavar="PORT", help="Locust's web page on this port, to start and stop from there.")
@click.option("--report", type=click.Path(path_type=Path), help="Where the HTML report goes (default: build/locust/).")
@click.argument("extra", nargs=-1)
def main(
    users: int, minutes: float, processes: int, shape: str, web: int | None, report: Path | None, extra: tuple[str, ...]
) -> None:
    """Run users against a separate broker and compare every acknowledged record with the log.

    EXTRA goes to locust unchanged, for example `--value-size 1000` or `Producer Bursty`.
    """
    path = report or REPORTS / time.strftime("report-%Y%m%d-%H%M%S.html")
    try:
        good = run(Plan(users, minutes * 60, processes, shape, web, path.absolute(), extra))
    except BrokerError as error:
        click.echo(f"locust: {error}", err=True)
        good = False
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
