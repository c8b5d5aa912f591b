"""A job for tests of failures and stops: its stream prints `batch N` for each batch and then follows its argument."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import command, progress
from odradek.pipeline.jobs.causes import one_line_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@click.command("streaming")
@click.argument("what")
@click.argument("folder")
@command.spark_options
def streaming(what: str, folder: str, conf: dict[str, str]) -> None:
    """Run the stream."""

    def batch(frame: DataFrame, number: int) -> None:
        print(f"batch {number}", flush=True)
        if what == "fail":
            raise PipelineError("the disk is full")
        if what == "long":
            frame.sparkSession.sparkContext.parallelize([60]).foreach(time.sleep)

    rows = command.start("streaming", conf).readStream.format("rate").load()
    with progress.shown(rows.sparkSession, ["ticks"]):
        stream = rows.writeStream.foreachBatch(one_line_error(batch)).option("checkpointLocation", folder)
        stream.start().awaitTermination()
    Path(folder, "ended").touch()


if __name__ == "__main__":
    command.main(streaming)
