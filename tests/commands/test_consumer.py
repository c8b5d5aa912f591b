"""The consumer of all commands that read."""

from __future__ import annotations

import time
from typing import Any

import pytest

from odradek.broker.commands._shared.consumer import open_consumer
from odradek.broker.errors import OdradekError

from .conftest import Run

pytestmark = pytest.mark.live


@pytest.mark.parametrize("poll_ms", [1, 2, 4, 8, 16])
def test_short_polls_reach_the_assignment(broker: Any, run: Run, topic: str, poll_ms: int) -> None:
    """The consumer joins twice, first without the topic's partitions; any poll may end between the two."""
    run("console-producer", "--topic", topic, stdin=b"one\n")
    consumer = open_consumer(broker.bootstrap, {"group_id": topic, "auto_offset_reset": "earliest"})
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 60
        found: dict[Any, list[Any]] = {}
        while not found and time.monotonic() < deadline:
            found = consumer.poll(poll_ms)
        assert [record.value for records in found.values() for record in records] == [b"one"]
    finally:
        consumer.close()


def test_missing_broker_is_an_error() -> None:
    with pytest.raises(OdradekError, match=r"no consumer for 127\.0\.0\.1:1: "):
        open_consumer("127.0.0.1:1", {"bootstrap_timeout_ms": 500})
