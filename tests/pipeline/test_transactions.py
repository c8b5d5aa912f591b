"""One transaction a task, against a broker and without Spark: what dies, strays or comes twice is seen once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from odradek.pipeline.errors import OptionError, PipelineError
from odradek.pipeline.types import LATEST
from odradek.pipeline.wire.brokers import Brokers
from odradek.pipeline.writing import producer_settings, transactions, writer
from odradek.pipeline.writing.transactions import Mark
from odradek.pipeline.writing.writer import Plan, Sent
from pyspark.sql.types import StructType

from ..clients.admin import create_topic, unique
from ..harness.process import free_port, wait_until
from .topics import WAIT
from .written import committed, written

SCHEMA = StructType().add("topic", "string").add("value", "binary")


def plan(broker: Any, topic: str | None, **kafka: str) -> Plan:
    given = {f"kafka.{name.replace('_', '.')}": value for name, value in kafka.items()}
    options = {"kafka.bootstrap.servers": broker.bootstrap, "odradek.transactional": "true", **given}
    return writer.stream_writer(options | ({"topic": topic} if topic else {}), SCHEMA, False)._plan  # type: ignore[attr-defined]


def rows(*values: str, topic: str = "") -> pa.RecordBatch:
    encoded = pa.array([value.encode() for value in values], pa.binary())
    return pa.record_batch({"topic": [topic] * len(values), "value": encoded})


def seen(broker: Any, topic: str) -> list[str]:
    """What a careful reader has of a topic."""
    return [(record.value or b"").decode() for record in committed(broker, topic)]


def once(told: Plan, mark: Mark, *batches: pa.RecordBatch) -> Sent:
    return writer.write_once(told, iter(batches), mark)


def mark(number: int = 1) -> Mark:
    return Mark(unique("task"), number)


def test_written_again_it_is_there_once(broker: Any) -> None:
    """Under a later number it is another batch's."""
    topic, task = create_topic(broker, partitions=2), mark()
    told = plan(broker, topic)
    assert once(told, task, rows("a", "b"), rows("c")) == Sent({topic: 3}, {topic: 3})
    assert once(told, task, rows("c", "a"), rows("b")) == Sent({topic: 3}, {topic: 3}, before=3)
    assert once(told, task, rows("a", "b")) == Sent({topic: 2}, {topic: 2}, before=2, differing=1)
    assert sorted(seen(broker, topic)) == ["a", "b", "c"]
    once(told, replace(task, number=2), rows("d"))
    assert once(told, task, rows("a", "b", "x")).before == 3
    assert sorted(seen(broker, topic)) == ["a", "b", "c", "d"]


def test_all_rows_are_taken_though_none_is_sent(broker: Any) -> None:
    """Or a stateful query would not keep its state."""
    topic, task = create_topic(broker), mark()
    once(plan(broker, topic), task, rows("a"), rows("b"))
    batches = iter([rows("a"), rows("b")])
    writer.write_once(plan(broker, topic), batches, task)
    assert next(batches, None) is None


def test_topics_of_the_rows_in_any_order(broker: Any) -> None:
    """The note is with each topic, for nobody knows which comes first the next time."""
    topics, task = [create_topic(broker) for _ in range(3)], mark()
    batches = [rows(f"{at}", topic=topic) for at, topic in enumerate(topics)]
    for shift in range(3):
        sent = once(plan(broker, None), task, *batches[shift:], *batches[:shift])
        assert sent == Sent(dict.fromkeys(topics, 1), dict.fromkeys(topics, 1), before=3 * (shift > 0))
    assert [seen(broker, topic) for topic in topics] == [["0"], ["1"], ["2"]]


def test_an_empty_task_asks_nobody() -> None:
    settings = producer_settings.librdkafka({"bootstrap.servers": f"127.0.0.1:{free_port()}"})
    nowhere = Plan("t", settings, True, False, False, transactional=True)
    assert once(nowhere, mark(), rows()) == Sent({"t": 0}, {"t": 0})
    assert once(nowhere, mark()) == Sent({}, {})


# -- former attempts


class Attempt:
    """A task that waits before each of its batches until `step` lets it go on."""

    def __init__(self, told: Plan, task: Mark) -> None:
        self._settings, self._written = told.settings, dict[str, int]()
        self._topic = told.topic or ""
        self._opened = transactions.transaction(told.settings, task, self._written)
        self._one = self._opened.__enter__()

    def send(self, *values: str) -> None:
        """They are on the broker when this returns."""
        self._one.send((self._topic, value.encode(), None, -1, None, 0) for value in values)
        self._written[self._topic] = self._written.get(self._topic, 0) + len(values)
        self._one.finish()

    def end(self) -> None:
        self._opened.__exit__(None, None, None)


def test_a_former_attempt_is_ended(broker: Any) -> None:
    """It is in the middle of its rows when the next one begins, and goes on afterwards."""
    topic, task = create_topic(broker), mark()
    told = plan(broker, topic)
    former = Attempt(told, task)
    former.send("a")
    assert once(told, task, rows("a", "b")).before == 0
    with pytest.raises(PipelineError, match=r"_FENCED.*another attempt of this task"):
        former.end()
    assert seen(broker, topic) == ["a", "b"]


def test_a_former_attempt_sends_no_more(broker: Any) -> None:
    topic, task = create_topic(broker), mark()
    told = plan(broker, topic)
    former = Attempt(told, task)
    former.send("a")
    once(told, task, rows("a", "b"))
    with pytest.raises(PipelineError, match=r"^_FENCED: .*another attempt of this task"):
        former.send("b")
    with pytest.raises(PipelineError):
        former.end()
    assert seen(broker, topic) == ["a", "b"]


def test_a_stray_of_an_earlier_batch(broker: Any) -> None:
    """It ends the attempt that is under way, which is tried again, and writes nothing itself."""
    topic, task = create_topic(broker), mark(1)
    told = plan(broker, topic)
    once(told, task, rows("a"))
    current = Attempt(told, replace(task, number=2))
    current.send("b")
    assert once(told, task, rows("a")).before == 1
    with pytest.raises(PipelineError, match="_FENCED"):
        current.end()
    assert once(told, replace(task, number=2), rows("b")).before == 0
    assert seen(broker, topic) == ["a", "b"]


@pytest.mark.parametrize("committed", [False, True])
def test_a_task_that_is_killed(broker: Any, committed: bool) -> None:
    """With its rows on the broker, or when they are committed; in its own process, which a kill ends."""
    topic, task = create_topic(broker), mark()
    told = plan(broker, topic)
    child = os.fork()
    if not child:
        try:
            attempt = Attempt(told, task)
            attempt.send("a", "b")
            if committed:
                attempt.end()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert len(written(broker, topic)) == 2
    assert once(told, task, rows("a", "b")).before == (2 if committed else 0)
    assert seen(broker, topic) == ["a", "b"]


# -- errors


def test_an_error_in_the_rows_undoes_the_task(broker: Any) -> None:
    """At once, so that readers need not wait for the coordinator to do it."""
    topic, task = create_topic(broker, partitions=2), mark()

    def failing() -> Iterator[pa.RecordBatch]:
        yield rows("a", "b")
        time.sleep(0.1)  # they are on their way
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        writer.write_once(plan(broker, topic), failing(), task)
    once(plan(broker, topic), mark(), rows("c"))
    assert seen(broker, topic) == ["c"]
    once(plan(broker, topic), task, rows("a", "b"))
    assert sorted(seen(broker, topic)) == ["a", "b", "c"]


def test_a_record_that_is_refused_undoes_the_task(broker: Any) -> None:
    topic = create_topic(broker, max_message_bytes=1000)
    with pytest.raises(PipelineError, match=f"^{topic}-0: MSG_SIZE_TOO_LARGE"):
        once(plan(broker, topic), mark(), rows("a"), rows("x" * 5000))
    assert seen(broker, topic) == []


def test_a_task_that_takes_too_long(fresh_broker: Callable[..., Any]) -> None:
    broker = fresh_broker(transaction_abort_timed_out_transaction_cleanup_interval_ms=100)
    topic, task = create_topic(broker), mark()
    once(plan(broker, create_topic(broker)), mark(), rows("x"))  # or the timeout is of making the coordinator, too

    def slow(until: Callable[[], Any]) -> Iterator[pa.RecordBatch]:
        yield rows("a")
        until()
        yield rows("b")

    def aborted() -> None:
        with Brokers({"bootstrap.servers": broker.bootstrap}) as brokers:
            last = lambda: brokers.offsets([(topic, 0)], LATEST, committed=True)[topic, 0]  # noqa: E731
            wait_until(last, WAIT, "the coordinator has aborted it")

    with pytest.raises(PipelineError, match=r"longer than kafka\.transaction\.timeout\.ms=4000"):
        writer.write_once(plan(broker, topic, transaction_timeout_ms="4000"), slow(aborted), task)
    assert seen(broker, topic) == []
    writer.write_once(plan(broker, topic), slow(lambda: time.sleep(5)), task)
    assert seen(broker, topic) == ["a", "b"]


def test_a_timeout_that_brokers_do_not_allow(broker: Any) -> None:
    told = plan(broker, create_topic(broker), transaction_timeout_ms="2000000000")
    with pytest.raises(PipelineError, match=r"INVALID_TRANSACTION_TIMEOUT.*transaction\.max\.timeout\.ms"):
        once(told, mark(), rows("a"))


def test_no_broker_there() -> None:
    """The reason is that of the connection."""
    server = f"127.0.0.1:{free_port()}"
    settings = producer_settings.librdkafka({"bootstrap.servers": server, "transaction.timeout.ms": "3000"})
    with pytest.raises(PipelineError, match=f"^transaction task.*: _TIMED_OUT.*{server}.*refused"):
        once(Plan("t", settings, True, False, False, transactional=True), mark(), rows("a"))


def test_settings_of_the_producer() -> None:
    """No record stands in the queue for longer than its transaction may be open."""
    least = {"bootstrap.servers": "127.0.0.1:1"}
    assert producer_settings.librdkafka(least)["transaction.timeout.ms"] == "900000"
    short = producer_settings.librdkafka(least | {"transaction.timeout.ms": "5000"})
    assert short["delivery.timeout.ms"] == "5000"
    producer_settings.checked(short, transactional=True)
    for wrong in ({"acks": "1"}, {"enable.idempotence": "false"}, {"delivery.timeout.ms": "1000000"}):
        with pytest.raises(OptionError, match=r"^kafka\.\*: "):
            producer_settings.checked(producer_settings.librdkafka(least | wrong), transactional=True)
