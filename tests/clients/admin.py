"""Topics made and looked at over raw connections."""

from __future__ import annotations

import itertools
import uuid
from typing import Any

from ..harness.process import wait_until
from ..harness.wire import Wire

_counter = itertools.count()


def unique(stem: str) -> str:
    """A topic or group name that no other run has used."""
    return f"{stem}-{next(_counter)}-{uuid.uuid4().hex[:8]}"


def create_topic(broker: Any, stem: str = "t", partitions: int = 1, **config: Any) -> str:
    """Create a topic with a name of its own; returns the name."""
    name = unique(stem)
    with broker.wire() as wire:
        create_named(wire, name, partitions, **config)
        if broker.external:  # ours answers when every worker knows; KRaft's controller answers before the broker does
            wait_until(lambda: _known(wire, name), what=f"{name} is known")
    return name


def _known(wire: Wire, name: str) -> bool:
    from kafka.protocol.metadata import MetadataRequest as Request

    answer = wire.call(Request[4](topics=[Request.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False))
    return answer.topics[0].error_code == 0


def create_named(wire: Wire, name: str, partitions: int = 1, **config: Any) -> None:
    """Create topic `name`; AssertionError when the broker refuses. `_` in a config's name stands for `.`."""
    from kafka.protocol.admin import CreateTopicsRequest as Request

    configs = [
        Request.CreatableTopic.CreatableTopicConfig(name=key.replace("_", "."), value=str(value))
        for key, value in config.items()
    ]
    topic = Request.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=configs
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
