"""The wall clock jumps by an hour and back, in one process or in all: nothing expires, stops or is lost."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from ..clients.admin import create_topic
from ..clients.raw.batches import batch, parse
from ..clients.raw.calls import fetch, list_offsets, produce, producer_id
from ..harness.process import wait_until
from .power import SEAM

pytestmark = pytest.mark.live

HOUR_MS = 3_600_000


@pytest.fixture
def skewed(fresh_broker: Any, tmp_path: Path) -> Any:
    """`skewed.jump(pids, milliseconds)` moves the clocks of those processes."""
    clock = tmp_path / "clock"
    broker = fresh_broker(start=False, log_retention_ms=2 * HOUR_MS, log_retention_check_interval_ms=200)
    broker.env |= {"PYTHONPATH": str(SEAM), "ODRADEK_TEST_CLOCK": str(clock)}

    def jump(pids: list[int], milliseconds: int) -> None:
        beside = clock.with_suffix(".new")
        beside.write_text("".join(f"{pid} {milliseconds}\n" for pid in pids))
        beside.rename(clock)

    broker.start()
    broker.jump = jump
    return broker


def await_retention_rounds(broker: Any, old: str) -> None:
    """Wait for two retention rounds, in which the janitor has checked every log."""
    with broker.wire() as wire:
        for _ in range(2):
            last = produce(wire, old, batch([b"x"], timestamp=1)).base_offset
            begins_behind = lambda last=last: list_offsets(wire, old, -2).offset > last  # noqa: E731
            wait_until(begins_behind, 30, "retention")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("whose", ["one worker's", "the coordinator's", "every process's"])
def test_clients_continue_when_a_clock_jumps(skewed: Any, whose: str) -> None:
    from confluent_kafka import Consumer, Producer

    broker, topic = skewed, create_topic(skewed, "t")
    roles = {"one worker's": ["worker"], "the coordinator's": ["coordinator"]}
    chosen = roles.get(whose, ["worker", "coordinator", "janitor", "controller", "acceptor"])
    pids = [pid for role in chosen for pid in broker.pids(role)][: 1 if whose == "one worker's" else None]
    # Long enough for a busy machine, and shorter than the jump.
    group = {"group.id": "g", "session.timeout.ms": 30_000, "auto.offset.reset": "earliest", "log_level": 0}
    group |= {"heartbeat.interval.ms": 300, "statistics.interval.ms": 100, "stats_cb": lambda text: told.append(text)}
    told: list[str] = []
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "enable.auto.commit": False, **group})
    lost: list[Any] = []
    consumer.subscribe([topic], on_revoke=lambda *_: lost.append("revoked"), on_lost=lambda *_: lost.append("lost"))
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 0})
    read: list[int] = []

    def exchange(number: int) -> None:
        producer.produce(topic, b"%d" % number)
        assert producer.flush(60) == 0
        wait_until(lambda: take() == number, 60, f"record {number} is read")
        consumer.commit(asynchronous=False)

    def take() -> int:
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            read.append(int(message.value() or b""))
        return read[-1] if read else -1

    def heartbeats() -> int:
        brokers = json.loads(told[-1])["brokers"].values() if told else []
        return sum(one["req"].get("Heartbeat", 0) for one in brokers)

    old = create_topic(broker, "old")
    try:
        for number, skew in enumerate((0, HOUR_MS, 0, -HOUR_MS, 0, HOUR_MS)):
            broker.jump(pids, skew)
            exchange(2 * number)
            goal = heartbeats() + 2  # the second is sent once the first is answered
            wait_until(lambda goal=goal: take() >= 0 and heartbeats() >= goal, 60, "a heartbeat")  # type: ignore[misc]  # a default in a lambda
            await_retention_rounds(broker, old)
            exchange(2 * number + 1)
    finally:
        consumer.close() if not lost else None
    assert lost in ([], ["revoked"]), "the member was removed from its group"  # closing revokes
    assert read == list(range(12))
    assert "Traceback" not in broker.log


@pytest.mark.timeout(60)
def test_records_keep_order_and_age_when_clocks_jump(skewed: Any) -> None:
    """A record keeps the wrong timestamp, and records stay in the order of their offsets."""
    topic = create_topic(skewed, "t", message_timestamp_type="LogAppendTime")
    workers = skewed.pids("worker")
    with skewed.wire() as wire:
        identity, epoch = producer_id(wire)
        for number, skew in enumerate((0, HOUR_MS, -HOUR_MS, 0)):
            skewed.jump(workers, skew)
            data = batch([b"%d" % number], producer=identity, epoch=epoch, sequence=number)
            assert produce(wire, topic, data).base_offset == number
        found = parse(fetch(wire, topic, 0).records)
        assert [row.value for row in found] == [b"0", b"1", b"2", b"3"]
        now = time.time() * 1000
        assert abs(found[1].timestamp - now - HOUR_MS) < 60_000
        assert list_offsets(wire, topic, int(now + HOUR_MS / 2)).offset == 1
        old = create_topic(skewed, "old")
        skewed.jump(skewed.pids("janitor"), HOUR_MS)  # by that clock, too, the records are younger than two hours
        await_retention_rounds(skewed, old)
        assert len(parse(fetch(wire, topic, 0).records)) == 4
