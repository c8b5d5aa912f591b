"""One transaction for each task, without Spark: rows are seen once after deaths, stray tasks and repetitions."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from pyspark.sql.types import StructType

from odradek.pipeline.errors import OptionError, PipelineError
from odradek.pipeline.types import LATEST
from odradek.pipeline.wire.brokers import Brokers
from odradek.pipeline.writing import producer_settings, transactions, units, writer
from odradek.pipeline.writing.transactions import UnitMark
from odradek.pipeline.writing.writer import Plan, Sent

from ..clients.admin import create_topic, unique
from ..harness.apache import Apache
from ..harness.broker import ExternalBroker
from ..harness.process import free_port, wait_until
from .stand_in import OFFSET_FETCH, StandIn
from .topics import WAIT
from .written import committed, written

pytestmark = pytest.mark.live

SCHEMA = StructType().add("topic", "string").add("value", "binary")


def plan(broker: Any, topic: str | None, **kafka: str) -> Plan:
    given = {f"kafka.{name.replace('_', '.')}": value for name, value in kafka.items()}
    options = {"kafka.bootstrap.servers": broker.bootstrap, "odradek.transactional": "true", **given}
    return writer.stream_writer(options | ({"topic": topic} if topic else {}), SCHEMA, False)._plan  # type: ignore[attr-defined]  # our writer has `_plan`


def rows(*values: str, topic: str = "") -> pa.RecordBatch:
    encoded = pa.array([value.encode() for value in values], pa.binary())
    return pa.record_batch({"topic": [topic] * len(values), "value": encoded})


def seen(broker: Any, topic: str) -> list[str]:
    """The values that a reader with read_committed gets from a topic."""
    return [(record.value or b"").decode() for record in committed(broker, topic)]


def once(told: Plan, mark: UnitMark, *batches: pa.RecordBatch) -> Sent:
    return writer.write_once(told, iter(batches), mark)


def mark(number: int = 1) -> UnitMark:
    return UnitMark(unique("task"), number)


def test_rows_of_a_repeated_task_are_written_once(broker: Any) -> None:
    """With a higher batch number the rows belong to another batch."""
    topic, task = create_topic(broker, partitions=2), mark()
    told = plan(broker, topic)
    assert once(told, task, rows("a", "b"), rows("c")) == Sent({topic: 3}, {topic: 3})
    assert once(told, task, rows("c", "a"), rows("b")) == Sent({topic: 3}, {topic: 3}, before=3)
    assert once(told, task, rows("a", "b")) == Sent({topic: 2}, {topic: 2}, before=2, differing=1)
    assert sorted(seen(broker, topic)) == ["a", "b", "c"]
    once(told, replace(task, number=2), rows("d"))
    assert sorted(seen(broker, topic)) == ["a", "b", "c", "d"]


def test_repeated_task_with_another_row_count_is_logged(broker: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The driver logs it, once for all tasks of the batch."""
    topic, tasks = create_topic(broker), [mark(), mark()]
    told, stream = plan(broker, topic), writer.StreamWriter(plan(broker, topic))
    for again, rest in ((False, rows("b")), (True, rows("c", "d"))):
        stream.commit([once(told, task, rows("a"), rest) for task in tasks], 7)
        warned = [text for text in caplog.messages if "another number of rows" in text]
        assert warned == [text for text in warned if text.startswith("written in batch 7: 2 tasks had another number")]
        assert len(warned) == again


def test_repeated_task_consumes_all_its_rows(broker: Any) -> None:
    """Otherwise a stateful query would not keep its state."""
    topic, task = create_topic(broker), mark()
    once(plan(broker, topic), task, rows("a"), rows("b"))
    batches = iter([rows("a"), rows("b")])
    writer.write_once(plan(broker, topic), batches, task)
    assert next(batches, None) is None


def test_repeated_task_may_have_its_topics_in_another_order(broker: Any) -> None:
    """The transaction's note is kept for each topic, because any topic may come first in a repetition."""
    topics, task = [create_topic(broker) for _ in range(3)], mark()
    batches = [rows(f"{at}", topic=topic) for at, topic in enumerate(topics)]
    for shift in range(3):
        sent = once(plan(broker, None), task, *batches[shift:], *batches[:shift])
        assert sent == Sent(dict.fromkeys(topics, 1), dict.fromkeys(topics, 1), before=3 * (shift > 0))
    assert [seen(broker, topic) for topic in topics] == [["0"], ["1"], ["2"]]


def test_first_write_counts_if_repeated_rows_have_other_topics(broker: Any) -> None:
    """Such as a dead letter: a joined table may have changed in between."""
    first, other, third = (create_topic(broker) for _ in range(3))
    task, told = mark(), plan(broker, None)
    once(told, task, rows("a", topic=first), rows("b", topic=other))
    assert once(told, task, rows("a", topic=third), rows("b", topic=other)).before == 2
    assert once(told, task, rows("a", "b", topic=third)).before == 2
    assert [seen(broker, topic) for topic in (first, other, third)] == [["a"], ["b"], []]
    once(told, replace(task, number=2), rows("c", topic=third))
    assert once(told, replace(task, number=2), rows("c", topic=first)).before == 1
    assert [seen(broker, topic) for topic in (first, other, third)] == [["a"], ["b"], ["c"]]


def test_empty_task_sends_no_request() -> None:
    settings = producer_settings.librdkafka({"bootstrap.servers": f"127.0.0.1:{free_port()}"})
    nowhere = Plan("t", settings, {}, True, False, False, transactional=True)
    assert once(nowhere, mark(), rows()) == Sent({"t": 0}, {"t": 0})
    assert once(nowhere, mark()) == Sent({}, {})


# -- earlier attempts


class Attempt:
    """An open attempt of a task: the test sends rows and ends the attempt step by step."""

    def __init__(self, told: Plan, task: UnitMark) -> None:
        self._settings, self._written = told.settings, dict[str, int]()
        self._topic = told.topic or ""
        self._opened = transactions.transaction(told.settings, told.kafka, task, self._written)
        self._one = self._opened.__enter__()

    def send(self, *values: str) -> None:
        """When this returns, the rows are on the broker."""
        self._one.send((self._topic, value.encode(), None, -1, None, 0) for value in values)
        self._written[self._topic] = self._written.get(self._topic, 0) + len(values)
        self._one.finish()

    def end(self) -> None:
        self._opened.__exit__(None, None, None)


def test_new_attempt_fences_an_open_attempt_of_the_task(broker: Any) -> None:
    """The earlier attempt has written some rows when the next one begins, and continues afterwards."""
    topic, task = create_topic(broker), mark()
    told = plan(broker, topic)
    former = Attempt(told, task)
    former.send("a")
    assert once(told, task, rows("a", "b")).before == 0
    with pytest.raises(PipelineError, match=r"_FENCED.*another attempt of this task"):
        former.end()
    assert seen(broker, topic) == ["a", "b"]


def test_fenced_attempt_writes_no_more_rows(broker: Any) -> None:
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


def test_stray_attempt_of_an_earlier_batch_writes_nothing(broker: Any) -> None:
    """The stray attempt fences the current one, which is then retried."""
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


def test_reset_checkpoint_is_an_error(broker: Any) -> None:
    """A batch with a lower number has other rows than the written one: they must not count as written."""
    topic, task = create_topic(broker), mark(7)
    told = plan(broker, topic)
    once(told, task, rows("a"))
    with pytest.raises(
        PipelineError, match="has already written batch 6, and now gets batch 5: a checkpoint was reset"
    ):
        once(told, replace(task, number=6), rows("b"))
    assert seen(broker, topic) == ["a"]


@pytest.mark.parametrize("committed", [False, True])
def test_killed_task_is_repeated_with_each_row_once(broker: Any, committed: bool) -> None:
    """The kill comes with the rows on the broker or after the commit; the task has its own process."""
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


@pytest.mark.parametrize(
    "code", [14, 15, 16]
)  # COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
def test_offset_fetch_is_retried_while_the_coordinator_moves(broker: Any, code: int) -> None:
    """The coordinator refuses OffsetFetch three times. A child process runs the task: librdkafka crashed here."""
    topic, task, left = create_topic(broker), mark(), [3]
    once(plan(broker, topic), task, rows("a"))

    def lie(_: Any, true: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            for row in (true, *(true.groups or ())):
                row.topics, row.error_code = [], code
        return true

    with StandIn(broker.bootstrap, {OFFSET_FETCH: lie}) as stand_in:
        child = os.fork()
        if not child:
            gc.disable()  # the fork has none of librdkafka's threads, so producers must not be closed
            os._exit(once(plan(stand_in, topic), task, rows("a")).before != 1)
        assert os.waitpid(child, 0)[1] == 0
    assert left[0] < 0
    assert seen(broker, topic) == ["a"]


# -- units: a batch that a column divides into transactions


def batch_plan(broker: Any, topic: str | None = None, name: str = "", batch: int = 0) -> Plan:
    """The plan of one attempt to write the batch; each call makes another attempt."""
    options = {"kafka.bootstrap.servers": broker.bootstrap, "odradek.transactional": "true"}
    named = {"odradek.transactional.id": name or unique("batch"), "odradek.transactional.by": "unit"}
    options |= named | {"odradek.transactional.batch": str(batch)} | ({"topic": topic} if topic else {})
    schema = StructType().add("topic", "string").add("value", "binary").add("unit", "integer")
    return writer.writer(options, schema, False)._plan  # type: ignore[attr-defined]  # our writer has it


def cut(values: str, topic: str = "", units: int = 3) -> pa.RecordBatch:
    """A row for each letter; its place in the alphabet determines its unit."""
    column = pa.array([ord(value) % units for value in values], pa.int32())
    return rows(*values, topic=topic).append_column("unit", column)


def spark(told: Plan, *tasks: pa.RecordBatch) -> list[Sent]:
    """Run the tasks one after the other, as Spark does."""
    return [writer.write_units(told, [task], at) for at, task in enumerate(tasks)]


ALL = "abcdef"
CUTTINGS = [("adbecf",), ("ad", "becf"), ("be", "ad", "cf"), ("", "cf", "beda", "", "")]


@pytest.mark.parametrize("first", range(len(CUTTINGS)))
@pytest.mark.parametrize("done", [1, pytest.param(5, marks=pytest.mark.long)])
def test_batch_repeated_with_other_tasks_is_written_once(broker: Any, first: int, done: int) -> None:
    """Cores and shuffle sizes change the tasks; the driver died after `done` tasks had committed, or all of them."""
    topic, name = create_topic(broker), unique("batch")
    spark(batch_plan(broker, topic, name), *map(cut, CUTTINGS[first][:done]))
    for again in CUTTINGS:
        spark(batch_plan(broker, topic, name), *(cut(task) for task in again))
        assert sorted(seen(broker, topic)) == list(ALL)


def test_batch_repeated_with_other_topics_is_refused(broker: Any) -> None:
    """Equal rows with other topics count as other rows: no source has them."""
    one, two = create_topic(broker), create_topic(broker)
    name = unique("batch")
    spark(batch_plan(broker, None, name), cut(ALL, one))
    with pytest.raises(PipelineError, match=r"unit-\d was written before with other rows \(2 then, 2 now\)"):
        spark(batch_plan(broker, None, name), cut(ALL, two))
    assert [sorted(seen(broker, topic)) for topic in (one, two)] == [list(ALL), []]


@pytest.mark.parametrize(("again", "told"), [("adg", "2 then, 3 now"), ("ag", "2 then, 2 now"), ("a", "2 then, 1 now")])
def test_batch_repeated_with_other_rows_is_refused(broker: Any, again: str, told: str) -> None:
    topic, name = create_topic(broker), unique("batch")
    spark(batch_plan(broker, topic, name), cut("ad"))
    with pytest.raises(PipelineError, match=f"written before with other rows \\({told}\\).*changed in between"):
        spark(batch_plan(broker, topic, name), cut(again))
    assert seen(broker, topic) == ["a", "d"]


@pytest.mark.parametrize("second", ["d", "a"])
def test_a_unit_in_two_tasks_is_refused(broker: Any, second: str) -> None:
    """Also if both have equal rows: the second task would look like a repetition of the first."""
    told = batch_plan(broker, create_topic(broker))
    with pytest.raises(PipelineError, match="its rows are in several tasks: repartition by the column"):
        spark(told, cut("a"), cut(second))


def test_repeated_task_of_units_writes_each_row_once(broker: Any) -> None:
    topic = create_topic(broker)
    told = batch_plan(broker, topic)
    for before in (0, 6):
        assert writer.write_units(told, [cut("abc"), cut("fed")], 0) == Sent({topic: 6}, {topic: 6}, before=before)
    assert sorted(seen(broker, topic)) == list(ALL)


@pytest.mark.parametrize("step", [2, 3, 4, 5, 9])
def test_task_of_units_may_die_between_any_two_effects(broker: Any, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Three units begin, then each writes its note and commits."""
    topic, name = create_topic(broker), unique("batch")
    insist, effects = transactions.Transaction._insist, iter(range(step))

    def dying(self: Any, call: Any) -> None:
        if next(effects, None) is None:
            raise KeyboardInterrupt
        insist(self, call)

    with monkeypatch.context() as patch:
        patch.setattr(transactions.Transaction, "_insist", dying)
        patch.setattr(transactions.Transaction, "abort", transactions.Transaction.drop)
        with suppress(
            KeyboardInterrupt
        ):  # an abandoned producer is not like a killed one: its queued records are dropped
            spark(batch_plan(broker, topic, name), cut(ALL))
    sent = spark(batch_plan(broker, topic, name), cut("ad"), cut("becf"))
    assert sum(each.before for each in sent) == 2 * (max(step - 3, 0) // 2)
    assert sorted(seen(broker, topic)) == list(ALL)


def test_batches_of_one_name_share_their_transactional_ids(broker: Any) -> None:
    """One id for each unit, however many batches: brokers keep each id for a week."""
    topic, name = create_topic(broker), unique("batch")
    for batch in range(3):
        spark(batch_plan(broker, topic, name, batch), cut("abc"))
    spark(batch_plan(broker, topic, name, 2), cut("abc"))
    assert sorted(seen(broker, topic)) == list("aaabbbccc")
    with pytest.raises(PipelineError, match="has already written batch 2, and now gets batch 1"):
        spark(batch_plan(broker, topic, name, 1), cut("abc"))
    ours = [each for each in transactional_ids(broker) if name in each]
    assert sorted(ours) == [f"odradek-spark-{name}-unit-{unit}" for unit in range(3)]


def transactional_ids(broker: Any) -> list[str]:
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    groups = client.list_consumer_groups().result().valid  # each transactional id is also a group id
    return [group.group_id for group in groups]


def test_invalid_units_are_refused(broker: Any) -> None:
    told = batch_plan(broker, create_topic(broker))
    none = cut("a").set_column(2, "unit", pa.nulls(1, pa.int32()))
    with pytest.raises(PipelineError, match="null in the column 'unit'"):
        spark(told, none)
    with pytest.raises(PipelineError, match="more than 64 values of 'unit' in a task"):
        spark(told, cut("".join(map(chr, range(65))), units=65))
    assert seen(broker, str(told.topic)) == []
    for schema, why in ((SCHEMA, "does not exist"), (StructType().add("unit", "string"), "has type string")):
        with pytest.raises(OptionError, match=f"'unit' {why} but must be an integer column"):
            units.check(schema, "unit")


# -- ACLs

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def allow(client: AdminClient, kind: ResourceType, name: str, *rights: AclOperation) -> None:
    """Allow these operations; with an ACL, the resource allows no others. A name that ends in a dash is a prefix."""
    pattern = ResourcePatternType.PREFIXED if name.endswith("-") else ResourcePatternType.LITERAL
    what = kind, name, pattern, "User:ANONYMOUS", "*"
    for done in client.create_acls([AclBinding(*what, one, AclPermissionType.ALLOW) for one in rights]).values():
        done.result(WAIT)


@pytest.mark.long
@pytest.mark.needs("java-3.9.1")
def test_documented_acls_are_sufficient(tmp_path: Path) -> None:
    """Each resource allows only the documented operations."""
    allowing = {"authorizer_class_name": AUTHORIZER, "allow_everyone_if_no_acl_found": "true"}
    apache = Apache("3.9.1", tmp_path, **allowing).start()
    try:
        broker = ExternalBroker(apache.bootstrap)
        topic, other = create_topic(broker), create_topic(broker)
        client = AdminClient({"bootstrap.servers": broker.bootstrap})
        allow(client, ResourceType.TOPIC, topic, AclOperation.READ, AclOperation.WRITE)
        allow(client, ResourceType.TOPIC, other, AclOperation.WRITE)
        allow(client, ResourceType.GROUP, transactions.PREFIX, AclOperation.READ)
        unit = AclOperation.WRITE, AclOperation.DESCRIBE
        allow(client, ResourceType.TRANSACTIONAL_ID, transactions.PREFIX, *unit)
        allow(client, ResourceType.BROKER, "kafka-cluster", AclOperation.CLUSTER_ACTION, AclOperation.ALTER)
        task = UnitMark.of_batch(unique("batch"), 0)
        for before in (0, 1):
            assert once(plan(broker, topic), task, rows("a")).before == before
        with pytest.raises(PipelineError, match="TOPIC_AUTHORIZATION_FAILED"):
            once(plan(broker, other), UnitMark.of_batch(unique("batch"), 0), rows("a"))
        assert seen(broker, topic) == ["a"]
    finally:
        apache.stop()


# -- errors


def await_records(broker: Any, topic: str, count: int) -> None:
    """Wait until the topic's two partitions have `count` records of any transaction."""
    with Brokers({"bootstrap.servers": broker.bootstrap}) as brokers:

        def written() -> int:
            return sum(brokers.offsets([(topic, 0), (topic, 1)], LATEST).values())

        wait_until(lambda: written() >= count, WAIT, f"the topic has {count} records")


def test_error_in_the_rows_aborts_the_transaction(broker: Any) -> None:
    """The abort comes at once, so readers need not wait for the coordinator's timeout."""
    topic, task = create_topic(broker, partitions=2), mark()

    def failing() -> Iterator[pa.RecordBatch]:
        yield rows("a", "b")
        await_records(broker, topic, 2)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        writer.write_once(plan(broker, topic), failing(), task)
    once(plan(broker, topic), mark(), rows("c"))
    assert seen(broker, topic) == ["c"]
    once(plan(broker, topic), task, rows("a", "b"))
    assert sorted(seen(broker, topic)) == ["a", "b", "c"]


def test_refused_record_aborts_the_transaction(broker: Any) -> None:
    topic = create_topic(broker, max_message_bytes=1000)
    with pytest.raises(PipelineError, match=f"^{topic}-0: MSG_SIZE_TOO_LARGE"):
        once(plan(broker, topic), mark(), rows("a"), rows("x" * 5000))
    assert seen(broker, topic) == []


def test_task_longer_than_the_transaction_timeout_fails(fresh_broker: Callable[..., Any]) -> None:
    broker = fresh_broker(transaction_abort_timed_out_transaction_cleanup_interval_ms=100)
    topic, task = create_topic(broker), mark()
    once(
        plan(broker, create_topic(broker)), mark(), rows("x")
    )  # otherwise the timeout would include the creation of the coordinator

    def slow(until: Callable[[], Any]) -> Iterator[pa.RecordBatch]:
        yield rows("a")
        until()
        yield rows("b")

    def aborted(topic: str = topic) -> None:
        with Brokers({"bootstrap.servers": broker.bootstrap}) as brokers:
            last = lambda: brokers.offsets([(topic, 0)], LATEST, committed=True)[topic, 0]  # noqa: E731
            wait_until(last, WAIT, "the coordinator has aborted the transaction")

    def another_is_aborted() -> None:
        other, name = create_topic(broker), unique("id")
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "transaction.timeout.ms": 4000}
        )
        producer.init_transactions(WAIT)
        producer.begin_transaction()
        producer.produce(other, b"x")
        assert producer.flush(WAIT) == 0
        aborted(other)

    with pytest.raises(PipelineError, match=r"longer than kafka\.transaction\.timeout\.ms=4000"):
        writer.write_once(plan(broker, topic, transaction_timeout_ms="4000"), slow(aborted), task)
    assert seen(broker, topic) == []
    writer.write_once(plan(broker, topic), slow(another_is_aborted), task)
    assert seen(broker, topic) == ["a", "b"]


def test_transaction_timeout_above_the_brokers_maximum_is_an_error(broker: Any) -> None:
    told = plan(broker, create_topic(broker), transaction_timeout_ms="2000000000")
    with pytest.raises(PipelineError, match=r"INVALID_TRANSACTION_TIMEOUT.*transaction\.max\.timeout\.ms"):
        once(told, mark(), rows("a"))


def test_unreachable_broker_is_an_error_with_the_connection_error() -> None:
    """The reason is the connection's error."""
    server = f"127.0.0.1:{free_port()}"
    settings = producer_settings.librdkafka({"bootstrap.servers": server, "transaction.timeout.ms": "3000"})
    with pytest.raises(PipelineError, match=f"^transaction task.*: _TIMED_OUT.*{server}.*refused"):
        once(Plan("t", settings, {}, True, False, False, transactional=True), mark(), rows("a"))


def test_delivery_timeout_is_limited_to_the_transaction_timeout() -> None:
    """No record stays in the queue for longer than its transaction may be open."""
    least = {"bootstrap.servers": "127.0.0.1:1"}
    assert producer_settings.librdkafka(least)["transaction.timeout.ms"] == "900000"
    short = producer_settings.librdkafka(least | {"transaction.timeout.ms": "5000"})
    assert short["delivery.timeout.ms"] == "5000"
    producer_settings.checked(short, transactional=True)
    for wrong in ({"acks": "1"}, {"enable.idempotence": "false"}, {"delivery.timeout.ms": "1000000"}):
        with pytest.raises(OptionError, match=r"^kafka\.\*: "):
            producer_settings.checked(producer_settings.librdkafka(least | wrong), transactional=True)
