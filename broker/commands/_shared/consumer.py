"""The consumer of the commands that read: kafka-python's, with one of its faults mended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka import KafkaConsumer
from kafka.errors import KafkaError

from odradek.broker.errors import OdradekError


def open_consumer(servers: str, config: Mapping[str, Any]) -> KafkaConsumer:
    """A consumer at `servers` ("host:port,…"); OdradekError when it cannot be had."""
    try:
        consumer = KafkaConsumer(**{**config, "bootstrap_servers": servers.split(",")})
    except (KafkaError, ValueError, AssertionError) as error:
        raise OdradekError(f"no consumer for {servers}: {error}") from error
    _await_rejoins(consumer)
    return consumer


def _await_rejoins(consumer: KafkaConsumer) -> None:
    """Let no poll forget that the group is being joined again.

    kafka-python 3.0.12: a leader joins again because of new metadata, whose partitions it assigns at once, so that
    nothing seems to be wanted any more. A poll that ends before the coordinator has answered is then the last that
    knew of it: the assignment is never taken over, and nothing is ever fetched. A topic's first metadata often come
    just after the first join.
    """
    coordinator = getattr(consumer, "_coordinator", None)
    if coordinator is None:
        return
    wanted = coordinator.need_rejoin
    coordinator.need_rejoin = lambda: coordinator.rejoining or wanted()
