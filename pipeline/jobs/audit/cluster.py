"""An audit's requests to the cluster: its topics, and the records that they still have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from odradek.pipeline.errors import UnknownTopic
from odradek.pipeline.jobs.audit.period import utc
from odradek.pipeline.jobs.topics import client, configs
from odradek.pipeline.options import bare
from odradek.pipeline.types import EARLIEST, Partition
from odradek.pipeline.wire.brokers import Brokers
from odradek.protocol.wire import INT64_MAX

_NEVER = INT64_MAX


class Whole(NamedTuple):
    """The time (ms) since which a partition has all its records; `why` older ones may be missing."""

    since: int
    why: str


def check(kafka: Mapping[str, str], named: Iterable[str]) -> None:
    """Check that the requests below work. OptionError; UnknownTopic where one of the named topics does not exist."""
    client(bare(kafka))
    topics(kafka, named)


def topics(kafka: Mapping[str, str], named: Iterable[str]) -> set[str]:
    """All topics. UnknownTopic where one of those named does not exist."""
    with Brokers(bare(kafka)) as brokers:
        known = set(brokers.topics())
    missing = sorted(set(named) - known)
    if missing:
        raise UnknownTopic(f"topic {', '.join(missing)} does not exist (or this user may not see it)")
    return known


def whole_since(kafka: Mapping[str, str], names: Collection[str], now: int, slack: int) -> dict[Partition, Whole]:
    """The time since which each partition of these topics has all its records. Call it after reading them.

    The time is `slack` later than necessary: reading takes time, and records are not in strict order of time.
    """
    cut = _cut(bare(kafka), names)
    kept = {name: list(_kept(config, now)) for name, config in configs(bare(kafka), names).items()}
    found = {key: max([Whole(0, ""), *kept[key[0]], *limits]) for key, limits in cut.items()}
    return {key: whole._replace(since=whole.since + slack if whole.since else 0) for key, whole in found.items()}


def _kept(config: Mapping[str, str], now: int) -> Iterator[Whole]:
    """Older records may be deleted, now or later."""
    policies = (config.get("cleanup.policy") or "delete").split(",")
    if "compact" in policies:
        yield Whole(_NEVER, "cleanup.policy is compact")
    if "delete" in policies and (ms := int(config.get("retention.ms") or -1)) >= 0:
        yield Whole(now - ms, f"retention.ms is {ms}")


def _cut(kafka: Mapping[str, str], names: Collection[str]) -> dict[Partition, list[Whole]]:
    """All partitions; for logs whose start is gone, by size or on demand, the time of the first record."""
    with Brokers(kafka) as brokers:
        keys = [(name, index) for name, count in brokers.topics().items() if name in names for index in range(count)]
        starts = {key: first for key, first in brokers.offsets(keys, EARLIEST).items() if first > 0}
        times = brokers.first_times(starts)
    return {key: [_begins(starts[key], times[key])] if key in starts else [] for key in keys}


def _begins(offset: int, time: int | None) -> Whole:
    if time is None:
        return Whole(_NEVER, f"its log is deleted up to offset {offset}, and empty")
    return Whole(time, f"its log starts at offset {offset}, with a record of {utc(time)}")
