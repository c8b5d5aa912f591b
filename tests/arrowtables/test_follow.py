"""A topic that is followed while it is written, grows, and goes."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from odradek import arrow
from odradek.arrowtables import client
from odradek.arrowtables.follow import PATIENCE, Followed
from odradek.pipeline.reading.offsets import All
from odradek.pipeline.reading.read_options import ReadOptions
from odradek.pipeline.wire.brokers import Brokers

from ..clients.admin import create_named, create_topic, unique
from ..clients.transactions import Confluent
from ..harness.process import die_with_parent, readable, wait_until
from ..pipeline.local import Local
from ..pipeline.test_brokers import delete_records_before
from ..pipeline.test_segments import delete_topic

pytestmark = pytest.mark.live

FOLLOWING = """
import sys
from odradek import arrow
for batch in arrow.follow(sys.argv[1], "earliest", bootstrap_servers=sys.argv[2], columns=["value"]):
    print(batch["value"].to_pylist(), flush=True)
"""


def values(batches: Iterator[pa.RecordBatch], count: int) -> list[bytes]:
    """The next `count` values, or a few more."""
    found: list[bytes] = []
    while len(found) < count:
        found += next(batches)["value"].to_pylist()
    return found


def follow(broker: Any, topic: str, start: Any = "latest", **more: Any) -> Any:
    return closing(arrow.follow(topic, start, bootstrap_servers=broker.bootstrap, interval=0.02, **more))


@pytest.mark.smoke
def test_records_that_are_written_later_are_followed(broker: Any) -> None:
    topic = Local(broker)
    topic.put([[b"a", b"b"]])
    with follow(broker, topic.name, "earliest") as batches:
        assert values(batches, 2) == [b"a", b"b"]
        topic.put([[b"c"], [b"d"]])
        assert values(batches, 2) == [b"c", b"d"]


def test_follower_begins_at_an_offset(broker: Any) -> None:
    topic = Local(broker)
    topic.put([[b"a", b"b", b"c"]])
    with follow(broker, topic.name, 1) as batches:
        assert values(batches, 2) == [b"b", b"c"]


def test_follower_begins_at_the_end_of_the_log_by_default(broker: Any) -> None:
    """Records are written until it has one: it began before that one, and behind the first."""
    topic = Local(broker)
    topic.put([[b"old"]])
    found: list[bytes] = []
    with follow(broker, topic.name) as batches:
        thread = threading.Thread(target=lambda: found.extend(values(batches, 1)))
        thread.start()
        wait_until(lambda: topic.put([[b"new"]]) or found, 60, "the follower has a record")
        thread.join()
    assert set(found) == {b"new"}


def test_records_of_an_open_transaction_wait(broker: Any) -> None:
    name = create_topic(broker)
    producer = Confluent(broker, unique("id"))
    producer.begin()
    producer.send(name, b"one")
    producer.flush()
    with follow(broker, name, {0: 1}, isolation="read_uncommitted") as dirty, follow(broker, name, 0) as batches:
        producer.send(name, b"two")
        producer.flush()
        assert values(dirty, 1) == [b"two"]
        producer.commit()
        assert values(batches, 2) == [b"one", b"two"]
    producer.close()


def test_start_behind_an_open_transaction_waits_for_its_end(broker: Any) -> None:
    """The offset exists, but the last stable offset is before it."""
    name = create_topic(broker)
    producer = Confluent(broker, unique("id"))
    producer.begin()
    producer.send(name, b"one")
    producer.send(name, b"two")
    producer.flush()
    kafka = client.settings(broker.bootstrap, {}) | {"isolation.level": "read_committed"}
    options = ReadOptions.parse({f"kafka.{key}": value for key, value in kafka.items()} | {"subscribe": name}, False)
    with Brokers(kafka) as brokers:
        followed = Followed(replace(options, start=All(1)), ("value",), {})
        followed.begin(brokers)
        assert [followed.new(brokers) for _ in range(2 * PATIENCE)] == [[]] * 2 * PATIENCE
        producer.commit()
        found = wait_until(lambda: followed.new(brokers), what="the transaction is decided")
    assert [(one.start, one.end) for one in found] == [(1, 3)]
    producer.close()


def test_new_partitions_are_followed_from_their_start(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.arrowtables.follow.LISTED", 0)
    topic = Local(broker)
    topic.put([[b"a"]])
    with follow(broker, topic.name, "earliest") as batches:
        assert values(batches, 1) == [b"a"]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_partitions([NewPartitions(topic.name, 2)])[topic.name].result(30)
        written = pa.table({"value": [b"b"], "partition": [1]})
        assert arrow.write(written, topic.name, bootstrap_servers=broker.bootstrap) == 1
        batch = next(batches)
    assert batch.select(["partition", "offset", "value"]).to_pylist() == [{"partition": 1, "offset": 0, "value": b"b"}]


def test_start_that_does_not_exist_is_an_error(broker: Any) -> None:
    topic = Local(broker)
    topic.put([[b"a", b"b", b"c"]])
    delete_records_before(broker, topic.name, 2)
    for at in (1, 4):
        told = f"^{topic.name}-0: offset {at} does not exist: the log has 2 to 2$"
        with follow(broker, topic.name, at) as batches, pytest.raises(arrow.DataLoss, match=told):
            next(batches)


@pytest.mark.parametrize("recreated", [False, True])
def test_topic_that_goes_while_it_is_followed_is_an_error(broker: Any, recreated: bool) -> None:
    topic = Local(broker)
    topic.put([[b"a"], [b"b"]])
    kind, told = (arrow.DataLoss, "was recreated") if recreated else (arrow.UnknownTopic, "no such topic")
    with follow(broker, topic.name, "earliest") as batches:
        assert values(batches, 2) == [b"a", b"b"]
        delete_topic(topic)
        if recreated:
            with broker.wire() as wire:
                create_named(wire, topic.name)
            topic.put([[b"other"]])
        with pytest.raises(kind, match=told):
            next(batches)


def test_ctrl_c_ends_a_follower_that_waits(broker: Any) -> None:
    topic = Local(broker)
    topic.put([[b"a"]])
    command = [sys.executable, "-c", FOLLOWING, topic.name, broker.bootstrap]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent
    ) as process:
        assert process.stdout is not None
        assert readable(process.stdout, 60)
        assert process.stdout.readline() == "[b'a']\n"
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert told.splitlines()[-1] == "KeyboardInterrupt"
