"""What the tiers do not agree in. Counts cannot see a loss and a doubling in the same window that are equally large."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from odradek.pipeline.auditing import Counts


@dataclass(frozen=True)
class Tier:
    """One place that records pass, and how many are there.

    `topics` go through it. `awaited` are on their way to it and no loss. `whole_since`: of windows that begin before
    that time (ms) it need not have all records any more.
    """

    name: str
    counts: Counts
    topics: Collection[str]
    awaited: Counts = field(default_factory=Counter)
    whole_since: Mapping[str, int] = field(default_factory=dict)

    def has(self, key: tuple[str, int]) -> bool:
        """Whether it can be asked for this window of this topic."""
        return key[0] in self.topics and key[1] >= self.whole_since.get(key[0], 0)


@dataclass(frozen=True)
class Row:
    """A window of a topic: the tiers' counts, and how those differ from the first tier's."""

    topic: str
    start: int
    counts: Mapping[str, int]
    missing: Mapping[str, int]
    more: Mapping[str, int]

    @property
    def differs(self) -> bool:
        """Whether there is something to tell."""
        return bool(self.missing or self.more)


def rows(tiers: Iterable[Tier]) -> Iterator[Row]:
    """Every window that is in any tier, by topic and time; one that only one tier can be asked for is left out."""
    all_tiers = list(tiers)
    for key in sorted({key for tier in all_tiers for key in tier.counts}):
        asked = [tier for tier in all_tiers if tier.has(key)]
        if len(asked) > 1:
            yield _row(key, asked)


def _row(key: tuple[str, int], tiers: list[Tier]) -> Row:
    expected = tiers[0].counts[key]
    more = {tier.name: tier.counts[key] - expected for tier in tiers}
    missing = {tier.name: -more[tier.name] - tier.awaited[key] for tier in tiers}
    return Row(*key, {tier.name: tier.counts[key] for tier in tiers}, _positive(missing), _positive(more))


def _positive(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count > 0}
