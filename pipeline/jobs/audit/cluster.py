"""What an audit asks the cluster: which topics there are, and what they still have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from odradek.pipeline.errors import UnknownTopic
from odradek.pipeline.jobs.topics import client, configs
from odradek.pipeline.options import bare
from odradek.pipeline.types import EARLIEST
from odradek.pipeline.wire.brokers import Brokers

_NEVER = 1 << 63


def check(kafka: Mapping[str, str], named: Iterable[str]) -> None:
    """That it can be asked all that is below. OptionError; UnknownTopic where there is none of those named."""
    client(bare(kafka))
    topics(kafka, named)


def topics(kafka: Mapping[str, str], named: Iterable[str]) -> set[str]:
    """All there are. UnknownTopic where one of those named is none of them."""
    with Brokers(bare(kafka)) as brokers:
        known = set(brokers.topics())
    missing = sorted(set(named) - known)
    if missing:
        raise UnknownTopic(f"there is no topic {', '.join(missing)} (or this user may not see it)")
    return known


def whole_since(kafka: Mapping[str, str], names: Collection[str], now: int, slack: int) -> dict[str, int]:
    """The time since when each of these topics has all its records; all in ms. Ask when they were read.

    It is `slack` later than it need be: time passes while one reads, and records lie in no strict order of time.
    """
    cut = _cut(bare(kafka), names)
    kept = {name: [*_kept(config, now), *cut[name]] for name, config in configs(bare(kafka), names).items()}
    return {name: max(times) + slack if times else 0 for name, times in kept.items()}


def _kept(config: Mapping[str, str], now: int) -> Iterator[int]:
    """What is older may be deleted, whether it is yet or not."""
    policies = (config.get("cleanup.policy") or "delete").split(",")
    if "compact" in policies:
        yield _NEVER
    if "delete" in policies and (ms := int(config.get("retention.ms") or -1)) >= 0:
        yield now - ms


def _cut(kafka: Mapping[str, str], names: Collection[str]) -> dict[str, list[int]]:
    """The times of first records, by topic, of those logs whose beginning is gone: by their size, or on demand."""
    found: dict[str, list[int]] = {name: [] for name in names}
    with Brokers(kafka) as brokers:
        keys = [(name, index) for name, count in brokers.topics().items() if name in found for index in range(count)]
        cut = [key for key, first in brokers.offsets(keys, EARLIEST).items() if first > 0]
        for (name, _), time in brokers.first_times(cut).items():
            found[name].append(_NEVER if time is None else time)
    return found
