"""Short constructors of stages, and rows to test them on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.pipeline.jobs.stages.command import SETTINGS
from odradek.pipeline.jobs.stages.declaration.declaration import Pipeline, Stage, declared
from odradek.pipeline.jobs.stages.steps import records

from ..spark_settings import spark_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RAW = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
EVERY = "10 minutes"


def pipeline(*stages: dict[str, Any], **top: Any) -> Pipeline:
    """The pipeline of a file; `top` are its settings outside of the stages."""
    kafka = {"bootstrap.servers": "localhost:1"}
    return declared({"checkpoint": "x", "dead_letters": "dead", "kafka": kafka, **top, "stage": list(stages)}, Path())


def stage(**given: Any) -> dict[str, Any]:
    """The table of a stage; `from_` stands for `from`, and `json` for a parse with that schema."""
    table = {"name": "one", "from": given.pop("from_", "raw"), "to": "out", **given}
    if "json" in table:
        table["parse"] = {"format": "json", "schema": table.pop("json")}
    return table


def only(**given: Any) -> Stage:
    """The only stage of a file."""
    return pipeline(stage(**given)).stages[0]


def received(spark: SparkSession, *values: bytes | str | None, key: str = "k") -> DataFrame:
    """Rows with `record`: offsets from 0, keys `key`0 and so on, a second apart; odd rows have headers."""
    rows = [
        (f"{key}{at}".encode(), value.encode() if isinstance(value, str) else value, "raw", 3, at, _headers(at))
        for at, value in enumerate(values)
    ]
    frame = spark.createDataFrame(rows, RAW.replace("timestamp timestamp, ", "") + f"headers {records.HEADERS}")
    return records.received(frame.selectExpr("*", "timestamp_seconds(offset) AS timestamp"))


def _headers(at: int) -> list[tuple[str, bytes | None]] | None:
    return [("a", b"1"), ("odradek.id", b"x"), ("none", None)] if at % 2 else None


@contextmanager
def job_settings(spark: SparkSession) -> Iterator[None]:
    """Within the block, the session has the command's settings, except for the number of partitions."""
    settings = {key: value for key, value in SETTINGS.items() if key != "spark.sql.shuffle.partitions"}
    with spark_settings(spark, settings):
        yield
