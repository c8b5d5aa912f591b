"""A running broker compacts `__consumer_offsets` during commits of a group, and loses no offset."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from odradek.storage.files import checkpoints
from odradek.storage.tools import check
from tests.harness.broker import Broker
from tests.harness.process import wait_until

pytestmark = pytest.mark.live


def test_committed_offsets_survive_compaction_and_a_restart(fresh_broker: Callable[..., Broker]) -> None:
    from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

    broker = fresh_broker(
        offsets_topic_num_partitions=1, offsets_topic_segment_bytes=5000, log_cleaner_backoff_ms=50,
        log_cleaner_min_cleanable_ratio=0.01,
    )  # fmt: skip
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    producer.send("t", b"x").get(30)
    producer.close()
    partitions = [TopicPartition("t", n) for n in range(1)]
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id="g", enable_auto_commit=False)
    consumer.assign(partitions)
    for n in range(1500):
        consumer.commit({partition: OffsetAndMetadata(n, f"m{n}", -1) for partition in partitions})
    wait_until(lambda: _cleaned(broker) > 1000, 60, "the log is compacted")
    # All but the active segment, because the cleaner must not remove segments during the check.
    wait_until(lambda: _cleaned(broker) == _active(broker), 60, "the last commits are compacted as well")
    assert _log_size(broker) < 20_000
    assert [str(fault) for fault in check.check(broker.data_dir / "__consumer_offsets-0", deep=True)] == []
    consumer.close()
    for kill in (False, True):
        broker.restart(kill=kill)
        again = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id="g", enable_auto_commit=False)
        assert [again.committed(partition, metadata=True) for partition in partitions] == [
            OffsetAndMetadata(1499, "m1499", -1)
        ]
        again.close()
    assert re.search(r"__consumer_offsets-0: compacted up to offset", broker.log)
    broker.stop()
    assert [str(fault) for fault in check.check(broker.data_dir, deep=True)] == []


def _log_size(broker: Broker) -> float:
    """Bytes in all segments; not available while the cleaner removes one."""
    try:
        return sum(path.stat().st_size for path in (broker.data_dir / "__consumer_offsets-0").glob("*.log"))
    except FileNotFoundError:
        return float("inf")


def _active(broker: Broker) -> int:
    """The first offset of the last segment."""
    return max(int(path.stem) for path in (broker.data_dir / "__consumer_offsets-0").glob("*.log"))


def _cleaned(broker: Broker) -> int:
    offsets = checkpoints.read_offsets(broker.data_dir, checkpoints.CLEANER)
    return offsets.get(("__consumer_offsets", 0), 0)
