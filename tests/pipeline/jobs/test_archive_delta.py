"""Topics as Delta tables over the archive's files: a table has the rows that Spark reads in the folder."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from odradek.pipeline.errors import OptionError, UnknownTopic
from odradek.pipeline.jobs.archive.command import archive as command
from odradek.pipeline.jobs.archive.formats.formats import Formats, parse
from odradek.pipeline.jobs.archive.job import Job
from odradek.pipeline.jobs.archive.sink.columns import Columns
from odradek.pipeline.jobs.archive.store.delta import Delta
from odradek.pipeline.jobs.files import Files

from ...clients.admin import create_topic, unique
from ..topics import HOUR, NOW, WAIT, send
from .archives import archive, assert_whole, ids, source
from .tables import assert_same, log, said, tabled
from .test_archive_faults import Fate, killed
from .test_archive_writers import folder_uri
from .test_shapes import ORDER, TYPES, avro, plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live


def test_tables_equal_the_folders_after_each_run(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """Two topics; then more records of one, whose hours are compacted; then no new records. The topic name has all
    allowed kinds of characters, the folder has characters that URIs escape.
    """
    folder = tmp_path / "50% of it é"
    topic, other = (create_topic(broker, unique(stem), partitions=2) for stem in ("a.b-c_d", "B"))
    job = Job(source(broker, topic, other), delta=True)
    sent = send(broker, topic, range(-2 * HOUR, 0, 361), 2)
    few = send(broker, other, range(3))
    archive(spark, folder, job)
    first = assert_same(spark, folder, topic)
    assert_same(spark, folder, other)
    assert tabled(folder, other) == ids(few)
    assert first.metadata["name"] == topic
    sent += send(broker, topic, range(-2 * HOUR, -2 * HOUR + 10), 2)
    state = archive(spark, folder, job)
    assert state.number > 2
    second = assert_same(spark, folder, topic)
    assert tabled(folder, topic) == ids(sent)
    assert second.number == state.number
    assert_compacted(second.entries[-1])
    assert len(assert_same(spark, folder, other).entries) == len(log(folder, other).entries)
    assert archive(spark, folder, job) == state
    assert log(folder, topic) == second
    assert_whole(spark, folder, topic, ids(sent))
    all_of_it = spark.read.parquet(str(folder))
    assert all_of_it.where(f"topic = '{topic}'").count() == len(sent)
    assert all_of_it.count() == len(sent) + len(few)


def assert_compacted(entry: list[dict[str, Any]]) -> None:
    """A compaction adds and removes no records and is marked so: streaming readers of the table skip it."""
    assert said(entry, "add")
    assert len(said(entry, "remove")) > len(said(entry, "add"))
    assert not any(each["dataChange"] for name in ("add", "remove") for each in said(entry, name))


@pytest.mark.long
def test_table_of_an_existing_archive_has_all_its_files(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """The first entry has them, even without new records. Afterwards the option is required, unless the table's log is
    deleted.
    """
    topic, empty = create_topic(broker, partitions=2), create_topic(broker)
    names = source(broker, topic, empty)
    sent = send(broker, topic, range(20), 2)
    archive(spark, tmp_path, Job(names))
    archive(spark, tmp_path, Job(names, delta=True))
    found = assert_same(spark, tmp_path, topic)
    assert len(found.entries) == 1
    assert all(each["dataChange"] for each in said(found.entries[0], "add"))
    assert tabled(tmp_path, empty) == []
    sent += send(broker, topic, range(20, 25), 2)
    with pytest.raises(OptionError, match=f"{topic} is a Delta table in .*; give --table delta again"):
        archive(spark, tmp_path, Job(names))
    assert tabled(tmp_path, topic) == ids(sent[:20])
    shutil.rmtree(tmp_path / f"topic={topic}/_delta_log")
    archive(spark, tmp_path, Job(names))
    archive(spark, tmp_path, Job(names, delta=True))
    assert_same(spark, tmp_path, topic)
    assert tabled(tmp_path, topic) == ids(sent)


@pytest.mark.long
def test_decoded_types_are_the_same_in_delta(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """Structs, arrays, maps and decimals of JSON and Avro; records without an event time have no hour."""
    topic, orders = create_topic(broker), create_topic(broker)
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    whole = {"id": 1, "name": "n", "price": 1.5, "tags": ["a", None], "more": {"k": 1}, "a.b": True}
    for value in (json.dumps(whole | {"at": "2026-11-26T01:02:03Z"}), "{}", "no JSON"):
        producer.produce(topic, value, "key", headers=[("h", b"\x00"), ("none", None)])
    producer.produce(orders, avro(plain(ORDER), WHOLE), timestamp=NOW)
    producer.produce(orders, b"no Avro", timestamp=NOW)
    producer.flush(WAIT)
    values = (f"{topic}=json:{TYPES}", f"{orders}=avro:{tmp_path}/order.avsc")
    formats = Formats(parse("--key-format", ("string",)), parse("--value-format", values))
    archive(spark, tmp_path / "one", Job(source(broker, topic), Columns(formats, "value.at"), delta=True))
    archive(spark, tmp_path / "two", Job(source(broker, orders), Columns(formats), delta=True))
    json_log = assert_same(spark, tmp_path / "one", topic)
    assert tabled(tmp_path / "one", topic) == [(0, 0), (0, 1), (0, 2)]
    assert {added["partitionValues"]["hour"] for added in json_log.files.values()} == {"1", None}
    assert_same(spark, tmp_path / "two", orders)
    assert_schema(spark, tmp_path / "one", topic)
    assert_schema(spark, tmp_path / "two", orders)


WHOLE = {
    **{"id": 7, "state": "NEW", "before": "PAID", "at": 86_400_001, "on": 1, "sum": b"\xff\x38", "what": [0.5]},
    **{"more": {"k": 1.5, "l": None}, "hash": b"ab", "clock": 5, "who": "me"},
}


def assert_schema(spark: SparkSession, folder: Path, topic: str) -> None:
    """Delta's schema equals Spark's; where a record has a time, Spark infers numbers for hours, too."""
    expected = json.loads(spark.read.parquet(str(folder / f"topic={topic}")).schema.json(), object_hook=bare)
    assert json.loads(log(folder, topic).metadata["schemaString"]) == expected


def bare(node: dict[str, Any]) -> dict[str, Any]:
    return {**node, "metadata": {}} if "metadata" in node else node


def test_schema_of_raw_records(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    topic = create_topic(broker)
    send(broker, topic, range(4))
    archive(spark, tmp_path, Job(source(broker, topic), delta=True))
    pair = [("key", "string"), ("value", "binary")]
    struct = {"type": "struct", "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in pair]}
    assert log(tmp_path, topic).schema == {
        "key": "binary",
        "value": "binary",
        "partition": "integer",
        "offset": "long",
        "timestamp": "timestamp",
        "timestampType": "integer",
        "headers": {"type": "array", "elementType": struct, "containsNull": True},
        "date": "date",
        "hour": "integer",
    }
    assert_schema(spark, tmp_path, topic)


@pytest.mark.long
@pytest.mark.parametrize(
    ("fate", "had"),
    [
        # The manifest has the batch, the table does not.
        pytest.param(("write", "_spark_metadata/1", 1), False, marks=pytest.mark.long),
        # The manifest has the compaction, the table does not.
        (("write", "_spark_metadata/2", 1), True),
        # The table has the compaction, the small files still exist.
        pytest.param(("delete", "hour=", 1), True, marks=pytest.mark.long),
    ],
)
def test_next_run_completes_tables_after_a_kill(
    spark: SparkSession, broker: Any, tmp_path: Path, fate: Fate, had: bool
) -> None:
    """The kill is before or after the table's entry."""
    topic = create_topic(broker, partitions=2)
    sent = ids(send(broker, topic, range(-HOUR, 0, 61), 2))
    with killed(broker, topic, tmp_path, fate, "delta") as process:
        assert process.wait(5 * WAIT) == -signal.SIGKILL
    assert tabled(tmp_path, topic) == (sent if had else [])
    archive(spark, tmp_path, Job(source(broker, topic), delta=True))
    assert_same(spark, tmp_path, topic)
    assert tabled(tmp_path, topic) == sent
    assert_whole(spark, tmp_path, topic, sent)
    assert_compacted(log(tmp_path, topic).entries[-1])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "s3a://bucket/archive"], "--table delta: tables need a file: URI, not s3a://bucket/arch"),
        (["--to", "hdfs://name/archive"], "--table delta: tables need a file: URI"),
        (["--verify"], "--verify compares files, not tables: leave out --table"),
    ],
)
def test_tables_are_refused_outside_of_local_files(broker: Any, words: list[str], message: str) -> None:
    always = ["--bootstrap-server", broker.bootstrap, "--to", "/nowhere/archive", "--topics", "a", "--table", "delta"]
    with pytest.raises(OptionError, match=message) as error:
        CliRunner().invoke(command, [*always, *words], catch_exceptions=False)
    assert "\n" not in str(error.value)


def test_missing_deltalake_is_reported(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes before Spark starts, and only with this option."""
    monkeypatch.setitem(sys.modules, "deltalake", None)
    always = ["--bootstrap-server", broker.bootstrap, "--to", "/nowhere/archive", "--topics", "a"]
    with pytest.raises(OptionError, match=r"deltalake is not installed: pip install 'odradek\[delta\]'"):
        CliRunner().invoke(command, [*always, "--table", "delta"], catch_exceptions=False)
    with pytest.raises(UnknownTopic):
        CliRunner().invoke(command, always, catch_exceptions=False)


def test_tables_are_refused_on_viewfs(spark: SparkSession, tmp_path: Path) -> None:
    """Even if the folder is a local one."""
    with pytest.raises(OptionError, match="--table delta: tables need a file: URI, not viewfs:"):
        Delta(Files(spark, folder_uri(spark, tmp_path / "a", "viewfs")))
