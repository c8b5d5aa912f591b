"""`odradek pipeline stages FILE.toml`: run all stages of a file, once or until stopped."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from odradek.pipeline import parsing
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.command import spark_options, start
from odradek.pipeline.jobs.stages.declaration import declaration
from odradek.pipeline.jobs.stages.declaration.declaration import Pipeline
from odradek.pipeline.jobs.stages.declaration.mistakes import Mistakes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odradek.pipeline.jobs.stages.running.streams import Streams

SETTINGS = {
    "spark.sql.ansi.enabled": "false",  # a failed cast gives null and does not end the query
    "spark.sql.streaming.triggerAvailableNowWrapper.enabled": "true",  # --once: an empty batch closes windows
    "spark.sql.shuffle.partitions": "8",  # partitions of a stage's state; fixed by its first run
}


@click.command("stages")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--once", is_flag=True, help="Process the existing records, one stage after the other, and exit.")
@click.option("--trigger", default="10s", show_default=True, metavar="DURATION", help="Time between batches.")
@click.option("--check", is_flag=True, help="Only check the file; contacts a schema registry, but not the brokers.")
@spark_options
def command(file: Path, once: bool, trigger: str, check: bool, conf: dict[str, str]) -> None:
    """Run the streams from topics to topics that FILE.toml declares.

    \b
    Example:
      odradek pipeline stages orders.toml --once
    """
    every_ms = parsing.duration("--trigger", trigger)
    try:
        _run(file, conf, check, None if once else every_ms)
    except Mistakes as mistakes:
        for line in mistakes.lines:
            click.echo(f"{file}: {line}", err=True)
        raise click.exceptions.Exit(1) from None


def _run(file: Path, conf: dict[str, str], check: bool, every_ms: int | None) -> None:
    pipeline = declaration.load(file)
    new = {} if check else _expected(pipeline)
    spark = start("stages", SETTINGS | conf)
    streams = _streams(spark, pipeline)
    if check:
        click.echo(f"{file}: {len(pipeline.stages)} stages, no errors")
        return
    streams = _ready(streams, new)
    from odradek.pipeline.jobs.stages.running import running

    running.run(streams, every_ms)


def _expected(pipeline: Pipeline) -> dict[str, int]:
    """The topics to create. Raises Mistakes for other missing ones, OptionError for invalid settings."""
    from odradek.pipeline.jobs import topics
    from odradek.pipeline.jobs.stages.running import cluster
    from odradek.pipeline.wire.brokers import Brokers
    from odradek.pipeline.writing import producer_settings

    _place(pipeline.checkpoint)
    producer_settings.checked(producer_settings.librdkafka(topics.writers(pipeline.kafka)))
    with Brokers(pipeline.kafka) as brokers:
        new, mistakes = cluster.missing(pipeline, brokers.topics())
    Mistakes.check(mistakes)
    return new


def _place(checkpoint: str) -> None:
    """PipelineError for a `file:` that cannot be created; Spark checks other file systems."""
    if not checkpoint.startswith("file:"):
        return
    path = Path("/" + checkpoint.removeprefix("file:").lstrip("/"))
    there = next(each for each in (path, *path.parents) if os.path.exists(each))
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        raise PipelineError(f"checkpoint: cannot write {path}: {there} is not a folder that this user may write to")


def _streams(spark: SparkSession, pipeline: Pipeline) -> Streams:
    from odradek.pipeline.jobs.stages.analysis.analysis import analysed
    from odradek.pipeline.jobs.stages.running.streams import Streams

    known, mistakes = analysed(spark, pipeline)
    Mistakes.check(mistakes)
    return Streams(spark, pipeline, known)


def _ready(streams: Streams, new: dict[str, int]) -> Streams:
    """Everything that can fail before the first query; returns the streams with the ids of the results' schemas."""
    from odradek.pipeline.jobs.files import Files
    from odradek.pipeline.jobs.stages.analysis import outputs
    from odradek.pipeline.jobs.stages.running import cluster

    Files(streams.spark, streams.pipeline.checkpoint).check_writable()
    known = outputs.registered(streams.pipeline, streams.known)
    cluster.make(streams.pipeline, new)
    return replace(streams, known=known)
