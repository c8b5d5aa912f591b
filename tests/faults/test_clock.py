"""A wall clock that jumps by an hour and back, in one process or in all: nothing expires, stops or is lost."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from ..clients.admin import create_topic
from ..clients.raw.batches import batch, parse
from ..clients.raw.calls import fetch, list_offsets, produce, producer_id
from ..harness.process import wait_until
from .power import SEAM

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


@pytest.mark.timeout(120)
@pytest.mark.parametrize("whose", ["one worker's", "the coordinator's", "everybody's"])
def test_jumps(skewed: Any, whose: str) -> None:
    from confluent_kafka import Consumer, Producer

    broker, topic = skewed, create_topic(skewed, "t")
    roles = {"one worker's": ["worker"], "the coordinator's": ["coordinator"]}
    chosen = roles.get(whose, ["worker", "coordinator", "janitor", "controller", "acceptor"])
    pids = [pid for role in chosen for pid in broker.pids(role)][: 1 if whose == "one worker's" else None]
    # A session that a busy machine keeps, and a jump does not.
    group = {"group.id": "g", "session.timeout.ms": 30_000, "auto.offset.reset": "earliest", "log_level": 0}
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
            read.append(int(message.value()))
        return read[-1] if read else -1

    try:
        for number, skew in enumerate((0, HOUR_MS, 0, -HOUR_MS, 0, HOUR_MS)):
            broker.jump(pids, skew)
            exchange(2 * number)
            time.sleep(1)  # time for a heartbeat and a look of the janitor's
            exchange(2 * number + 1)
    finally:
        consumer.close() if not lost else None
    assert lost in ([], ["revoked"]), "the member was put out"  # closing revokes
    assert read == list(range(12))
    assert "Traceback" not in broker.log


@pytest.mark.timeout(60)
def test_timestamps_and_retention(skewed: Any) -> None:
    """What is stamped in a wrong hour keeps that stamp; the order is that of offsets."""
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
        skewed.jump(skewed.pids("janitor"), HOUR_MS)  # younger than two hours by that clock too
        time.sleep(1)
        assert len(parse(fetch(wire, topic, 0).records)) == 4
