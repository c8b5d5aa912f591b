"""The differences between the tiers, by partition: a surplus in one hides no loss in another.

Counts cannot show a loss and a duplication of equal size in the same window of a partition.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from odradek.pipeline.auditing import Counts
from odradek.pipeline.jobs.audit.cluster import Whole
from odradek.pipeline.jobs.audit.period import utc
from odradek.pipeline.types import Partition

_WHOLE = Whole(0, "")
_SHOWN = 10  # partitions in a line


@dataclass(frozen=True)
class Tier:
    """One place that records pass, and their number there.

    `topics` pass through it. `awaited` records are on their way to it and no loss. In windows that begin before a
    partition is `whole` the tier may miss records.
    """

    name: str
    counts: Counts
    topics: Collection[str]
    awaited: Counts = field(default_factory=Counter)
    whole: Mapping[Partition, Whole] = field(default_factory=dict)

    def has(self, topic: str, partition: int, start: int) -> bool:
        """Whether it can judge this window of this partition."""
        return topic in self.topics and start >= self.whole.get((topic, partition), _WHOLE).since

    def has_all(self, topic: str, start: int) -> bool:
        """Whether it can judge this window of the whole topic."""
        return topic in self.topics and start >= self._all_since.get(topic, 0)

    @cached_property
    def _all_since(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for (topic, _), whole in self.whole.items():
            found[topic] = max(found.get(topic, 0), whole.since)
        return found

    def why_not(self, topic: str, partition: int) -> str | None:
        """Why it cannot judge all windows of this partition."""
        whole = self.whole.get((topic, partition), _WHOLE)
        return f"{self.name}: {whole.why}" if whole.since else None


@dataclass(frozen=True)
class StageCounts:
    """A stage's results for a topic, in any partitions, by start of the window; complete from `since` on."""

    name: str
    topic: str
    counts: Mapping[int, int]
    since: int


@dataclass(frozen=True)
class Row:
    """A window of a topic: the counts in its judged partitions, and their differences from the first tier's.

    `unjudged` are partitions with records that only one tier can judge.
    """

    topic: str
    start: int
    counts: Mapping[str, int]
    missing: Mapping[str, int]
    more: Mapping[str, int]
    unjudged: Sequence[int] = ()

    @property
    def judged(self) -> bool:
        """Whether anything in it was compared."""
        return bool(self.counts)

    @property
    def differs(self) -> bool:
        """Whether there is a difference to report."""
        return bool(self.missing or self.more)


def rows(tiers: Sequence[Tier], stages: Sequence[StageCounts] = ()) -> Iterator[Row]:
    """Every window that has records in any tier, by topic and time."""
    found: dict[tuple[str, int], set[int]] = {(stage.topic, at): set() for stage in stages for at in stage.counts}
    for tier in tiers:
        for topic, partition, start in tier.counts:
            found.setdefault((topic, start), set()).add(partition)
    for (topic, start), partitions in sorted(found.items()):
        window = _Window(topic, start, sorted(partitions), tiers)
        yield window.judge([stage for stage in stages if stage.topic == topic and start >= stage.since])


@dataclass
class _Window:
    """A window of a topic and its partitions with records, while it is judged."""

    topic: str
    start: int
    partitions: Sequence[int]
    tiers: Sequence[Tier]
    missing: Counter[str] = field(default_factory=Counter)
    more: Counter[str] = field(default_factory=Counter)

    def judge(self, stages: Sequence[StageCounts]) -> Row:
        """The window's row; `stages` are those complete in it."""
        judged = [partition for partition in self.partitions if self._judge_partition(partition)]
        made = self._judge_stages(stages)
        if made:
            judged = list(self.partitions)
        counts = {**self._counts(judged, bool(made)), **made}
        unjudged = [partition for partition in self.partitions if partition not in judged]
        return Row(self.topic, self.start, counts, dict(+self.missing), dict(+self.more), unjudged)

    def _judge_partition(self, partition: int) -> bool:
        """Compare the tiers that can judge it with the first of them; returns whether there are several."""
        key = self.topic, partition, self.start
        counted = [tier for tier in self.tiers if tier.has(*key)]
        for tier in counted[1:]:
            self._differ(tier.name, tier.counts[key] - counted[0].counts[key], tier.awaited[key])
        return len(counted) > 1

    def _judge_stages(self, stages: Sequence[StageCounts]) -> dict[str, int]:
        """Compare with the first tier that has all of the topic; returns each stage's count, {} without such a tier."""
        whole = next((tier for tier in self.tiers if tier.has_all(self.topic, self.start)), None)
        if whole is None:
            return {}
        expected = sum(whole.counts[self.topic, partition, self.start] for partition in self.partitions)
        made = {stage.name: stage.counts.get(self.start, 0) for stage in stages}
        for name, count in made.items():
            self._differ(name, count - expected, 0)
        return made

    def _differ(self, tier: str, surplus: int, awaited: int) -> None:
        self.more[tier] += max(surplus, 0)
        self.missing[tier] += max(-surplus - awaited, 0)

    def _counts(self, judged: Sequence[int], whole: bool) -> dict[str, int]:
        """By tier, in the judged partitions that it has; without tiers that have none of them."""
        found = {}
        for tier in self.tiers:
            had = [partition for partition in judged if tier.has(self.topic, partition, self.start)]
            if had or (whole and tier.has_all(self.topic, self.start)):
                found[tier.name] = sum(tier.counts[self.topic, partition, self.start] for partition in had)
        return found


def judged(
    rows: Iterable[Row], tiers: Sequence[Tier], stages: Sequence[StageCounts], topics: Iterable[str], last: int
) -> set[str]:
    """The topics with a judged window, or without records but judgeable; `last` is the last window."""
    found = dict.fromkeys(topics, False)
    for topic in found:
        counted = [tier for tier in tiers if tier.has_all(topic, last)]
        found[topic] = len(counted) + any(stage.topic == topic and last >= stage.since for stage in stages) > 1
    with_records: dict[str, bool] = {}
    for row in rows:
        with_records[row.topic] = with_records.get(row.topic, False) or row.judged
    return {topic for topic, so in {**found, **with_records}.items() if so}


def unjudged(rows: Iterable[Row], tiers: Sequence[Tier]) -> Iterator[str]:
    """Lines on partitions with records in unjudged windows: which, how many windows, and why."""
    windows: dict[tuple[str, str], dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for row in rows:
        for partition in row.unjudged:
            windows[row.topic, _reason(tiers, row.topic, partition)][partition].add(row.start)
    for (topic, why), found in sorted(windows.items()):
        starts = set().union(*found.values())
        span = f"{len(starts)} windows from {utc(min(starts))} to {utc(max(starts))}"
        yield f"{topic}, {_named(sorted(found))}: {span} were not judged: {why}"


def _reason(tiers: Sequence[Tier], topic: str, partition: int) -> str:
    reasons = filter(None, (tier.why_not(topic, partition) for tier in tiers))
    return "; ".join(reasons) or "only one tier has the topic"


def _named(partitions: Sequence[int]) -> str:
    some = ", ".join(map(str, partitions[:_SHOWN]))
    return (
        f"partitions {some}" if len(partitions) <= _SHOWN else f"partitions {some} and {len(partitions) - _SHOWN} more"
    )
