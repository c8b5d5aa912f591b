"""Count the records of each partition and window in the log and in the archive: one pass of Spark over each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from odradek.pipeline.auditing import Counts
from odradek.pipeline.jobs.archive.store import manifest
from odradek.pipeline.jobs.audit.period import Period
from odradek.pipeline.jobs.files import Files
from odradek.pipeline.jobs.progress import described
from odradek.pipeline.types import Partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_COMMITTED = {"kafka.isolation.level": "read_committed"}  # whatever the options say: aborted records do not count
_ORIGIN = "string(get(filter(headers, h -> h.key = 'odradek.topic'), 0).value)"  # written by `odradek pipeline stages`


class InLog(NamedTuple):
    """`origins`: the counts, by the topic that dead letters come from, None for all other records.

    `awaited` are those among them that the archive has not read yet.
    """

    origins: Mapping[str | None, Counts]
    awaited: Counts

    @property
    def counts(self) -> Counts:
        """The counts of all origins."""
        return sum(self.origins.values(), Counter())


class Archived(NamedTuple):
    """`offsets`: the archive's next offsets; `notes` name missing files."""

    counts: Counts
    topics: list[str]
    offsets: Mapping[Partition, int]
    notes: list[str]


def values(spark: SparkSession, kafka: Mapping[str, str], topic: str, since: int) -> list[bytes | None]:
    """The values of a topic from a time on."""
    with described(spark, f"audit: messages of producers in {topic}"):
        return [row.value for row in _log(spark, kafka, [topic], since).select("value").toLocalIterator()]


def in_log(
    spark: SparkSession,
    kafka: Mapping[str, str],
    topics: Collection[str],
    period: Period,
    archived: Mapping[Partition, int],
    dead_letters: bool,
) -> InLog:
    """Count the records of these topics by timestamp; `archived` has the archive's next offsets.

    With `dead_letters` it reads all headers to find where dead letters come from.
    """
    from pyspark.sql import functions as sql

    if not topics:
        return InLog({}, Counter())
    ends = spark.createDataFrame(
        [(*key, at) for key, at in archived.items()], "topic string, partition int, archived long"
    )
    rows = _within(_log(spark, kafka, topics, period.begin, dead_letters), period)
    rows = rows.withColumn("origin", sql.expr(_ORIGIN if dead_letters else "string(null)"))
    rows = rows.join(sql.broadcast(ends), ["topic", "partition"], "left")
    late = sql.count_if(sql.col("offset") >= sql.coalesce("archived", sql.lit(0))).alias("late")
    with described(spark, f"audit: the log of {', '.join(sorted(topics))}"):
        by = "topic", "partition", "window", "origin"
        found = rows.groupBy(*by).agg(sql.count("*").alias("records"), late).collect()
    return _summed(found)


def _summed(found: Iterable[Row]) -> InLog:
    awaited: Counts = Counter()
    origins: dict[str | None, Counts] = defaultdict(Counter)
    for row in found:
        key = row.topic, row.partition, row.window
        awaited[key] += row.late
        origins[row.origin][key] += row.records
    return InLog(origins, awaited)


def archived(spark: SparkSession, root: str, topics: Collection[str] | None, period: Period) -> Archived:
    """Count the records of these topics, or of all, in the archive's live files."""
    files = Files(spark, root)
    state = manifest.live(files)
    counts: Counts = Counter()
    notes: list[str] = []
    names = sorted(set(state.topics) & set(topics) if topics else state.topics)
    for name in names:
        lost = [file for file in state.of(name) if not files.exists(file.path)]
        notes += [f"{files.uri(file.path)} is missing, with {file.rows} records of {name}" for file in lost]
        paths = [files.uri(file.path) for file in state.of(name) if file not in lost]
        counts += _in_files(spark, name, paths, period)
    return Archived(counts, names, state.offsets, notes)


def _in_files(spark: SparkSession, topic: str, paths: list[str], period: Period) -> Counts:
    if not paths:
        return Counter()
    rows = _within(spark.read.parquet(*paths), period)
    with described(spark, f"audit: the archive of {topic}"):
        found = rows.groupBy("partition", "window").count().collect()
    return Counter({(topic, row.partition, row.window): row["count"] for row in found})


def _log(
    spark: SparkSession, kafka: Mapping[str, str], topics: Iterable[str], since: int, headers: bool = False
) -> DataFrame:
    """The topics from the first record of that time on: all earlier records are older."""
    read = spark.read.format("odradek").options(**{**kafka, **_COMMITTED}).option("subscribe", ",".join(topics))
    read = read.option("startingTimestamp", str(since)).option("startingOffsetsByTimestampStrategy", "latest")
    return read.option("includeHeaders", str(headers)).load()


def _within(rows: DataFrame, period: Period) -> DataFrame:
    from pyspark.sql import functions as sql

    at = sql.unix_millis("timestamp")
    rows = rows.where((at >= period.begin) & (at < period.end))
    return rows.withColumn("window", at - at % period.window)
