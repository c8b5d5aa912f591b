"""What an audit asks the cluster before Spark starts: which topics there are, and for how long they keep records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from odradek.pipeline.errors import PipelineError, UnknownTopic
from odradek.pipeline.options import KAFKA
from odradek.pipeline.wire.brokers import Brokers
from odradek.pipeline.writing.producer_settings import SILENT, librdkafka

_WAIT = 60  # seconds


class Keeping(NamedTuple):
    """How a topic loses records as it should: none are older than `ms` (None: for ever); compacted ones have gaps."""

    ms: int | None
    compacted: bool


def topics(kafka: Mapping[str, str], named: Iterable[str]) -> set[str]:
    """All there are. UnknownTopic where one of those named is none of them."""
    with Brokers(_bare(kafka)) as brokers:
        known = set(brokers.topics())
    missing = sorted(set(named) - known)
    if missing:
        raise UnknownTopic(f"there is no topic {', '.join(missing)} (or this user may not see it)")
    return known


def keeping(kafka: Mapping[str, str], names: Iterable[str]) -> dict[str, Keeping]:
    """Of each of these topics."""
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    if not asked:
        return {}
    client = AdminClient({**librdkafka(_bare(kafka))}, logger=SILENT)  # must live until it has answered
    try:
        answers = {one.name: future.result(_WAIT) for one, future in client.describe_configs(asked).items()}
    except KafkaException as error:
        raise PipelineError(f"the configurations of the topics: {error.args[0].str()}") from None
    return {name: _keeping({key: entry.value for key, entry in found.items()}) for name, found in answers.items()}


def _keeping(config: Mapping[str, str | None]) -> Keeping:
    policies = (config.get("cleanup.policy") or "delete").split(",")
    ms = int(config.get("retention.ms") or -1)
    return Keeping(ms if ms >= 0 and "delete" in policies else None, "compact" in policies)


def _bare(kafka: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix(KAFKA): value for name, value in kafka.items()}
