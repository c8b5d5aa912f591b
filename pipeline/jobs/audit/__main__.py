"""`odradek pipeline audit`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import click
from odradek.pipeline.jobs import command as jobs
from odradek.pipeline.jobs.audit import report, tiers, verdict
from odradek.pipeline.jobs.audit.asked import Asked


@click.command("audit", no_args_is_help=True)
@jobs.cluster_options
@click.option("--audit-topic", metavar="TOPIC", help="Where producers tell what was acknowledged.")
@click.option("--archive", metavar="URI", help="An archive made by `odradek pipeline archive`.")
@click.option(
    "--stage", "stages", multiple=True, metavar="FROM=TO+…",
    help="Topics that all records of a topic go on to; may be repeated.",
)  # fmt: skip
@click.option("--topics", default="", metavar="TOPIC,…", help="Only these, not all that are told of or archived.")
@click.option("--last", default="1d", show_default=True, help="How far back to look.")
@click.option("--grace", default="10m", show_default=True, help="Windows that ended later than this are not judged.")
@click.option("--window", metavar="DURATION", help="How long a window is; as long as the producers' without it.")
@click.option("--all", "every", is_flag=True, help="Tell the windows that agree as well.")
@jobs.spark_options
def command(conf: dict[str, str], every: bool, **options: Any) -> None:
    """Count the records of each topic and time window in every tier, and tell what is missing.

    The first tier there is says how many there should be: producers, the log, the archive, stages. A table on a
    terminal, else a line of JSON for each window that differs, and one for all. Exit code 1 when records are missing;
    records too many are told.

    \b
    Example:
      odradek pipeline audit --bootstrap-server localhost:9092 --audit-topic audit --archive file:/srv/archive
    """
    asked = Asked.parse(int(time.time() * 1000), **options)
    asked.check()
    found = tiers.count(asked, jobs.start("audit", conf))
    rows = list(verdict.rows(found.tiers))
    for note in found.notes:
        click.echo(f"odradek pipeline audit: {note}", err=True)
    summary = report.summary(rows, found.period)
    names = list(dict.fromkeys(tier.name for tier in found.tiers))
    _print([row for row in rows if every or row.differs], names, summary)
    if summary["missing"] or found.lost:
        raise click.exceptions.Exit(1)


def _print(rows: Sequence[verdict.Row], tiers: Sequence[str], summary: dict[str, Any]) -> None:
    if sys.stdout.isatty():
        lines = [*report.table(rows, tiers), report.sentence(summary)]
    else:
        lines = [*report.json_lines(rows), report.json_line(summary)]
    click.echo("\n".join(lines))


if __name__ == "__main__":
    jobs.main(command)
