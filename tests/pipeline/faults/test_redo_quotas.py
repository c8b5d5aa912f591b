"""A batch is done again under quotas that were not there before: Apache Kafka throttles its fetches and what it sends.

The stand-in between tells no lies. It sees in the broker's answers for how long no request is wanted (KIP-219).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ...clients.admin import create_topic
from ...harness.apache import Apache
from ...harness.broker import ExternalBroker
from ..stand_in import FETCH, PRODUCE, StandIn
from ..test_throttled import set_quota
from . import stream
from .checker import assert_accounted
from .redone import EFFECTS, ROWS, read, redone, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1"), pytest.mark.timeout(600)]

CLIENT = "throttled"
RATES = {"consumer_byte_rate": 2000, "producer_byte_rate": 500}  # bytes a second, over four seconds


class Throttled:
    """The milliseconds of the answers to each kind of request."""

    def __init__(self) -> None:
        self.ms = Counter[int]()

    def seen(self, request: Any, true: Any) -> Any:
        self.ms[request.API_KEY] += true.throttle_time_ms
        return true


def test_quotas_are_set(spark: SparkSession, tmp_path: Path) -> None:
    """Those of each turn are lower than the ones before."""
    apache, throttled = Apache("3.9.1", tmp_path, quota_window_num=4).start(), Throttled()
    try:
        broker = ExternalBroker(apache.bootstrap)
        source, target = create_topic(broker, partitions=2), create_topic(broker, partitions=2)
        sent = stream.feed(broker, source, range(ROWS), 2)
        with StandIn(apache.bootstrap, {FETCH: throttled.seen, PRODUCE: throttled.seen}) as stand_in:

            def change(effect: str) -> None:
                if EFFECTS.index(effect) == 0:
                    assert not throttled.ms.total()
                set_quota(broker, CLIENT, **{name: rate - EFFECTS.index(effect) for name, rate in RATES.items()})

            def start() -> StreamingQuery:
                rows = read(spark, stand_in, source, **{"kafka.client.id": CLIENT, "odradek.local": "off"})
                return written(rows, stand_in, target, tmp_path, **{"kafka.client.id": CLIENT})

            redone(spark, tmp_path, start, change)
        assert throttled.ms[FETCH] > 0
        assert throttled.ms[PRODUCE] > 0
        assert_accounted(broker, sent, target)
    finally:
        apache.stop()
