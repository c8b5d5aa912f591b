"""The counts of all tiers, in the order that records pass them.

The log is counted last: it has at least all records written meanwhile, so none seems to be missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.pipeline.auditing import WINDOW_MS, Message
from odradek.pipeline.errors import OptionError
from odradek.pipeline.jobs.audit import cluster, counting, produced
from odradek.pipeline.jobs.audit.asked import Asked, Stage
from odradek.pipeline.jobs.audit.cluster import Whole
from odradek.pipeline.jobs.audit.period import Period
from odradek.pipeline.jobs.audit.verdict import StageCounts, Tier
from odradek.pipeline.types import Partition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_ARCHIVE = counting.Archived(Counter(), [], {}, [])


@dataclass(frozen=True)
class Found:
    """The tiers to compare for these `topics`. `notes` are lines on the counts; `doubts` those that weaken them."""

    period: Period
    topics: set[str]
    tiers: list[Tier]
    stages: list[StageCounts]
    notes: list[str]
    doubts: list[str]


def count(asked: Asked, spark: SparkSession) -> Found:
    """Count all requested tiers."""
    since = max(asked.now - asked.last - (asked.window or WINDOW_MS), 0)
    told, notes = _told(asked, spark, since)
    period = Period.before(asked.now, asked.last, asked.grace, _window(asked.window, told))
    producers = produced.add_up(told, period, since)
    archive = counting.archived(spark, asked.archive, asked.topics, period) if asked.archive else _NO_ARCHIVE
    counted = {topic for message in told for topic in message.counts}
    topics = set(asked.topics) or {*counted, *archive.topics, *(stage.topic for stage in asked.stages)}
    tiers, stages = _in_log(asked, spark, topics, period, archive)
    if asked.audit_topic:
        tiers.insert(0, Tier("producers", producers.counts, counted & topics))
    return Found(period, topics, tiers, stages, notes, [*producers.doubts, *archive.notes])


def _told(asked: Asked, spark: SparkSession, since: int) -> tuple[list[Message], list[str]]:
    if not asked.audit_topic:
        return [], []
    return produced.messages(counting.values(spark, asked.kafka, asked.audit_topic, since))


def _window(asked: int | None, told: Iterable[Message]) -> int:
    """The requested window, or the producers' longest; theirs must fit into it."""
    theirs = {message.window for message in told}
    window = asked or max(theirs, default=WINDOW_MS)
    if wrong := [each for each in sorted(theirs) if window % each]:
        raise OptionError(
            f"producers count in windows of {wrong[0]} ms, and {window} ms is not a multiple of that: see --window"
        )
    return window


def _in_log(
    asked: Asked, spark: SparkSession, topics: set[str], period: Period, archive: counting.Archived
) -> tuple[list[Tier], list[StageCounts]]:
    """The log, the archive that is compared with it, and the stages' results."""
    after = {name for stage in asked.stages for name in stage.to}
    there = (topics | after) & cluster.topics(asked.kafka, ())
    log = counting.in_log(spark, asked.kafka, there, period, archive.offsets, bool(after))
    whole = cluster.whole_since(asked.kafka, there, asked.now, period.window)
    tiers = [Tier("log", log.counts, topics, whole=whole)]
    if asked.archive:
        tiers.append(Tier("archive", archive.counts, archive.topics, awaited=log.awaited))
    return tiers, [_made(stage, log, whole) for stage in asked.stages]


def _made(stage: Stage, log: counting.InLog, whole: Mapping[Partition, Whole]) -> StageCounts:
    """The results of a stage for its topic; dead letters of other topics may be among them and do not count."""
    counts: Counter[int] = Counter()
    for origin in (None, stage.topic):
        for (name, _, start), records in log.origins.get(origin, Counter()).items():
            if name in stage.to:
                counts[start] += records
    since = max(limit.since for (name, _), limit in whole.items() if name in stage.to)
    return StageCounts("+".join(stage.to), stage.topic, counts, since)
