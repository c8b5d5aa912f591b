"""Data frames over a topic, for Spark's connector and ours, and their rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .topics import WAIT, Sent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CREATE_TIME = 0


def load(reader: Any, broker: Any, source: str = "kafka", **options: Any) -> DataFrame:
    """A frame of format `source`; `_` in an option's name stands for `.`."""
    named = {name.replace("_", "."): str(value) for name, value in options.items()}
    return reader.format(source).option("kafka.bootstrap.servers", broker.bootstrap).options(**named).load()


def rows(frame: DataFrame) -> list[Sent]:
    """All records in order, in the form that `topics.send` returns."""
    columns = ("key", "value", "topic", "partition", "offset", "unix_millis(timestamp)")
    found = frame.where(f"timestampType = {CREATE_TIME}").selectExpr(*columns).collect()
    return sorted((Sent(as_bytes(row[0]), as_bytes(row[1]), *row[2:]) for row in found), key=lambda one: one[2:5])


def as_bytes(value: bytearray | None) -> bytes | None:
    """Bytes of the bytearray that Spark returns for a binary column."""
    return None if value is None else bytes(value)


def values(frame: DataFrame) -> list[str]:
    """The values in the order of their offsets."""
    return [row[0] for row in frame.orderBy("topic", "partition", "offset").selectExpr("string(value)").collect()]


def drain(frame: DataFrame, folder: Path, **sink: str) -> list[int]:
    """Run a query with this checkpoint until it has read all available records; returns the rows of each batch."""
    writer = frame.writeStream.trigger(availableNow=True).option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.options(**{key: value for key, value in sink.items() if key != "format"}).format(sink["format"])
    running = query.start()
    try:
        assert running.awaitTermination(WAIT)
    finally:
        running.stop()
    return [progress["numInputRows"] for progress in running.recentProgress if progress["numInputRows"]]
