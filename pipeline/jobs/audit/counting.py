"""How many records of each partition and window the log has, and the archive: one pass of Spark over each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from odradek.pipeline.auditing import Counts
from odradek.pipeline.jobs.archive import manifest
from odradek.pipeline.jobs.audit.period import Period
from odradek.pipeline.jobs.files import Files
from odradek.pipeline.jobs.progress import described
from odradek.pipeline.types import Partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_COMMITTED = {"kafka.isolation.level": "read_committed"}  # whatever is asked for: what was aborted is not counted
_ORIGIN = "string(get(filter(headers, h -> h.key = 'odradek.topic'), 0).value)"  # as `odradek pipeline stages` has it


class InLog(NamedTuple):
    """`origins`: what there is, by the topic that dead letters come from, None for all other records.

    `awaited` are those of them that the archive did not read yet.
    """

    origins: Mapping[str | None, Counts]
    awaited: Counts

    @property
    def counts(self) -> Counts:
        """From wherever."""
        return sum(self.origins.values(), Counter())


class Archived(NamedTuple):
    """`offsets`: where the archive goes on; `notes` name files that are not there."""

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
    """What is in these topics by the records' timestamps; `archived` is where the archive goes on.

    Where `dead_letters` come from is looked for in all headers.
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
    """What the live files of an archive have of these topics, or of all."""
    files = Files(spark, root)
    state = manifest.live(files)
    counts: Counts = Counter()
    notes: list[str] = []
    names = sorted(set(state.topics) & set(topics) if topics else state.topics)
    for name in names:
        lost = [file for file in state.of(name) if not files.exists(file.path)]
        notes += [f"{files.uri(file.path)} is not there, with {file.rows} records of {name}" for file in lost]
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
    """The topics from the first record of that time on: all before it are older."""
    read = spark.read.format("odradek").options(**{**kafka, **_COMMITTED}).option("subscribe", ",".join(topics))
    read = read.option("startingTimestamp", str(since)).option("startingOffsetsByTimestampStrategy", "latest")
    return read.option("includeHeaders", str(headers)).load()


def _within(rows: DataFrame, period: Period) -> DataFrame:
    from pyspark.sql import functions as sql

    at = sql.unix_millis("timestamp")
    rows = rows.where((at >= period.begin) & (at < period.end))
    return rows.withColumn("window", at - at % period.window)
