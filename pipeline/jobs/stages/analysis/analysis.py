"""Check a file with Spark: its schemas, expressions and columns, tried on streams that never run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from odradek.pipeline.jobs.stages.analysis.dry_run import DryRun, Wrong
from odradek.pipeline.jobs.stages.declaration.avro_declared import AVRO
from odradek.pipeline.jobs.stages.declaration.declaration import Parse, Pipeline, Stage
from odradek.pipeline.jobs.stages.declaration.sql import HIDDEN, quoted
from odradek.pipeline.jobs.stages.steps import avro_results, enrich, plan, records
from odradek.pipeline.jobs.stages.steps.avro_results import Output
from odradek.pipeline.jobs.stages.steps.normalise import normalised
from odradek.pipeline.jobs.stages.steps.parse import Reading, parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TIMES = ("timestamp", "timestamp_ntz", "date")


@dataclass(frozen=True)
class Known:
    """How to read a stage's records and its tables, and what it writes."""

    reading: Reading
    tables: Sequence[Reading]
    columns: StructType
    output: Output | None  # None: it writes JSON


def analysed(spark: SparkSession, pipeline: Pipeline) -> tuple[dict[str, Known], list[str]]:
    """Each stage by name, and a line for each mistake. A stage that reads a faulty stage's results is not tried."""
    found, mistakes = dict[str, Known](), list[str]()
    for stage in pipeline.stages:
        how = stage.parse or _left_by(stage, pipeline.stages, found)
        if how is not None:
            try:
                found[stage.name] = _known(spark, stage, how, DryRun(stage.name, mistakes))
            except Wrong:
                pass
    return found, mistakes


def _left_by(stage: Stage, stages: Iterable[Stage], found: dict[str, Known]) -> Reading | None:
    [writer] = [other for other in stages if other.to in stage.sources]
    if writer.name not in found:
        return None
    known = found[writer.name]
    if writer.write is None or known.output is None:
        return Reading(Parse("json", ""), known.columns)
    registry, subject = writer.write.registry, writer.write.subject
    return Reading.of(Parse(AVRO, known.output.schema, registry=registry, subject=subject))


def _known(spark: SparkSession, stage: Stage, how: Parse | Reading, dry_run: DryRun) -> Known:
    """Step by step: note all mistakes of one step, and stop after a step with any. Raises Wrong."""
    reading = how if isinstance(how, Reading) else dry_run.reading("parse", how)
    rows = _cleaned(spark, stage, reading, dry_run)
    tables = [dry_run.reading(f"enrich.{each.column}.parse", each.parse) for each in stage.enrich]
    frames = [enrich.table(_nothing(spark, streaming=False), *pair) for pair in zip(stage.enrich, tables, strict=True)]
    done = _finished(rows, stage, frames, dry_run)
    columns = done.select(*map(quoted, records.visible(done))).schema
    output = _output(stage, columns, dry_run)
    dry_run.made("", lambda: _supported(spark, plan.written(rows, stage, frames, output)))
    return Known(reading, tables, columns, output)


def _output(stage: Stage, columns: StructType, dry_run: DryRun) -> Output | None:
    if stage.write is None:
        return None
    name = stage.write.name
    return Output(dry_run.made("write", lambda: avro_results.schema(columns, name)))


def _cleaned(spark: SparkSession, stage: Stage, reading: Reading, dry_run: DryRun) -> DataFrame:
    dry_run.names("parse.schema", reading.columns.names)
    dry_run.sound()
    rows = parsed(_nothing(spark, streaming=True), reading)
    dry_run.expressions(rows, "validate", stage.validate, ("boolean",))
    dry_run.expressions(rows, "normalise", stage.normalise)
    dry_run.sound()
    whole = normalised(rows, stage.normalise, ())
    dry_run.columns(whole, "drop", stage.drop)
    rest = whole.drop(*stage.drop)
    if stage.stateful:
        dry_run.expression(rest, "event_time", stage.event_time, _TIMES)
        dry_run.columns(rest, "deduplicate.by", stage.deduplicate)
    dry_run.sound()
    made: DataFrame = dry_run.made("", lambda: plan.cleaned(_nothing(spark, streaming=True), stage, reading))
    return made


def _finished(rows: DataFrame, stage: Stage, tables: Sequence[DataFrame], dry_run: DryRun) -> DataFrame:
    for declared in stage.enrich:
        dry_run.expression(rows, f"enrich.{declared.column}.on", declared.on)
        if declared.column.lower() in map(str.lower, (*rows.columns, *HIDDEN)):
            dry_run.note(f"enrich.{declared.column}.as", "a column with this name exists")
    dry_run.sound()
    if stage.aggregate:
        before = plan.joined(plan.remembered(rows, stage), stage, tables)
        dry_run.expressions(before, "aggregate.by", stage.aggregate.by)
        dry_run.aggregates(before, "aggregate.values", stage.aggregate.values)
        dry_run.names("aggregate.values", (*stage.aggregate.by, *stage.aggregate.values))
    dry_run.sound()
    done: DataFrame = dry_run.made(
        "aggregate" if stage.aggregate else "enrich", lambda: plan.finished(rows, stage, tables)
    )
    dry_run.expression(done, "key", stage.key)
    dry_run.expression(done, "timestamp", stage.timestamp, _TIMES)
    dry_run.sound()
    return done


def _nothing(spark: SparkSession, streaming: bool) -> DataFrame:
    """An empty frame of `record`."""
    rows = spark.readStream.format("rate").load() if streaming else spark.range(0)
    fields = (field.strip().split(" ", 1) for field in records.READ.split(", ", 6))
    return records.received(rows.selectExpr(*(f"CAST(NULL AS {kind}) AS {name}" for name, kind in fields)))


def _supported(spark: SparkSession, rows: DataFrame) -> None:
    """AnalysisException for what a stream does not support; Spark checks only when it starts one, which is late."""
    jvm: Any = spark._jvm
    plan_ = rows._jdf.queryExecution().analyzed()
    mode = jvm.org.apache.spark.sql.streaming.OutputMode.Append()
    jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan_, mode)
