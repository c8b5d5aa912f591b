"""Create topics and read their configurations for the jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.registry.settings import PREFIX
from odradek.pipeline.writing import producer_settings

_SECONDS = 30
READERS = frozenset(
    {
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "auto.offset.reset",
        "check.crcs",
        "client.rack",
        "default.api.timeout.ms",
        "enable.auto.commit",
        "exclude.internal.topics",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "isolation.level",
        "key.deserializer",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "max.poll.records",
        "partition.assignment.strategy",
        "session.timeout.ms",
        "value.deserializer",
    }
)
"""Settings that Kafka's consumers have and its producers do not."""


def create(
    kafka: Mapping[str, str], topics: Mapping[str, int], config: Mapping[str, str], may_exist: bool = False
) -> None:
    """Create topics with these numbers of partitions, and the brokers' default replication factor. PipelineError.

    `kafka` are the client's settings, without the prefix. An existing topic is an error unless `may_exist`.
    """
    if not topics:
        return
    admin = client(kafka)  # must live until the responses arrive
    wanted = [NewTopic(topic, partitions, config=dict(config)) for topic, partitions in topics.items()]
    for topic, made in admin.create_topics(wanted, operation_timeout=_SECONDS).items():
        try:
            made.result(_SECONDS)
        except KafkaException as error:
            if not may_exist or error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise PipelineError(f"cannot create the topic {topic}: {error.args[0].str()}") from None


def accepted(kafka: Mapping[str, str], topic: str, config: Mapping[str, str]) -> dict[str, str]:
    """The settings with which the brokers would create the topic, without unknown or refused ones. PipelineError."""
    admin = client(kafka)
    if _would_make(admin, topic, config):
        return dict(config)
    return {name: value for name, value in config.items() if _would_make(admin, topic, {name: value})}


def _would_make(admin: AdminClient, topic: str, config: Mapping[str, str]) -> bool:
    wanted = NewTopic(topic, 1, config=dict(config))
    try:
        admin.create_topics([wanted], request_timeout=_SECONDS, validate_only=True)[topic].result(_SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.INVALID_CONFIG:
            raise PipelineError(f"cannot create the topic {topic}: {error.args[0].str()}") from None
        return False
    return True


def configs(kafka: Mapping[str, str], topics: Iterable[str]) -> dict[str, dict[str, str]]:
    """The configurations of existing topics. Raises PipelineError."""
    admin = client(kafka)
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    found = {}
    for resource, described in admin.describe_configs(resources, request_timeout=_SECONDS).items() if resources else ():
        try:
            found[resource.name] = {name: entry.value for name, entry in described.result(_SECONDS).items()}
        except KafkaException as error:
            raise PipelineError(f"the configuration of {resource.name}: {error.args[0].str()}") from None
    return found


def writers(kafka: Mapping[str, str]) -> dict[str, str]:
    """The settings without those for readers or a schema registry: one file of them may serve all."""
    return {name: value for name, value in kafka.items() if name not in READERS and not name.startswith(PREFIX)}


def client(kafka: Mapping[str, str]) -> AdminClient:
    """A client for administration. OptionError.

    It ignores settings that a writer does not have: they may be for readers, or unknown.
    """
    known = {name: value for name, value in kafka.items() if producer_settings.known(name)}
    settings = producer_settings.checked(producer_settings.librdkafka(known))
    return AdminClient({**settings}, logger=producer_settings.SILENT)
