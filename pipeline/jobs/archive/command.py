"""`odradek pipeline archive`: its command line, checked as far as possible before Spark starts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import click

from odradek.pipeline.errors import OptionError
from odradek.pipeline.jobs import command, progress
from odradek.pipeline.jobs.archive import job as jobs
from odradek.pipeline.jobs.archive.formats import shapes
from odradek.pipeline.jobs.archive.formats.formats import Formats
from odradek.pipeline.jobs.archive.job import Job
from odradek.pipeline.jobs.archive.sink import start
from odradek.pipeline.jobs.archive.sink.columns import Columns
from odradek.pipeline.jobs.archive.sink.staging import SETTINGS
from odradek.pipeline.jobs.archive.store import delta
from odradek.pipeline.jobs.files import Files
from odradek.pipeline.options import KAFKA
from odradek.pipeline.parsing import duration, positive, size
from odradek.pipeline.registry import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


@click.command
@click.option("--to", "uri", required=True, metavar="URI", help="The archive: /a/folder, hdfs://…, s3a://…")
@click.option("--topics", metavar="TOPIC,…", help="The topics to archive.")
@click.option(
    "--topics-pattern", metavar="REGEX", help="Topics whose names match, including topics that are created later."
)
@click.option("--continuous", is_flag=True, help="Keep running and archive new records.")
@click.option("--trigger", default="1m", show_default=True, help="With --continuous: the time between batches.")
@click.option(
    "--target-file-size",
    default="128m",
    show_default=True,
    help="Compact the small files of an hour to files of this size.",
)
@click.option("--no-compact", is_flag=True, help="Do not compact small files.")
@click.option(
    "--event-time",
    metavar="SQL",
    help="SQL expression over the columns of a record for its time in the archive (default: its timestamp).",
)
@click.option(
    "--table",
    type=click.Choice(["delta"]),
    help="Also maintain a table of this format for each topic, over the same files.",
)
@click.option("--max-offsets", default="20000000", show_default=True, help="Maximum offsets per batch.")
@click.option(
    "--no-fail-on-data-loss",
    is_flag=True,
    help="If the log has lost unread records, report their number and continue.",
)
@click.option(
    "--verify", is_flag=True, help="Do not archive: compare the archive with the log. Exit code 1 if they differ."
)
@shapes.options
@command.cluster_options
@command.spark_options
def archive(
    uri: str,
    topics: str | None,
    topics_pattern: str | None,
    continuous: bool,
    trigger: str,
    target_file_size: str,
    no_compact: bool,
    event_time: str | None,
    table: str | None,
    max_offsets: str,
    no_fail_on_data_loss: bool,
    verify: bool,
    formats: Formats,
    kafka: dict[str, str],
    conf: dict[str, str],
) -> None:
    """Archive topics to Parquet files, by topic and hour, each record exactly once.

    Without --continuous it archives all existing records and exits; the next run continues where this run ended.
    """
    kafka, registry = settings.split(kafka, KAFKA)
    job = Job(
        source=_source(kafka, topics, topics_pattern, not no_fail_on_data_loss),
        columns=Columns(formats.with_settings(registry), event_time),
        continuous=continuous,
        trigger_ms=duration("--trigger", trigger),
        target=size("--target-file-size", target_file_size),
        compact=not no_compact,
        max_offsets=positive("--max-offsets", max_offsets),
        delta=table is not None,
    )
    _check_table(table, uri, verify)
    found = start.topics(job.options)
    _check_names(formats, found, topics_pattern)
    spark = command.start("odradek archive", {**SETTINGS, **conf})
    files = Files(spark, uri)
    if verify:
        _verify(spark, files, kafka, found, named=topics_pattern is None)
    else:
        jobs.run(spark, files, job)


def _source(kafka: dict[str, str], topics: str | None, pattern: str | None, fail: bool) -> dict[str, str]:
    """Archives only committed records, unless a property sets another isolation level."""
    if (topics is None) == (pattern is None):
        raise OptionError("give --topics or --topics-pattern: which topics to archive")
    which = {"subscribe": topics} if topics is not None else {"subscribePattern": pattern or ""}
    return {"kafka.isolation.level": "read_committed", **kafka, **which, "failOnDataLoss": str(fail).lower()}


def _check_table(table: str | None, uri: str, verify: bool) -> None:
    if table is not None and verify:
        raise OptionError("--verify compares files, not tables: leave out --table")
    if table is not None:
        delta.check(uri)


def _check_names(formats: Formats, found: list[str], pattern: str | None) -> None:
    """A topic keeps its format, so reject a wrong name before the run. With a pattern the topic may appear later."""
    unknown = ", ".join(formats.unknown(found))
    if unknown and pattern is None:
        raise OptionError(f"a format is given for {unknown}, which --topics does not name")
    if unknown:
        log.warning("there is a format for %s, and no such topic among those that match '%s'", unknown, pattern)


def _verify(spark: SparkSession, files: Files, kafka: dict[str, str], topics: list[str], named: bool) -> None:
    """Exit code 1 when there is a difference; prints each one to stdout, and what was not compared to stderr."""
    from odradek.pipeline.jobs.archive.verify.verify import verify

    report = verify(spark, files, kafka, topics, named)
    for line in report.notes:
        click.echo(line, err=True)
    for line in report.differences:
        click.echo(line)
    progress.done("verify", records=report.records, differences=len(report.differences))
    if report.differences:
        raise click.exceptions.Exit(1)
