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
@click.option("--users", default=50, show_default=True, help="Largest number of users at a time.")
@click.option("--minutes", default=1.0, show_default=True, help="Duration; fractions are allowed.")
@click.option(
    "--processes",
    default=1,
    show_default=True,
    help="Number of locust worker processes; with two or more, locust adds a master.",
)
@click.option("--shape", default="steady", show_default=True, help="Course of the load: steady, ramp, spike or soak.")
@click.option(
    "--web", type=int, metavar="PORT", help="Serve locust's web page on this port, to start and stop the run there."
)
@click.option("--report", type=click.Path(path_type=Path), help="Path of the HTML report (default: in build/locust/).")
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
