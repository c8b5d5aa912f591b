"""Files that tasks write directly: for every legal topic name, verified by the driver, with page checksums."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.archive.job import Job
from odradek.pipeline.jobs.archive.sink import compaction, direct
from odradek.pipeline.jobs.archive.store.store import Store
from odradek.pipeline.jobs.archive.verify.verify import verify
from odradek.pipeline.jobs.files import Files

from ...clients.admin import create_named, create_topic
from ..topics import send
from .archives import archive, assert_whole, ids, live, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live


@pytest.mark.parametrize("topic", [".hidden", "_private", "long" + "g" * 245])
def test_topics_with_unusual_names_are_archived(spark: SparkSession, broker: Any, tmp_path: Path, topic: str) -> None:
    with broker.wire() as wire:
        create_named(wire, topic)
    sent = send(broker, topic, range(10))
    archive(spark, tmp_path, Job(source(broker, topic)))
    assert_whole(spark, tmp_path, topic, ids(sent))


@pytest.mark.parametrize(("size", "said"), [(None, "here it is missing"), (3, "here it has 3")])
def test_file_missing_or_truncated_on_the_driver_is_an_error(
    spark: SparkSession, tmp_path: Path, size: int | None, said: str
) -> None:
    """For instance, executors have another folder at this path, or a network file system updates sizes late."""
    if size is not None:
        (tmp_path / "staging").mkdir()
        (tmp_path / "staging/x.parquet").write_bytes(bytes(size))
    told = spark.sql("SELECT 'x.parquet' path, 't' topic, 0 partition, 1L rows, 0L first, 0L last, 9L size")
    with pytest.raises(PipelineError, match=rf"^file:{tmp_path}: .* x\.parquet \(9 bytes\), .*{said}"):
        direct.staged(Files(spark, str(tmp_path)), told, "staging")


def flip_a_bit(path: Path) -> None:
    """Flip a bit of the first value: without checksums the file is readable, with the value `walue`."""
    data = bytearray(path.read_bytes())
    data[data.index(b"value ")] ^= 1
    path.write_bytes(data)
    assert pq.ParquetFile(path).read().column("value")[0].as_py().startswith(b"walue ")


def test_flipped_bit_prevents_compaction(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """A compacted file would have a valid checksum for the damaged value, and the old file would be gone."""
    topic = create_topic(broker)
    for numbers in (range(10), range(10, 20)):
        send(broker, topic, numbers)
        archive(spark, tmp_path, Job(source(broker, topic), compact=False))
    before = live(spark, tmp_path)
    flip_a_bit(tmp_path / min(before.files))
    with Store(Files(spark, str(tmp_path))) as store, pytest.raises(Exception, match="FAILED_READ_FILE"):
        compaction.run(spark, store, 1 << 20)
    assert live(spark, tmp_path) == before and all((tmp_path / path).exists() for path in before.files)
    report = verify(spark, Files(spark, str(tmp_path)), {"kafka.bootstrap.servers": broker.bootstrap}, [topic])
    assert any(f"{min(before.files)} cannot be read" in line for line in report.differences), report
