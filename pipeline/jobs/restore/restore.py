"""Restore an archive to topics: each record once, in order, with its bytes, headers and time."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial, reduce
from typing import TYPE_CHECKING

import click

from odradek.pipeline.errors import OptionError
from odradek.pipeline.jobs import command as commands
from odradek.pipeline.jobs import progress, topics
from odradek.pipeline.jobs.archive.formats import shapes
from odradek.pipeline.jobs.archive.store import contents
from odradek.pipeline.jobs.archive.store.contents import Reading
from odradek.pipeline.jobs.archive.store.manifest import File, State
from odradek.pipeline.jobs.archive.verify import checksums
from odradek.pipeline.jobs.restore import merging, restoring, targets
from odradek.pipeline.jobs.restore.restoring import PREFIX, Plan, RestorePlan
from odradek.pipeline.options import KAFKA, bare
from odradek.pipeline.parsing import positive
from odradek.pipeline.reading import subscription
from odradek.pipeline.types import Range
from odradek.pipeline.wire.brokers import Brokers
from odradek.pipeline.writing import producer_settings
from odradek.pipeline.writing.write_options import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odradek.pipeline.jobs.files import Files

SETTINGS = {"spark.sql.execution.arrow.maxBytesPerBatch": str(32 << 20)}
"""Settings of its session: Spark's batches of ten thousand records may be too large for any process."""
_MOST_TASKS = 1000
log = logging.getLogger(__name__)


@click.command("restore")
@click.option(
    "--from", "uri", required=True, metavar="URI", help="The archive, as in --to of `odradek pipeline archive`."
)
@click.option("--topics", "names", metavar="TOPIC,…", help="Topics to restore (default: all in the archive).")
@click.option("--prefix", default="", metavar="TEXT", help="Prefix for the names of the target topics.")
@click.option("--since", metavar="TIME", help="Only records with this timestamp (2026-11-23T01:00, UTC) or later.")
@click.option("--until", metavar="TIME", help="Only records with earlier timestamps.")
@click.option("--by-key", is_flag=True, help="Partition records by key instead of keeping their partitions.")
@click.option("--append", is_flag=True, help="Also write to topics that have records.")
@click.option("--step", default="1000000", show_default=True, help="Offsets per partition in one step.")
@click.option(
    "--id",
    "id_",
    default="",
    metavar="NAME",
    help="Name of this restore; another name restores the same records again.",
)
@commands.cluster_options
@commands.spark_options
def command(
    uri: str,
    names: str | None,
    prefix: str,
    since: str | None,
    until: str | None,
    by_key: bool,
    append: bool,
    step: str,
    id_: str,
    kafka: dict[str, str],
    conf: dict[str, str],
) -> None:
    """Write the records of an archive to topics, each once, in order, with their headers and times.

    An interrupted restore continues when it is started again with the same options.
    """
    chosen = () if names is None else subscription.parse({"subscribe": names}).topics
    request = RestorePlan(chosen, prefix, *_times(since, until), by_key, append, positive("--step", step), id_)
    _written(kafka)
    with Brokers(bare(kafka)) as brokers:
        brokers.topics()  # check that a broker answers before Spark starts
    spark = commands.start("odradek restore", {**SETTINGS, **conf})
    from odradek.pipeline.jobs.files import Files

    run(spark, Files(spark, uri), kafka, request)


def run(spark: SparkSession, files: Files, kafka: dict[str, str], request: RestorePlan) -> None:
    """Restore the selected topics. Raises PipelineError: no archive, a damaged one, a topic that has records."""
    archive = Reading(files)
    state = archive.state
    with Brokers(bare(kafka)) as brokers:
        plans = [
            restoring.prepare(brokers, bare(kafka), files.root, state, request, topic)
            for topic in request.chosen(state)
        ]
        configs = _configs(kafka, plans, state)
        for plan in plans:
            if plan.done:
                log.warning("%s was restored before by this command; another --id does it once more", plan.target)
                continue
            options = {**_written(kafka), **targets.writing(bare(kafka), configs[plan.target])}
            records = _Topic(spark, files, options, request, plan).write(archive)
            restoring.finish(brokers, plan)
            progress.done("restore", topic=plan.topic, to=plan.target, records=records)


class _Topic:
    """The restore of one topic."""

    def __init__(
        self, spark: SparkSession, files: Files, options: dict[str, str], request: RestorePlan, plan: Plan
    ) -> None:
        self._spark, self._files, self._options, self._request, self._plan = spark, files, options, request, plan

    def write(self, archive: Reading) -> int:
        """Write all steps; returns the number of their records."""
        records, topic = 0, self._plan.topic
        for number, ranges in enumerate(self._steps(archive)):
            with progress.described(self._spark, f"restore {topic} to {self._plan.target}, step {number}"):
                records += archive.steadily(topic, partial(self._step, number, ranges))
        return records

    def _steps(self, archive: Reading) -> Iterable[Mapping[int, Range]]:
        """The steps; by key, find them by reading all times of the topic."""
        topic, size = self._plan.topic, self._request.step
        if not self._request.by_key:
            return self._plan.steps(archive.state.of(topic), size)
        with progress.described(self._spark, f"restore {topic} to {self._plan.target}, times"):
            return archive.steadily(topic, self._by_time)

    def _by_time(self, state: State) -> list[dict[int, Range]]:
        files = state.of(self._plan.topic)
        whole = self._plan.whole(files)
        rows = self._rows(files, whole)
        return [] if rows is None else list(merging.steps(rows, whole, self._request.step))

    def _step(self, number: int, ranges: Mapping[int, Range], state: State) -> int:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        found = self._rows(state.of(self._plan.topic), ranges)
        if found is None:
            return 0
        rows = merging.ordered(found, len(self._plan.ends)) if self._request.by_key else _ordered(found, ranges)
        counted = Observation()  # on the last operator: Spark skips operators below an exchange that turns out empty
        self._send(rows.observe(counted, F.count(F.lit(1)).alias("records")), number)
        return int(counted.get["records"])

    def _rows(self, files: Iterable[File], ranges: Mapping[int, Range]) -> DataFrame | None:
        """The rows to write; None where no file has any."""
        chosen = [file for file in files if _has(file, ranges)]
        if not chosen:
            return None
        contents.check(self._files, chosen)
        parts = [shapes.unshape(frame) for _, frame in contents.frames(self._spark, self._files, chosen)]
        rows = checksums.within(reduce(lambda one, more: one.unionByName(more), parts), ranges)
        for bound, operator in ((self._request.since, ">="), (self._request.until, "<")):
            if bound is not None:
                rows = rows.where(f"timestamp {operator} timestamp_millis({bound})")
        return rows

    def _send(self, rows: DataFrame, number: int) -> None:
        columns = ["key", "value", "headers", "timestamp", "unit", *([] if self._request.by_key else ["partition"])]
        named = {"topic": self._plan.target, "odradek.transactional.id": f"{PREFIX}{self._plan.name}-{number}"}
        named["odradek.transactional.by"] = "unit"
        writer = rows.select(*columns).write.format("odradek").mode("append")
        writer.options(**self._options).options(**named).save()


def _ordered(rows: DataFrame, ranges: Mapping[int, Range]) -> DataFrame:
    """A step's rows, each partition's in one task."""
    from pyspark.sql import functions as F

    tasks = min(len(ranges), _MOST_TASKS)
    named = rows.withColumn("unit", F.col("partition"))
    return named.repartition(tasks, "unit").sortWithinPartitions("partition", "offset")


def _has(file: File, ranges: Mapping[int, Range]) -> bool:
    spans = ((file.partitions[index], one) for index, one in ranges.items() if index in file.partitions)
    return any(span.first < one.end and span.last >= one.start for span, one in spans)


def _configs(kafka: dict[str, str], plans: list[Plan], state: State) -> dict[str, dict[str, str]]:
    """The configurations of the targets still to write, with warnings."""
    found = topics.configs(bare(kafka), [plan.target for plan in plans if not plan.done])
    for plan in plans:
        if not plan.done:
            targets.warn(plan.target, found[plan.target], state.configs.get(plan.topic, {}))
    return found


def _written(kafka: Mapping[str, str]) -> dict[str, str]:
    """The writer's options, without the target; `kafka` may have settings for readers. OptionError."""
    settings = {f"{KAFKA}{name}": value for name, value in topics.writers(bare(kafka)).items()}
    options = {**settings, "odradek.timestamps": "true", "odradek.transactional": "true"}
    parsed = WriteOptions.parse(options, streaming=False)
    producer_settings.checked(producer_settings.librdkafka(parsed.kafka), parsed.transactional)
    return options


def _times(since: str | None, until: str | None) -> tuple[int | None, int | None]:
    """In ms since 1970. OptionError."""
    begin, end = _time("--since", since), _time("--until", until)
    if begin is not None and end is not None and begin >= end:
        raise OptionError(f"--since {since} is not before --until {until}")
    return begin, end


def _time(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(f"{option} must be a time such as 2026-11-23T01:00 (UTC), not '{text}'") from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
