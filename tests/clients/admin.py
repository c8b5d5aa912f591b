"""Create and describe topics over raw connections."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from odradek.protocol import interbroker

from ..harness.process import wait_until
from ..harness.wire import Wire
from .raw.calls import list_offsets

_counter = itertools.count()


def unique(stem: str) -> str:
    """A topic or group name that no other run has used."""
    return f"{stem}-{next(_counter)}-{uuid.uuid4().hex[:8]}"


def create_topic(broker: Any, stem: str = "t", partitions: int = 1, **config: Any) -> str:
    """Create a topic with a unique name, ready for use; returns the name."""
    name = unique(stem)
    with broker.wire() as wire:
        if not broker.external:
            create_named(wire, name, partitions, **config)
            return name
        # Kafka 4 has a lower bound for segment.bytes, and KRaft answers before its broker leads the partitions.
        config.pop("segment_bytes", None)
        create_named(wire, name, partitions, **config)
        wait_until(lambda: all(leads(wire, name, at) for at in range(partitions)), what=f"{name} is led")
    return name


def leads(wire: Wire, name: str, partition: int) -> bool:
    return list_offsets(wire, name, -1, partition=partition).error_code == 0


def create_named(wire: Wire, name: str, partitions: int = 1, factor: int = 1, **config: Any) -> None:
    """Create topic `name`; AssertionError when the broker refuses. `_` in a config's name stands for `.`."""
    from kafka.protocol.admin import CreateTopicsRequest as Request

    configs = [
        Request.CreatableTopic.CreatableTopicConfig(name=key.replace("_", "."), value=str(value))
        for key, value in config.items()
    ]
    topic = Request.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=factor, assignments=[], configs=configs
    )
    answer = wire.call(Request[4](topics=[topic], timeout_ms=15_000, validate_only=False))
    assert answer.topics[0].error_code == 0, answer


def topic_id(wire: Wire, name: str) -> uuid.UUID:
    """The id of a topic, as Metadata says."""
    from kafka.protocol.metadata import MetadataRequest as Request

    topic = Request.MetadataRequestTopic(name=name)
    answer = wire.call(Request[10](topics=[topic], allow_auto_topic_creation=False))
    assert answer.topics[0].error_code == 0, answer
    return answer.topics[0].topic_id


def alter_broker(wire: Wire, broker: str = "", /, **configs: str | None) -> tuple[int, str | None]:
    """`alter_named`, with `_` in a name for `.`."""
    return alter_named(wire, broker, {name.replace("_", "."): value for name, value in configs.items()})


def alter_named(
    wire: Wire, broker: str, configs: Mapping[str, str | None], validate_only: bool = False
) -> tuple[int, str | None]:
    """IncrementalAlterConfigs for the cluster ("") or one broker: the code and message. None deletes."""
    row = interbroker.message_class("IncrementalAlterConfigsRequest").AlterConfigsResource
    changes = [
        row.AlterableConfig(name=name, config_operation=0 if value is not None else 1, value=value)
        for name, value in configs.items()
    ]
    resource = row(resource_type=4, resource_name=broker, configs=changes)
    request = interbroker.message_class("IncrementalAlterConfigsRequest")
    answer = wire.call(request[0](resources=[resource], validate_only=validate_only)).responses[0]
    return answer.error_code, answer.error_message


@contextmanager
def changed_brokers(broker: Any, **configs: str) -> Iterator[None]:
    """Set these cluster-wide broker configs within the block."""
    with broker.wire() as wire:
        assert alter_broker(wire, **configs) == (0, None)
        try:
            yield
        finally:
            assert alter_broker(wire, **dict.fromkeys(configs)) == (0, None)
