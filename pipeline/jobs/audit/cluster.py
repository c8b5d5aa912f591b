"""What an audit asks the cluster before Spark starts: which topics there are, and for how long they keep records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.pipeline.errors import UnknownTopic
from odradek.pipeline.jobs.topics import client, configs
from odradek.pipeline.options import bare
from odradek.pipeline.wire.brokers import Brokers


class Keeping(NamedTuple):
    """How a topic loses records as it should: none are older than `ms` (None: for ever); compacted ones have gaps."""

    ms: int | None
    compacted: bool


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


def keeping(kafka: Mapping[str, str], names: Iterable[str]) -> dict[str, Keeping]:
    """Of each of these topics."""
    return {name: _keeping(config) for name, config in configs(bare(kafka), names).items()}


def _keeping(config: Mapping[str, str]) -> Keeping:
    policies = (config.get("cleanup.policy") or "delete").split(",")
    ms = int(config.get("retention.ms") or -1)
    return Keeping(ms if ms >= 0 and "delete" in policies else None, "compact" in policies)
