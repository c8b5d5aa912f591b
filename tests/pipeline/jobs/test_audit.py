"""`odradek pipeline audit` finds missing records in the tier that lost them, and reports nothing else."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyarrow import parquet

from odradek.pipeline.auditing import Audit, Message
from odradek.pipeline.errors import OptionError, PipelineError
from odradek.pipeline.jobs.archive.store import manifest
from odradek.pipeline.jobs.audit.__main__ import command
from odradek.pipeline.jobs.audit.period import Period
from odradek.pipeline.jobs.audit.produced import add_up, messages
from odradek.pipeline.jobs.audit.report import table
from odradek.pipeline.jobs.audit.verdict import Row

from ...clients.admin import create_topic, unique
from ...clients.transactions import await_stable
from ...harness.process import wait_until
from ..topics import transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE = 60_000
WINDOW = 10 * MINUTE
NOW = int(time.time() * 1000)
OLD = NOW - 2 * 60 * MINUTE - NOW % WINDOW  # start of a window that is judged
COMPACT = {"cleanup_policy": "compact"}


@pytest.fixture
def audit(spark: SparkSession, broker: Any) -> Callable[..., Result]:
    """Run the audit with these arguments."""

    def run(*words: str) -> Result:
        return CliRunner().invoke(command, ["--bootstrap-server", broker.bootstrap, "--last", "1d", *words])

    return run


def told(result: Result) -> list[dict[str, Any]]:
    """The output lines of windows with differences."""
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return [line for line in map(json.loads, result.stdout.splitlines()) if "summary" not in line]


class World:
    """A topic `name` and its audit topic; the test produces, counts and archives records."""

    def __init__(self, broker: Any, folder: Path, **config: Any) -> None:
        self._broker, self.folder = broker, folder
        self.name, self.audit_topic = create_topic(broker, "orders", partitions=2, **config), create_topic(broker)
        self.producer = Producer({"bootstrap.servers": broker.bootstrap})
        self._commits = self._archived = 0

    @property
    def tiers(self) -> list[str]:
        return ["--audit-topic", self.audit_topic, "--archive", self.folder.as_uri(), "--topics", self.name]

    def counting(self, producer: str = "web-1") -> Audit:
        return Audit(lambda key, value: self.producer.produce(self.audit_topic, value, key), producer, WINDOW)

    def produce(self, audit: Audit | None, count: int, at: int = OLD, topic: str | None = None, **more: Any) -> None:
        """Produce records a millisecond apart, to both partitions in turn."""
        more |= {"on_delivery": audit.on_delivery} if audit else {}
        for number in range(count):
            self.producer.produce(
                topic or self.name, b"%d" % number, partition=number % 2, timestamp=at + number, **more
            )
        assert not self.producer.flush(30)

    def close(self, audit: Audit) -> None:
        audit.close()
        assert not self.producer.flush(30)

    def archive(self, count: int, at: int = OLD, kept: int | None = None) -> Path:
        """Archive `count` more records, half of them of each partition; returns the file."""
        path = self.folder / f"topic={self.name}/date=2026-01-01/hour=00/{self._commits}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        numbers = range(count if kept is None else kept)
        times = pa.array([(at + number) * 1000 for number in numbers], pa.timestamp("us", "UTC"))
        partitions = pa.array([number % 2 for number in numbers], pa.int32())
        parquet.write_table(pa.table({"partition": partitions, "timestamp": times}), path)
        file = manifest.File(str(path.relative_to(self.folder)), self.name, {0: manifest.Span(count, 0, count)}, 1)
        before, self._archived = self._archived, self._archived + count
        ends = {(self.name, index): (before // 2, self._archived // 2) for index in range(2)}
        self._commit(manifest.Commit("s", self._commits, ends, (file,)))
        return path

    def _commit(self, commit: manifest.Commit) -> None:
        path = self.folder / manifest.COMMITS / manifest.commit_name(self._commits)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(manifest.commit_to_json(commit))
        self._commits += 1


@pytest.fixture
def world(broker: Any, tmp_path: Path) -> World:
    return World(broker, tmp_path / "archive")


@pytest.fixture
def full(world: World) -> World:
    """100 records in one window and 50 in the next, in all tiers."""
    audit = world.counting()
    for count, at in ((100, OLD), (50, OLD + WINDOW)):
        world.produce(audit, count, at)
        world.archive(count, at)
    world.close(audit)
    return world


@pytest.mark.live
def test_nothing_is_missing(full: World, audit: Callable[..., Result]) -> None:
    result = audit(*full.tiers)
    assert (result.exit_code, told(result)) == (0, [])
    summary = json.loads(result.stdout)["summary"]
    assert (summary["windows"], summary["records"], summary["missing"], summary["too many"]) == (2, 150, 0, 0)
    every = told(audit(*full.tiers, "--all"))
    assert [line["counts"] for line in every] == [{"producers": n, "log": n, "archive": n} for n in (100, 50)]


@pytest.mark.live
def test_records_missing_in_the_log_are_found(full: World, audit: Callable[..., Result]) -> None:
    more = full.counting("web-2")
    for partition, records in ((0, 4), (1, 3)):
        more.acknowledged(full.name, partition, OLD, records)
    full.close(more)
    full.archive(7)
    result = audit(*full.tiers)
    assert result.exit_code == 1
    assert [(line["missing"], line["more"]) for line in told(result)] == [({"log": 7}, {})]


@pytest.mark.live
@pytest.mark.parametrize(("until", "windows"), [(7, [50, 25, 20]), (60, [50, 25, 10]), (-1, [50, 25, 10])])
def test_deleted_records_are_no_loss(
    full: World, audit: Callable[..., Result], broker: Any, until: int, windows: list[int]
) -> None:
    """Deleted by DeleteRecords, or early by retention.bytes. The second window after the deletion is judged again; the
    other partition is judged all the time."""
    more = full.counting("web-2")
    full.produce(more, 20, OLD + 2 * WINDOW)
    full.close(more)
    full.archive(20, OLD + 2 * WINDOW)
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in client.delete_records([TopicPartition(full.name, 0, until)]).values():
        future.result(30)
    result = audit(*full.tiers, "--all")
    assert (result.exit_code, [line["missing"] for line in told(result)]) == (0, [{}, {}, {}])
    assert [line["counts"]["log"] for line in told(result) if "log" in line["counts"]] == windows


@pytest.mark.live
def test_emptied_partition_hides_no_loss_in_another(full: World, audit: Callable[..., Result], broker: Any) -> None:
    more = full.counting("web-2")
    for partition in range(2):
        more.acknowledged(full.name, partition, OLD, 7)
    full.close(more)
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in client.delete_records([TopicPartition(full.name, 0, -1)]).values():
        future.result(30)
    words = ["--audit-topic", full.audit_topic, "--topics", full.name]
    result = audit(*words)
    assert (result.exit_code, [line["missing"] for line in told(result)]) == (1, [{"log": 7}])
    assert f"{full.name}, partitions 0: 2 windows from" in result.stderr
    assert "its log is deleted up to offset 75" in result.stderr
    assert json.loads(result.stdout.splitlines()[-1])["summary"]["not judged"] == 2


@pytest.mark.live
def test_a_surplus_in_one_partition_hides_no_loss_in_another(full: World, audit: Callable[..., Result]) -> None:
    more = full.counting("web-2")
    more.acknowledged(full.name, 1, OLD, 7)
    full.close(more)
    for _ in range(7):
        full.producer.produce(full.name, b"", partition=0, timestamp=OLD)
    assert not full.producer.flush(30)
    (line,) = told(audit("--audit-topic", full.audit_topic, "--topics", full.name))
    assert (line["missing"], line["more"]) == ({"log": 7}, {"log": 7})


@pytest.mark.live
def test_requested_topic_without_a_judged_window_is_an_error(
    full: World, broker: Any, audit: Callable[..., Result]
) -> None:
    """A topic without records is judged if two tiers could have them."""
    other, idle = World(broker, full.folder, **COMPACT), World(broker, full.folder)
    other.produce(None, 10)
    result = audit("--archive", full.folder.as_uri(), "--topics", f"{full.name},{other.name}")
    assert (result.exit_code, told(result)) == (1, [])
    assert f"{other.name}: no window was judged" in result.stderr
    assert audit("--stage", f"{idle.name}={full.name}", "--last", "1h").exit_code == 0


@pytest.mark.live
def test_records_missing_in_the_archive_are_found(full: World, audit: Callable[..., Result]) -> None:
    lost = full.archive(0)  # a file without records: only its name is reported
    lost.unlink()
    result = audit(*full.tiers)
    assert (result.exit_code, told(result)) == (1, [])
    assert f"{lost.name} is missing" in result.stderr
    lost.with_name("1.parquet").unlink()
    assert [(line["missing"], line["counts"]["log"]) for line in told(audit(*full.tiers))] == [({"archive": 50}, 50)]


@pytest.mark.live
def test_records_not_archived_yet_are_no_loss(full: World, audit: Callable[..., Result]) -> None:
    more = full.counting("web-2")
    full.produce(more, 60, OLD + WINDOW)
    full.close(more)
    result = audit(*full.tiers, "--all")
    assert result.exit_code == 0
    assert told(result)[1]["counts"] == {"producers": 110, "log": 110, "archive": 50}
    full.archive(60, OLD + WINDOW, kept=57)
    assert [line["missing"] for line in told(audit(*full.tiers))] == [{"archive": 3}]


@pytest.mark.live
def test_aborted_records_do_not_count_whatever_the_isolation_level(
    full: World, broker: Any, audit: Callable[..., Result]
) -> None:
    """The audit accepts consumer settings; isolation.level=read_uncommitted has no effect."""
    with transaction(broker, unique("id"), "abort") as producer:
        for number in range(10):
            producer.produce(full.name, b"aborted", partition=number % 2, timestamp=OLD)
    await_stable(broker, full.name)
    words = ["--property", "isolation.level=read_uncommitted", "--property", "fetch.max.bytes=1000000"]
    result = audit(*full.tiers, *words)
    assert (result.exit_code, told(result)) == (0, [])


@pytest.mark.live
def test_surplus_records_are_reported_without_failure(full: World, audit: Callable[..., Result]) -> None:
    full.produce(None, 4)
    result = audit(*full.tiers)
    assert result.exit_code == 0
    assert [(line["missing"], line["more"]) for line in told(result)] == [({}, {"log": 4})]
    assert json.loads(result.stdout.splitlines()[-1])["summary"]["too many"] == 4


@pytest.mark.live
def test_windows_within_the_grace_period_are_not_judged(world: World, audit: Callable[..., Result]) -> None:
    """A longer grace period excludes more windows."""
    counting = world.counting()
    counting.acknowledged(world.name, 0, int(time.time() * 1000), 5)  # NOW may be long ago
    counting.acknowledged(world.name, 0, OLD, 3)
    world.close(counting)
    words = ["--audit-topic", world.audit_topic, "--topics", world.name]
    assert [line["missing"] for line in told(audit(*words))] == [{"log": 3}]
    assert told(audit(*words, "--grace", "23h")) == []
    assert told(audit(*words, "--last", "1h")) == []


@pytest.mark.live
def test_windows_deleted_by_retention_are_not_judged(broker: Any, tmp_path: Path, audit: Callable[..., Result]) -> None:
    """The audit reports this as an error, as it has not proved that no record is lost."""
    hour = {"retention_ms": 60 * MINUTE}
    for config, missing, why in ((hour, [], "retention.ms is 3600000"), (COMPACT, [], "compact"), ({}, [3], "")):
        world = World(broker, tmp_path / "none", **config)
        counting = world.counting()
        counting.acknowledged(world.name, 0, OLD, 3)
        world.close(counting)
        result = audit("--audit-topic", world.audit_topic, "--topics", world.name)
        assert [line["missing"]["log"] for line in told(result)] == missing, config
        assert result.exit_code == 1 and why in result.stderr
        assert ("nothing was judged" in result.stderr) is (not missing)


@pytest.mark.live
def test_stage_results_are_compared_with_their_source(world: World, broker: Any, audit: Callable[..., Result]) -> None:
    """Without audit messages of producers, the log has the expected counts."""
    clean, dead = create_topic(broker, partitions=2), create_topic(broker, partitions=2)
    world.produce(None, 10)
    world.produce(None, 6, topic=clean)
    world.produce(None, 3, topic=dead)
    (line,) = told(audit("--stage", f"{world.name}={clean}+{dead}"))
    assert line["counts"] == {"log": 10, f"{clean}+{dead}": 9}
    assert line["missing"] == {f"{clean}+{dead}": 1}
    world.produce(None, 1, topic=dead)
    assert told(audit("--stage", f"{world.name}={clean}+{dead}")) == []


@pytest.mark.live
def test_dead_letters_of_another_topic_hide_no_loss(world: World, broker: Any, audit: Callable[..., Result]) -> None:
    """Headers of a dead letter name its source topic."""
    clean, checked, dead = (create_topic(broker, partitions=2) for _ in range(3))
    world.produce(None, 10)
    world.produce(None, 10, topic=checked)
    world.produce(None, 6, topic=clean)
    world.produce(None, 3, topic=dead, headers={"odradek.topic": world.name, "odradek.stage": "clean"})
    world.produce(None, 4, topic=dead, headers={"odradek.topic": "payments"})
    (line,) = told(audit("--stage", f"{world.name}={clean}+{dead}", "--stage", f"{world.name}={checked}"))
    assert line["counts"] == {"log": 10, f"{clean}+{dead}": 9, checked: 10}
    assert line["missing"] == {f"{clean}+{dead}": 1}


# -- producers


@pytest.mark.live
def test_counts_of_several_and_restarted_producers_are_added(world: World, audit: Callable[..., Result]) -> None:
    for name in ("web-1", "web-2", "web-1"):
        counting = world.counting(name)
        world.produce(counting, 10)
        world.close(counting)
    result = audit("--audit-topic", world.audit_topic, "--all")
    assert [line["counts"] for line in told(result)] == [{"producers": 30, "log": 30}]
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.live
@pytest.mark.parametrize(
    ("sequences", "closed", "line"),
    [
        ([1], True, "at least 1 of its audit messages are lost"),
        ([0, 2], True, "1 of its audit messages are lost"),
        ([0], False, "is silent since"),
    ],
)
def test_missing_audit_messages_of_a_producer_are_an_error(
    world: World, audit: Callable[..., Result], sequences: list[int], closed: bool, line: str
) -> None:
    world.produce(None, 2 * len(sequences))
    for number in sequences:
        counts = {world.name: {"0": {str(OLD): 1}, "1": {str(OLD): 1}}}
        told_ = Message("web-1", "a", number, OLD, OLD + 1, closed, WINDOW, counts)
        world.producer.produce(world.audit_topic, told_.encoded())
    assert not world.producer.flush(30)
    result = audit("--audit-topic", world.audit_topic)
    assert (result.exit_code, told(result)) == (1, [])
    assert f"producer web-1: {line}" in result.stderr or f"producer web-1 {line}" in result.stderr


PERIOD = Period(0, 10 * WINDOW, WINDOW)
DAY = 24 * 60 * MINUTE


@pytest.mark.parametrize(("last", "grace", "window"), [(5, 10, 1), (10, 10, 10), (60, 10, 24 * 60), (60, 10**6, 1)])
def test_period_without_windows_is_refused(last: int, grace: int, window: int) -> None:
    """Otherwise the audit would judge nothing and find nothing missing."""
    with pytest.raises(OptionError, match="nothing to judge"):
        Period.before(20_000 * DAY + 12 * 60 * MINUTE, last * MINUTE, grace * MINUTE, window * MINUTE)


def test_period_ends_before_the_grace_period() -> None:
    assert Period.before(10 * DAY + 5, 2 * DAY, 10, DAY) == Period(8 * DAY, 9 * DAY, DAY)


def message(sequence: int, instance: str = "a", **other: Any) -> Message:
    counts = {"t": {"2": {"0": 1}}}
    fields: dict[str, Any] = {
        "since": PERIOD.begin, "until": PERIOD.end, "closed": False, "window": WINDOW, "counts": counts,
    }  # fmt: skip
    return Message("web-1", instance, sequence, **{**fields, **other})


def summed(*values: bytes | None) -> tuple[dict[tuple[str, int, int], int], list[str]]:
    told, notes = messages(values)
    found = add_up(told, PERIOD, since=1)
    return dict(found.counts), notes + found.doubts


def test_duplicate_audit_message_counts_once() -> None:
    one = message(0).encoded()
    assert summed(one, message(1).encoded(), one) == ({("t", 2, 0): 2}, [])


@pytest.mark.parametrize(
    ("values", "note"),
    [
        ([message(3).encoded(), message(6).encoded()], "producer web-1: 2 of its audit messages are lost"),
        ([message(3, since=1).encoded(), message(5).encoded()], "web-1: at least 2 of its audit messages are lost"),
        ([message(0, until=WINDOW).encoded()], "producer web-1 is silent since 1970-01-01T00:10:00Z"),
        ([None, b"{}", b"[1]", b"no", b'{"audit": 1}'], "invalid records in the audit topic: 5"),
    ],
)
def test_incomplete_counts_of_a_producer_are_reported(values: list[bytes | None], note: str) -> None:
    (told,) = summed(*values)[1]
    assert note in told


@pytest.mark.parametrize(
    "wrong",
    [
        {"producer": 1},
        {"instance": None},
        {"instance": []},
        {"sequence": "1"},
        {"sequence": 1.5},
        {"sequence": -1},
        {"until": "today"},
        {"until": -(10**30)},
        {"closed": 0},
        {"window": 0},
        {"window": -WINDOW},
        {"window": True},
        {"counts": [1]},
        {"since": None},
        {"counts": {"t": 1}},
        {"counts": {"t": {"0": 1}}},
        {"counts": {"t": {"noon": {"0": 1}}}},
        {"counts": {"t": {"-1": {"0": 1}}}},
        {"counts": {"t": {"0": {"noon": 1}}}},
        {"counts": {"t": {"0": {"0": "1"}}}},
        {"counts": {"t": {"0": {"0": None}}}},
        {"counts": {"t": {"0": {"0": -1}}}},
    ],
)
def test_invalid_audit_message_is_reported_and_ignored(wrong: dict[str, Any]) -> None:
    """One stray record must not fail every audit."""
    told, notes = messages([message(0).encoded(), replace(message(1), **wrong).encoded()])
    assert (told, notes) == ([message(0)], ["invalid records in the audit topic: 1"])


def test_deeply_nested_record_is_no_audit_message() -> None:
    assert messages([b"[" * 1_000_000]) == ([], ["invalid records in the audit topic: 1"])


def test_closed_producer_is_not_silent() -> None:
    assert summed(message(0, until=WINDOW, closed=True).encoded())[1] == []


def test_counts_are_added_to_longer_windows() -> None:
    counts = {"t": {"0": {str(at * MINUTE): 1 for at in range(15)}}}
    assert summed(message(0, window=MINUTE, counts=counts).encoded())[0] == {("t", 0, 0): 10, ("t", 0, WINDOW): 5}


def test_producer_sends_counts_at_the_end_of_each_window_and_at_close() -> None:
    sent: list[Message] = []
    audit = Audit(lambda _key, value: sent.append(Message.decoded(value)), "web-1", window_ms=200)
    audit.acknowledged("t", 1, 1234, 5)
    wait_until(lambda: sent and sent[-1].sequence > 1, what="three windows")
    audit.acknowledged("t", 1, 1200)
    audit.acknowledged("u", 0, 1400)
    audit.close()
    assert sum((each.records() for each in sent), Counter()) == {("t", 1, 1200): 6, ("u", 0, 1400): 1}
    assert [each.since for each in sent[1:]] == [each.until for each in sent[:-1]]
    assert [each.sequence for each in sent] == list(range(len(sent)))
    assert [each.closed for each in sent] == [False] * (len(sent) - 1) + [True]


def test_counts_of_a_failed_send_are_sent_later() -> None:
    sent: list[Message] = []
    full = threading.Event()

    def send(_key: bytes, value: bytes) -> None:
        if not full.is_set():
            full.set()
            raise BufferError("queue full")
        sent.append(Message.decoded(value))

    with Audit(send, "web-1", window_ms=100) as audit:
        audit.acknowledged("t", 0, 0, 5)
        assert full.wait(30)
    assert sum((each.records() for each in sent), Counter()) == {("t", 0, 0): 5}
    assert sent[0].sequence == 0


@pytest.mark.live
def test_failed_delivery_is_not_counted(world: World) -> None:
    sent: list[Message] = []
    with Audit(lambda _key, value: sent.append(Message.decoded(value)), "web-1") as audit:
        audit.on_delivery("an error", None)
        world.produce(audit, 2)
    assert sum((each.records() for each in sent), Counter()) == {
        (world.name, index, OLD): 1 for index in range(2)
    }  # a window may have ended


# -- arguments


@pytest.mark.live
@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "nothing to compare the log with: give --audit-topic, --archive or --stage"),
        (["--stage", "a"], "--stage must be FROM=TO or FROM=TO+TO, not 'a'"),
        (
            ["--topics", "orders", "--stage", "payments=b", "--stage", "a=b"],
            "--stage names a, payments, which --topics does not name",
        ),
        (
            ["--archive", "x", "--last", "5m"],
            "nothing to judge: no window ends between --last (300000 ms) and --grace (600000 ms) ago",
        ),
        (["--audit-topic", "nix"], "topic nix does not exist (or this user may not see it)"),
        (["--archive", "x", "--last", "soon"], "--last must be a duration such as 90s, 15m or 2h, not 'soon'"),
        (["--archive", "x", "--window", "0"], "--window must be a duration above 0"),
        (
            ["--archive", "x", "--property", "acks=some"],
            'kafka.*: Invalid value for configuration property "request.required.acks"',
        ),
        (["--archive", "file:/nix"], "file:/nix is not an archive: its _odradek/commits is empty"),
    ],
)
def test_invalid_arguments_are_refused_in_one_line(audit: Callable[..., Result], words: list[str], line: str) -> None:
    assert str(audit(*words).exception) == line


@pytest.mark.live
def test_window_must_be_a_multiple_of_the_producers_window(full: World, audit: Callable[..., Result]) -> None:
    result = audit(*full.tiers, "--window", "15m")
    assert isinstance(result.exception, PipelineError)
    assert "producers count in windows of 600000 ms, and 900000 ms is not a multiple of that" in str(result.exception)
    every = told(audit(*full.tiers, "--window", "20m", "--all"))
    assert sum(line["counts"]["producers"] for line in every) == 150


def test_results_are_printed_as_a_table() -> None:
    rows = [
        Row("orders", 0, {"producers": 1234, "log": 1230, "archive": 1230}, {"log": 4, "archive": 4}, {}),
        Row("o", WINDOW, {"producers": 1, "log": 3}, {}, {"log": 2}),
    ]
    assert list(table(rows, ["producers", "log", "archive"])) == [
        "TOPIC   WINDOW                PRODUCERS    LOG  ARCHIVE",
        "orders  1970-01-01T00:00:00Z      1,234  1,230    1,230  4 missing in log, 4 missing in archive",
        "o       1970-01-01T00:10:00Z          1      3        -  2 too many in log",
    ]
