"""Check a file with Spark: its schemas, expressions and columns, tried on streams that never run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from odradek.pipeline.jobs.stages import avro_results, enrich, plan, records
from odradek.pipeline.jobs.stages.avro_declared import AVRO
from odradek.pipeline.jobs.stages.avro_results import Output
from odradek.pipeline.jobs.stages.declaration import Parse, Pipeline, Stage
from odradek.pipeline.jobs.stages.normalise import normalised
from odradek.pipeline.jobs.stages.parse import Reading, parsed
from odradek.pipeline.jobs.stages.sql import HIDDEN, quoted
from odradek.pipeline.jobs.stages.trial import Trial, Wrong

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
                found[stage.name] = _known(spark, stage, how, Trial(stage.name, mistakes))
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


def _known(spark: SparkSession, stage: Stage, how: Parse | Reading, trial: Trial) -> Known:
    """Step by step: note all mistakes of one step, and stop after a step with any. Raises Wrong."""
    reading = how if isinstance(how, Reading) else trial.reading("parse", how)
    rows = _cleaned(spark, stage, reading, trial)
    tables = [trial.reading(f"enrich.{each.column}.parse", each.parse) for each in stage.enrich]
    frames = [enrich.table(_nothing(spark, streaming=False), *pair) for pair in zip(stage.enrich, tables, strict=True)]
    done = _finished(rows, stage, frames, trial)
    columns = done.select(*map(quoted, records.visible(done))).schema
    output = _output(stage, columns, trial)
    trial.made("", lambda: _supported(spark, plan.written(rows, stage, frames, output)))
    return Known(reading, tables, columns, output)


def _output(stage: Stage, columns: StructType, trial: Trial) -> Output | None:
    if stage.write is None:
        return None
    name = stage.write.name
    return Output(trial.made("write", lambda: avro_results.schema(columns, name)))


def _cleaned(spark: SparkSession, stage: Stage, reading: Reading, trial: Trial) -> DataFrame:
    trial.names("parse.schema", reading.columns.names)
    trial.sound()
    rows = parsed(_nothing(spark, streaming=True), reading)
    trial.expressions(rows, "validate", stage.validate, ("boolean",))
    trial.expressions(rows, "normalise", stage.normalise)
    trial.sound()
    whole = normalised(rows, stage.normalise, ())
    trial.columns(whole, "drop", stage.drop)
    rest = whole.drop(*stage.drop)
    if stage.stateful:
        trial.expression(rest, "event_time", stage.event_time, _TIMES)
        trial.columns(rest, "deduplicate.by", stage.deduplicate)
    trial.sound()
    made: DataFrame = trial.made("", lambda: plan.cleaned(_nothing(spark, streaming=True), stage, reading))
    return made


def _finished(rows: DataFrame, stage: Stage, tables: Sequence[DataFrame], trial: Trial) -> DataFrame:
    for declared in stage.enrich:
        trial.expression(rows, f"enrich.{declared.column}.on", declared.on)
        if declared.column.lower() in map(str.lower, (*rows.columns, *HIDDEN)):
            trial.note(f"enrich.{declared.column}.as", "a column with this name exists")
    trial.sound()
    if stage.aggregate:
        before = plan.joined(plan.remembered(rows, stage), stage, tables)
        trial.expressions(before, "aggregate.by", stage.aggregate.by)
        trial.aggregates(before, "aggregate.values", stage.aggregate.values)
        trial.names("aggregate.values", (*stage.aggregate.by, *stage.aggregate.values))
    trial.sound()
    done: DataFrame = trial.made(
        "aggregate" if stage.aggregate else "enrich", lambda: plan.finished(rows, stage, tables)
    )
    trial.expression(done, "key", stage.key)
    trial.expression(done, "timestamp", stage.timestamp, _TIMES)
    trial.sound()
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
