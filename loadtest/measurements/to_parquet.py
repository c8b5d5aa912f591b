"""A Spark process that writes a topic to Parquet on request, in one way or another.

    python -m odradek.loadtest.measurements.to_parquet FOLDER

Like the C clients it prints "ready", then answers each line of stdin, a JSON object {format, options, direct, rows},
with one of {seconds, files, bytes}. It counts and deletes what it wrote. All ways share one JVM, with Spark's own Kafka
connector and two cores, so code compiled for one way serves the next.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.loadtest.harness.tools import connector_jars
from odradek.pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def started(folder: Path) -> SparkSession:
    """A session of two cores with its scratch space in `folder`."""
    settings = {
        "spark.master": "local[2]",
        "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.jars": ",".join(map(str, connector_jars())),
        "spark.local.dir": str(folder / "scratch"),
    }
    return session("bench", **settings)


def write(spark: SparkSession, folder: Path, asked: Mapping[str, Any]) -> dict[str, float]:
    """Write once. RuntimeError where rows are missing."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    direct = {"odradek.parquet": str(out)} if asked["direct"] else {}
    began = time.monotonic()
    frame = spark.read.format(asked["format"]).options(**asked["options"], **direct).load()
    if asked["direct"]:
        frame.collect()
    else:
        frame.write.parquet(str(out))
    seconds = time.monotonic() - began
    found = spark.read.parquet(str(out)).count()
    if found != asked["rows"]:
        raise RuntimeError(f"{found} records in Parquet, not {asked['rows']}")
    sizes = [path.stat().st_size for path in out.rglob("*.parquet")]
    shutil.rmtree(out)
    return {"seconds": seconds, "files": len(sizes), "bytes": sum(sizes)}


def main() -> None:
    """Run until stdin ends."""
    folder = Path(sys.argv[1])
    spark = started(folder)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(write(spark, folder, json.loads(line))), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
