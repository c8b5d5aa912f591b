"""The consumer for commands that read: kafka-python's, with a workaround for one of its bugs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka import KafkaConsumer
from kafka.errors import KafkaError

from odradek.broker.errors import OdradekError


def open_consumer(servers: str, config: Mapping[str, Any]) -> KafkaConsumer:
    """A consumer connected to `servers` ("host:port,…"); OdradekError when it cannot be created."""
    try:
        consumer = KafkaConsumer(**{**config, "bootstrap_servers": servers.split(",")})
    except (KafkaError, ValueError, AssertionError) as error:
        raise OdradekError(f"no consumer for {servers}: {error}") from error
    _await_rejoins(consumer)
    return consumer


def _await_rejoins(consumer: KafkaConsumer) -> None:
    """Keep `need_rejoin` true while a rejoin is under way.

    kafka-python 3.0.12: a group leader rejoins because of new metadata and assigns their partitions at once, so that
    no rejoin seems to be needed. If a poll ends before the coordinator has answered, later polls do not continue the
    rejoin: the assignment is never applied, and nothing is ever fetched. A topic's first metadata often come just after
    the first join.
    """
    coordinator = getattr(consumer, "_coordinator", None)
    if coordinator is None:
        return
    wanted = coordinator.need_rejoin
    coordinator.need_rejoin = lambda: coordinator.rejoining or wanted()
