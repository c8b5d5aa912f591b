"""Quotas (KIP-219): a throttled response comes at once, and the client must delay its next request."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.pipeline.types import LATEST
from odradek.pipeline.wire import connection, retries
from odradek.pipeline.wire.brokers import Brokers
from odradek.pipeline.wire.connection import Connection

from ..clients.admin import create_topic
from ..harness.apache import Apache
from ..harness.broker import ExternalBroker
from ..harness.played_time import PlayedTime
from .reads import SHORT, read
from .stand_in import CONFIGS, FETCH, LIST_OFFSETS, METADATA, Lie, StandIn
from .test_fetching import PIECES, fill, offsets, reading

pytestmark = pytest.mark.live

THROTTLE_MS = 120


class Quota:
    """Throttles a share of the responses, and records requests that come before the throttle time has passed."""

    def __init__(self, chance: float, whole: bool) -> None:
        """`whole`: throttled responses keep their content; otherwise they have no topics, as fetch responses."""
        self._rnd, self._chance, self._whole = random.Random(7), chance, whole
        self.until = 0.0
        self.early: list[float] = []  # the seconds by which requests came too early
        self.throttled = 0

    def __call__(self, _: Any, true: Any) -> Any:
        now = time.monotonic()
        if now < self.until:
            self.early.append(self.until - now)
        if self._rnd.random() < self._chance:
            true.throttle_time_ms = THROTTLE_MS
            if not self._whole:
                true.responses = []
            self.until, self.throttled = now + THROTTLE_MS / 1000, self.throttled + 1
        return true


def test_throttled_fetch_is_retried_after_the_throttle_time(broker: Any) -> None:
    """In all, throttling lasts longer than the timeout without progress."""
    topic, quota = create_topic(broker), Quota(0.6, whole=False)
    fill(broker, topic, 100)
    short = {name.removeprefix("kafka."): value for name, value in SHORT.items()}
    with StandIn(broker.bootstrap, {FETCH: quota}) as stand_in:
        found = list(reading(stand_in, topic, 0, 300, **PIECES, **short))
    assert offsets(found, 0, 300) == list(range(300))
    assert quota.throttled * THROTTLE_MS > 700
    assert not quota.early


def test_throttling_beyond_the_api_timeout_is_no_failure(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Throttled responses for longer than default.api.timeout.ms; then an empty one, then all data."""
    clock, topic = PlayedTime(), create_topic(broker)
    fill(broker, topic, 3)
    for module in (retries, connection):
        monkeypatch.setattr(module, "time", clock)
    left = [12]

    def lie(_: Any, true: Any) -> Any:
        left[0] -= 1
        if left[0] > 0:
            true.responses, true.throttle_time_ms = [], 10_000
        elif left[0] == 0:
            true.responses[0].partitions[0].records = None
        return true

    with StandIn(broker.bootstrap, {FETCH: lie}) as stand_in:
        assert len(read(stand_in, topic, odradek_local="off")) == 9
    assert left[0] < 0
    assert clock.now > 100


@pytest.mark.parametrize("key", [METADATA, LIST_OFFSETS, CONFIGS])
def test_throttle_time_of_any_api_delays_the_next_request(broker: Any, key: int) -> None:
    """Requests of all APIs wait, as a client has one quota."""
    topic, quota = create_topic(broker), Quota(1, whole=True)
    fill(broker, topic, 1)
    lies: dict[int, Lie] = {other: _watching(quota) for other in (METADATA, LIST_OFFSETS, CONFIGS) if other != key}
    with (
        StandIn(broker.bootstrap, {**lies, key: quota}) as stand_in,
        Brokers({"bootstrap.servers": stand_in.bootstrap}) as brokers,
    ):
        for _ in range(3):
            assert brokers.offsets([(topic, 0)], LATEST) == {(topic, 0): 3}
            assert not brokers.is_compacted(topic)
            brokers.drop(brokers.informant)  # the quota also holds for a new connection
    assert quota.throttled >= 3
    assert not quota.early


def _watching(quota: Quota) -> Callable[[Any, Any], Any]:
    def lie(_: Any, true: Any) -> Any:
        now = time.monotonic()
        if now < quota.until:
            quota.early.append(quota.until - now)
        return true

    return lie


@pytest.mark.needs("java-3.9.1")
def test_records_are_read_under_a_consumer_quota_of_apache_kafka(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 KB/s, measured over eleven seconds, and one megabyte to read."""
    heard: list[int] = []
    heed = Connection._heed
    monkeypatch.setattr(Connection, "_heed", lambda self, ms: (heard.append(ms), heed(self, ms))[1])
    apache = Apache("3.9.1", tmp_path).start()
    try:
        broker = ExternalBroker(apache.bootstrap)
        set_quota(broker, None, consumer_byte_rate=60_000)
        topic = create_topic(broker)
        fill(broker, topic, 100, records=100)
        rows = read(broker, topic, odradek_local="off")
        assert [one.offset for one in rows] == list(range(10_000))
        assert max(heard) > 0
    finally:
        apache.stop()


def set_quota(broker: Any, client_id: str | None, **rates: int) -> None:
    """Set rates in bytes per second for a client id; with None the default of all client ids."""
    from kafka.protocol.admin import AlterClientQuotasRequest as Request

    entity = Request.EntryData.EntityData(entity_type="client-id", entity_name=client_id)
    ops = [Request.EntryData.OpData(key=key, value=float(rate), remove=False) for key, rate in rates.items()]
    with broker.wire() as wire:
        answer = wire.call(Request[1](entries=[Request.EntryData(entity=[entity], ops=ops)], validate_only=False))
    assert [one.error_code for one in answer.entries] == [0]
