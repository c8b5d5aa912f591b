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
from odradek.pipeline.jobs.audit.audit_request import AuditRequest, Stage
from odradek.pipeline.jobs.audit.cluster import Whole
from odradek.pipeline.jobs.audit.period import Period
from odradek.pipeline.jobs.audit.verdict import StageCounts, Tier
from odradek.pipeline.types import Partition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_ARCHIVE = counting.Archived(Counter(), [], {}, [])


@dataclass(frozen=True)
class TierCounts:
    """The tiers to compare for these `topics`. `notes` are lines on the counts; `doubts` those that weaken them."""

    period: Period
    topics: set[str]
    tiers: list[Tier]
    stages: list[StageCounts]
    notes: list[str]
    doubts: list[str]


def count(request: AuditRequest, spark: SparkSession) -> TierCounts:
    """Count all requested tiers."""
    since = max(request.now - request.last - (request.window or WINDOW_MS), 0)
    messages, notes = _messages(request, spark, since)
    period = Period.before(request.now, request.last, request.grace, _window(request.window, messages))
    producers = produced.add_up(messages, period, since)
    archive = counting.archived(spark, request.archive, request.topics, period) if request.archive else _NO_ARCHIVE
    counted = {topic for message in messages for topic in message.counts}
    topics = set(request.topics) or {*counted, *archive.topics, *(stage.topic for stage in request.stages)}
    tiers, stages = _in_log(request, spark, topics, period, archive)
    if request.audit_topic:
        tiers.insert(0, Tier("producers", producers.counts, counted & topics))
    return TierCounts(period, topics, tiers, stages, notes, [*producers.doubts, *archive.notes])


def _messages(request: AuditRequest, spark: SparkSession, since: int) -> tuple[list[Message], list[str]]:
    if not request.audit_topic:
        return [], []
    return produced.messages(counting.values(spark, request.kafka, request.audit_topic, since))


def _window(window_ms: int | None, messages: Iterable[Message]) -> int:
    """The requested window, or the producers' longest; theirs must fit into it."""
    theirs = {message.window for message in messages}
    window = window_ms or max(theirs, default=WINDOW_MS)
    if wrong := [each for each in sorted(theirs) if window % each]:
        raise OptionError(
            f"producers count in windows of {wrong[0]} ms, and {window} ms is not a multiple of that: see --window"
        )
    return window


def _in_log(
    request: AuditRequest, spark: SparkSession, topics: set[str], period: Period, archive: counting.Archived
) -> tuple[list[Tier], list[StageCounts]]:
    """The log, the archive that is compared with it, and the stages' results."""
    after = {name for stage in request.stages for name in stage.to}
    there = (topics | after) & cluster.topics(request.kafka, ())
    log = counting.in_log(spark, request.kafka, there, period, archive.offsets, bool(after))
    whole = cluster.whole_since(request.kafka, there, request.now, period.window)
    tiers = [Tier("log", log.counts, topics, whole=whole)]
    if request.archive:
        tiers.append(Tier("archive", archive.counts, archive.topics, awaited=log.awaited))
    return tiers, [_made(stage, log, whole) for stage in request.stages]


def _made(stage: Stage, log: counting.InLog, whole: Mapping[Partition, Whole]) -> StageCounts:
    """The results of a stage for its topic; dead letters of other topics may be among them and do not count."""
    counts: Counter[int] = Counter()
    for origin in (None, stage.topic):
        for (name, _, start), records in log.origins.get(origin, Counter()).items():
            if name in stage.to:
                counts[start] += records
    since = max(limit.since for (name, _), limit in whole.items() if name in stage.to)
    return StageCounts("+".join(stage.to), stage.topic, counts, since)
