"""`odradek pipeline audit`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import click

from odradek.pipeline.jobs import command as jobs
from odradek.pipeline.jobs.audit import report, tiers, verdict
from odradek.pipeline.jobs.audit.audit_request import AuditRequest


@click.command("audit", no_args_is_help=True)
@jobs.cluster_options
@click.option("--audit-topic", metavar="TOPIC", help="Topic to which producers report acknowledged records.")
@click.option("--archive", metavar="URI", help="An archive made by `odradek pipeline archive`.")
@click.option(
    "--stage", "stages", multiple=True, metavar="FROM=TO+…",
    help="Topics to which a stage writes all records of a topic; may be repeated.",
)  # fmt: skip
@click.option(
    "--topics", default="", metavar="TOPIC,…", help="Topics to judge (default: all that are audited or archived)."
)
@click.option("--last", default="1d", show_default=True, help="Period to judge, back from now.")
@click.option("--grace", default="10m", show_default=True, help="Do not judge windows that ended less than this ago.")
@click.option("--window", metavar="DURATION", help="Length of a window (default: that of the producers).")
@click.option("--all", "every", is_flag=True, help="Also print windows without differences.")
@jobs.spark_options
def command(conf: dict[str, str], every: bool, **options: Any) -> None:
    """Count the records of each topic and time window in every tier, and report what is missing.

    The first existing tier sets the expected counts: producers, the log, the archive, stages. The output is a table on
    a terminal, otherwise a line of JSON for each window that differs, and one for the total. Windows that cannot be
    judged are listed with the reason. Exit code 1 when records are missing, or when that is unknown: a topic of
    --topics or --stage without a judged window, nothing judged at all, lost audit messages, a silent producer. Surplus
    records are only reported.

    \b
    Example:
      odradek pipeline audit --bootstrap-server localhost:9092 --audit-topic audit --archive file:/srv/archive
    """
    request = AuditRequest.parse(int(time.time() * 1000), **options)
    request.check()
    found = tiers.count(request, jobs.start("audit", conf))
    rows = list(verdict.rows(found.tiers, found.stages))
    silent = _silent(request, found, rows)
    for note in [*found.notes, *found.doubts, *verdict.unjudged(rows, found.tiers), *silent]:
        click.echo(f"odradek pipeline audit: {note}", err=True)
    summary = report.summary(rows, found.period)
    names = list(dict.fromkeys([tier.name for tier in found.tiers] + [stage.name for stage in found.stages]))
    _print([row for row in rows if row.differs or (every and row.judged)], names, summary)
    if summary["missing"] or found.doubts or silent:
        raise click.exceptions.Exit(1)


def _silent(request: AuditRequest, found: tiers.TierCounts, rows: Sequence[verdict.Row]) -> list[str]:
    """Lines on requested topics without a judged window."""
    last = found.period.end - found.period.window
    judged = verdict.judged(rows, found.tiers, found.stages, found.topics, last)
    if not judged:
        return ["nothing was judged"]
    requested = {*request.topics, *(stage.topic for stage in request.stages)}
    return [f"{topic}: no window was judged" for topic in sorted(requested - judged)]


def _print(rows: Sequence[verdict.Row], tiers: Sequence[str], summary: dict[str, Any]) -> None:
    if sys.stdout.isatty():
        lines = [*report.table(rows, tiers), report.sentence(summary)]
    else:
        lines = [*report.json_lines(rows), report.json_line(summary)]
    click.echo("\n".join(lines))


if __name__ == "__main__":
    jobs.main(command)
