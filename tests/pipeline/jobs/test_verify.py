"""`verify` finds no difference in an intact archive, and any change in a damaged one."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from odradek.pipeline.jobs import topics
from odradek.pipeline.jobs.archive.command import archive as command
from odradek.pipeline.jobs.archive.formats.formats import Format, Formats
from odradek.pipeline.jobs.archive.job import Job
from odradek.pipeline.jobs.archive.sink.columns import Columns
from odradek.pipeline.jobs.archive.verify import checksums
from odradek.pipeline.jobs.archive.verify.comparison import Comparison
from odradek.pipeline.jobs.archive.verify.differences import Report
from odradek.pipeline.jobs.archive.verify.verify import verify
from odradek.pipeline.jobs.files import Files

from ...clients.admin import create_topic, unique
from ...clients.raw.batches import batch, record
from ...clients.raw.calls import produce as produced
from ...clients.transactions import await_stable
from ..test_source import delete_before
from ..topics import NOW, WAIT, send, transaction
from .archives import archive, live, source
from .losing import LOST, losing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live

FORMATS = Formats({"": Format("string")}, {"": Format("json", "id BIGINT, name STRING")})
COUNT = 40  # records, alternately in two partitions


class Made(NamedTuple):
    """An archive and its topic."""

    broker: Any
    topic: str
    folder: Path

    def verified(self, spark: SparkSession) -> Report:
        return verify(spark, Files(spark, str(self.folder)), kafka(self.broker), [self.topic])


def kafka(broker: Any) -> dict[str, str]:
    """Also settings that only consumers have."""
    return {"kafka.bootstrap.servers": broker.bootstrap, "kafka.fetch.max.bytes": "100000", "kafka.group.id": "g"}


def produce(broker: Any, topic: str, count: int) -> None:
    """Half of the values contain a blank, so that their bytes are kept; some are null, not JSON, or have headers."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        value = json.dumps({"id": number}, separators=(",", ": " if number % 4 > 1 else ":"))
        headers: list[tuple[str, str | bytes | None]] = [("h", b"%d" % number), ("h", None)]
        producer.produce(
            topic,
            None if number % 10 == 9 else "?" if number % 10 == 7 else value,
            f"key {number}",
            number % 2,
            timestamp=NOW + number,
            headers=headers[: number % 3],
        )
    assert not producer.flush(WAIT)


@pytest.fixture(scope="module")
def original(spark: SparkSession, broker: Any, tmp_path_factory: pytest.TempPathFactory) -> Made:
    made = Made(broker, create_topic(broker, partitions=2), tmp_path_factory.mktemp("archive") / "it")
    produce(broker, made.topic, COUNT)
    archive(spark, made.folder, Job(source(broker, made.topic), Columns(FORMATS), compact=False))
    return made


@pytest.fixture
def made(original: Made, tmp_path: Path) -> Made:
    """A copy of the archive for a test to damage."""
    return original._replace(folder=Path(shutil.copytree(original.folder, tmp_path / "copy")))


def test_intact_archive_has_no_differences(spark: SparkSession, original: Made) -> None:
    assert original.verified(spark) == Report([], [], COUNT)


def test_topic_missing_in_the_archive_is_reported(spark: SparkSession, original: Made) -> None:
    """A difference if it was named and has records; with a pattern, it may be younger than the last run."""
    files = Files(spark, str(original.folder))
    empty, full = sorted(create_topic(original.broker) for _ in range(2))
    send(original.broker, full, range(1))
    line = "the archive has no records of it"
    named = verify(spark, files, kafka(original.broker), [empty, full])
    assert named == Report([f"{full}: {line}"], [f"{empty}: {line}"])
    found = verify(spark, files, kafka(original.broker), [empty, full], named=False)
    assert found == Report([], [f"{empty}: {line}", f"{full}: {line}"])


def edited(made: Made, change: Callable[[pa.Table], pa.Table]) -> None:
    """Rewrite the file of partition 0, and its entry in the manifest."""
    commit = made.folder / "_odradek/commits/00000000000000000001.json"
    told = json.loads(commit.read_text())
    [entry] = [entry for entry in told["added"] if "0" in entry["partitions"]]
    path = made.folder / entry["path"]
    pq.write_table(change(pq.ParquetFile(path).read()), path, use_deprecated_int96_timestamps=True)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    entry["size"] = path.stat().st_size
    commit.write_text(json.dumps(told))


def with_cell(table: pa.Table, name: str, row: int, value: Any) -> pa.Table:
    at = table.schema.get_field_index(name)
    cells = table.column(name).to_pylist()
    cells[row] = value
    return table.set_column(at, table.schema.field(at), pa.array(cells, table.schema.field(at).type))


def doubled(table: pa.Table) -> pa.Table:
    """Replace a row by a copy of another one, which keeps the count."""
    return pa.concat_tables([table.slice(0, 3), table.slice(2, 1), table.slice(4)])


CHANGES: dict[str, tuple[Callable[[pa.Table], pa.Table], tuple[str, ...]]] = {
    "a value": (
        lambda table: with_cell(table, "value", 0, {"id": 77, "name": None}),
        ("1 records are different in log and archive: offsets 0 to 0",),
    ),
    "a decoded value": (
        lambda table: with_cell(table, "value", 1, {"id": 78, "name": None}),
        ("the decoded keys or values do not match their bytes",),
    ),
    "a duplicate": (
        doubled,
        (
            "1 records are more often in the archive than in the log: offsets 2 to 2",
            "1 records are in the log but not in the archive: offsets 3 to 3",
        ),
    ),
    "a missing record": (lambda table: table.slice(1), (r"has \d+ records, not the \d+ records and offsets",)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_changed_file_is_reported(spark: SparkSession, made: Made, what: str) -> None:
    change, said = CHANGES[what]
    edited(made, change)
    report = made.verified(spark)
    for line in said:
        assert_says(report, line)


def test_command_exits_with_1_if_there_is_a_difference(spark: SparkSession, made: Made) -> None:
    words = ["--bootstrap-server", made.broker.bootstrap, "--topics", made.topic, "--to", made.folder.as_uri()]
    sound = CliRunner().invoke(command, [*words, "--verify"], catch_exceptions=False)
    assert (sound.exit_code, sound.stdout) == (0, "")
    edited(made, lambda table: table.slice(1))
    wrong = CliRunner().invoke(command, [*words, "--verify"], catch_exceptions=False)
    assert (wrong.exit_code, wrong.stdout.splitlines()) == (1, made.verified(spark).differences)


COLUMNS = "partition int, offset bigint, key binary, key_raw binary, headers array<struct<key string, value binary>>"


def test_checksums_find_any_change(spark: SparkSession) -> None:
    """Also bytes or nulls that only change places."""
    rows: list[list[Any]] = [[0, at, b"ab", b"c", [("h", b"x"), ("i", None)]] for at in range(8)]
    frame = spark.createDataFrame([tuple(row) for row in rows], COLUMNS)
    rows[1][2:4] = b"a", b"bc"
    rows[2][2:4] = None, b"abc"
    rows[3][2:4] = b"abc", None
    rows[4][4] = [("h", None), ("i", b"x")]
    rows[5][4] = rows[4][4][::-1]
    rows[6][4] = None
    rows[7][4] = []
    other = spark.createDataFrame([tuple(row) for row in rows], COLUMNS)
    assert checksums.differing(other, frame) == [(0, checksums.CHANGED, 7, 1, 7)]
    assert checksums.of(other) != checksums.of(frame) == checksums.of(frame.repartition(3))
    found = other.select(checksums.checksum(other, other.drop("offset").columns)).distinct()
    assert found.count() == 8


def assert_says(report: Report, said: str) -> None:
    assert [line for line in report.differences if re.search(said, line)], report


OTHERS = [pytest.param(damage, marks=pytest.mark.long) for damage in ("gone", "cut", "flipped")]


@pytest.mark.parametrize("damage", ["flipped, checksum kept", *OTHERS])
def test_damaged_file_is_reported(spark: SparkSession, made: Made, damage: str) -> None:
    """The other files are compared nevertheless."""
    path = max(live(spark, made.folder).files)
    file = made.folder / path
    data = bytearray(file.read_bytes())
    data[40] ^= 1
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(data[:-1] if damage == "cut" else data)
        if damage == "flipped":
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    report = made.verified(spark)
    expected = {"gone": "is missing", "cut": "bytes, but was written with"}.get(damage, "cannot be read: ")
    assert_says(report, f"{path} {'has .* ' if damage == 'cut' else ''}{expected}")
    assert_says(report, "in the log but not in the archive")


@pytest.mark.long
def test_deleted_and_new_records_are_not_compared(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """Records deleted from the log are a note, not a difference; new records are not archived yet."""
    made = Made(broker, create_topic(broker, partitions=2), tmp_path / "archive")
    produce(broker, made.topic, COUNT)
    archive(spark, made.folder, Job(source(broker, made.topic)))
    delete_before(broker, made.topic, 5)
    produce(broker, made.topic, 4)
    note = "partition 0: offsets 0 to 4 are no longer in the log and are not compared"
    assert made.verified(spark) == Report([], [f"{made.topic}: {note}"], COUNT - 5)


def test_records_deleted_during_the_comparison_are_not_compared(
    spark: SparkSession, original: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted after the lookup of the log start offset; the report is the same as for an earlier deletion."""
    made = Made(original.broker, create_topic(original.broker, partitions=2), tmp_path / "archive")
    produce(made.broker, made.topic, COUNT)
    archive(spark, made.folder, Job(source(made.broker, made.topic)))
    look, ends = Comparison._ranges, iter((3, 5))

    def look_and_delete(self: Comparison, *given: Any) -> Any:
        found = look(self, *given)
        for end in ends:
            delete_before(made.broker, made.topic, end)
            break
        return found

    monkeypatch.setattr(Comparison, "_ranges", look_and_delete)
    note = "partition 0: offsets 0 to 4 are no longer in the log and are not compared"
    assert made.verified(spark) == Report([], [f"{made.topic}: {note}"], COUNT - 5)


def test_shorter_log_of_another_cluster_is_reported(
    spark: SparkSession, fresh_broker: Callable[..., Any], made: Made
) -> None:
    """A topic with the same name but fewer records is a difference; a missing topic is a note."""
    broker = fresh_broker()
    report = made._replace(broker=broker).verified(spark)
    assert report.differences == []
    assert len(report.notes) == 2
    topics.create({"bootstrap.servers": broker.bootstrap}, {made.topic: 2}, {})
    produce(broker, made.topic, 10)
    report = made._replace(broker=broker).verified(spark)
    assert_says(report, f"{made.topic}: partition 0: the log ends at 5, the archive at {COUNT // 2}")


def test_records_lost_by_the_archives_reader_are_found(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """Another client reads the log, because the archive's own reader would lose the same records again.

    Without compaction, the archive job itself finds the loss (test_archive_skips).
    """
    made = Made(broker, create_topic(broker, partitions=2, cleanup_policy="compact"), tmp_path / "archive")
    produce(broker, made.topic, COUNT)
    with losing(spark):
        archive(spark, made.folder, Job(source(broker, made.topic)))
        report = made.verified(spark)
    line = (
        f"{made.topic}: partition 1: 2 records are in the log but not in the archive: offsets {LOST[0]} to {LOST[-1]}"
    )
    assert report.differences == [line]


@pytest.mark.parametrize("policy", ["delete", pytest.param("compact", marks=pytest.mark.long)])
def test_records_missing_in_the_log_are_reported(spark: SparkSession, broker: Any, tmp_path: Path, policy: str) -> None:
    """In a compacted topic they are expected: here aborted records stand for compacted ones."""
    made = Made(broker, create_topic(broker, cleanup_policy=policy), tmp_path / "archive")
    for end in ("commit", "abort", "commit"):
        with transaction(broker, unique("id"), end) as producer:
            producer.produce(made.topic, end, "key")
        await_stable(broker, made.topic)  # otherwise the marker may come after the next record
    archive(spark, made.folder, Job(source(broker, made.topic, kafka_isolation_level="read_uncommitted")))
    report = made.verified(spark)
    line = f"{made.topic}: partition 0: 1 records are in the archive but not in the log: offsets 2 to 2"
    assert report.differences == ([line] if policy == "delete" else [])
    assert report.notes == ([] if policy == "delete" else [f"{line}, as expected of a compacted topic"])


@pytest.mark.long
def test_records_with_invalid_header_names_are_compared_by_the_archives_reader(
    spark: SparkSession, broker: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The other client cannot read such names; a warning says that the archive's reader was used."""
    made = Made(broker, create_topic(broker, partitions=2), tmp_path / "archive")
    produce(broker, made.topic, COUNT)
    body = record(0, b"v", headers=[("??", b"h")]).replace(b"??", b"\xff\xfe")
    with broker.wire() as wire:
        assert produced(wire, made.topic, batch([b"v"], payload=body)).error_code == 0
    archive(spark, made.folder, Job(source(broker, made.topic)))
    assert made.verified(spark) == Report([], [], COUNT + 1)
    assert [text for text in caplog.messages if text.startswith(f"{made.topic}: read as the archive was")]
