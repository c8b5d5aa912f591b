"""A topic is deleted and recreated under its name: no state of the former one affects the new one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.storage.files import checkpoints

from ..clients.raw.calls import list_offsets
from ..harness.broker import Broker
from ..harness.process import wait_until

pytestmark = pytest.mark.live

WAIT = 30
NAME = "again"
EARLIEST, LATEST = -2, -1


def produce(broker: Broker, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(NAME, f"{number}")
    assert not producer.flush(WAIT)


def asked(broker: Broker, method: str, argument: Any) -> None:
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    [done] = getattr(client, method)([argument]).values()
    done.result(WAIT)


def lines(broker: Broker, name: str) -> dict[tuple[str, int], int]:
    return checkpoints.read_offsets(broker.data_dir, name)


@pytest.mark.parametrize("moved", [False, True], ids=["log end", "log start"])
def test_recreated_topic_keeps_its_records_over_a_kill(fresh_broker: Callable[..., Broker], moved: bool) -> None:
    """Checkpoints of the former topic must not apply: recovery would remove records before its log start."""
    every = {f"log_flush{which}_offset_checkpoint_interval_ms": 2000 for which in ("", "_start")}
    broker = fresh_broker(replica_high_watermark_checkpoint_interval_ms=2000, **every)
    asked(broker, "create_topics", NewTopic(NAME, 1))
    produce(broker, 120)
    if moved:
        asked(broker, "delete_records", TopicPartition(NAME, 0, 100))
    name = checkpoints.LOG_START if moved else checkpoints.HIGH_WATERMARK
    wait_until(lambda: lines(broker, name).get((NAME, 0), 0) >= 100, WAIT, f"{name} says so")
    asked(broker, "delete_topics", NAME)
    asked(broker, "create_topics", NewTopic(NAME, 1))
    assert all(lines(broker, each).get((NAME, 0), 0) == 0 for each in checkpoints.OFFSET_CHECKPOINTS)
    produce(broker, 15)
    broker.restart(kill=True)
    with broker.wire() as wire:
        ends = [list_offsets(wire, NAME, at).offset for at in (EARLIEST, LATEST)]
    assert ends == [0, 15]
