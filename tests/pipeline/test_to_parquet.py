"""The bench's reads by Spark: each variant writes all records to Parquet, and a missing record is an error."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from odradek.loadtest.measurements.parquet import WAYS, Way
from odradek.loadtest.measurements.to_parquet import write

from ..clients.admin import create_topic
from .topics import send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.needs("spark-connector")]
BROKERS_WAYS = {name: way for name, way in WAYS.items() if way.broker == "odradek"}


def asked(way: Way, broker: Any, topic: str, rows: int) -> dict[str, Any]:
    options = {**way.options, "kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
    return {"format": way.format, "options": options, "direct": way.direct, "rows": rows}


def test_every_variant_writes_all_records_to_parquet(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    topic = create_topic(broker, partitions=2)
    send(broker, topic, range(100), 2)
    for way in BROKERS_WAYS.values():
        told = write(spark, tmp_path, asked(way, broker, topic, rows=100))
        assert told["files"] == 2 and told["bytes"] > 0 and told["seconds"] > 0
    assert not list(tmp_path.rglob("*.parquet"))
    with pytest.raises(RuntimeError, match="100 records in Parquet, not 101"):
        write(spark, tmp_path, asked(WAYS["odradek, files, direct"], broker, topic, rows=101))
