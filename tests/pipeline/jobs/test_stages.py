"""The whole job: raw -> cleaned -> unique -> priced -> hourly, compared with a direct computation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from odradek.pipeline.jobs import topics
from odradek.pipeline.jobs.stages.analysis.analysis import analysed
from odradek.pipeline.jobs.stages.command import command
from odradek.pipeline.jobs.stages.running import cluster
from odradek.pipeline.jobs.stages.running.streams import Streams
from odradek.pipeline.wire.brokers import Brokers

from ...clients.admin import create_topic, unique
from ...clients.transactions import await_stable, stable_end
from ..topics import WAIT, transaction
from ..written import committed
from . import orders
from .shop import Shop
from .stages import job_settings, pipeline, stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live


def run(file: Path, *words: str) -> Result:
    return CliRunner().invoke(command, [str(file), "--conf", "spark.sql.shuffle.partitions=2", *words])


@pytest.fixture
def shop(broker: Any, spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    with job_settings(spark):
        yield Shop(broker, tmp_path)


@pytest.mark.long
def test_two_runs_equal_the_direct_computation(shop: Shop) -> None:
    """The second run has duplicates of the first, and late records."""
    first = orders.made(seed=1, count=300)
    late = orders.made(seed=2, count=40, first=1000, hours=1.5)  # later than `unique` waits
    slow = orders.made(seed=3, count=40, first=2000, hours=3.5)  # later than `hourly` waits
    second = [*first[-60:], *late, *slow, *orders.made(seed=4, count=120, first=3000, hours=5.2)]
    done = []
    for values in (first, second):
        shop.send("raw", values)
        assert run(shop.file, "--once").exit_code == 0
        done.append(values)
        shop.check(*done)
    assert run(shop.file, "--once").exit_code == 0
    shop.check(*done)


def test_enriching_table_is_read_for_each_batch(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """In a continuous query."""
    source, people, to = create_topic(broker), create_topic(broker), create_topic(broker)
    enrich = {"with": people, "on": "id", "as": "person", "parse": {"format": "string"}}
    file = pipeline(
        stage(from_=source, to=to, json="id STRING", enrich=enrich),
        kafka={"bootstrap.servers": broker.bootstrap},
        checkpoint=str(tmp_path),
    )
    with job_settings(spark):
        known, mistakes = analysed(spark, file)
        assert not mistakes
        query = Streams(spark, file, known).start(file.stages[0], processingTime="0 seconds")
        try:
            for name in ("old", "new"):
                orders.send(broker.bootstrap, people, [name.encode()], [b"1"])
                orders.send(broker.bootstrap, source, [b'{"id": 1}'])
                query.processAllAvailable()
        finally:
            query.stop()
    values = [record.value for record in committed(broker, to)]
    assert values == [b'{"id":"1","person":{"value":"%s"}}' % name for name in (b"old", b"new")]


# -- before any query


def test_errors_in_the_file_are_reported_before_spark_starts(tmp_path: Path) -> None:
    file = tmp_path / "stages.toml"
    file.write_text("checkpont = 3")
    result = CliRunner().invoke(command, [str(file)])
    assert result.exit_code == 1
    assert f"{file}: checkpont: unknown key; did you mean checkpoint?\n" in result.stderr
    assert len(result.stderr.splitlines()) == 3


def test_check_needs_no_broker(shop: Shop) -> None:
    """--check requests no topic."""
    shop.file.write_text(shop.file.read_text().replace(shop.broker.bootstrap, "localhost:1"))
    result = run(shop.file, "--check")
    assert (result.exit_code, result.stdout) == (0, f"{shop.file}: 4 stages, no errors\n")
    shop.file.write_text(shop.file.read_text().replace("amount > 0", "amunt > 0"))
    result = run(shop.file, "--check")
    assert result.exit_code == 1
    assert "stage cleaned: validate.it has an amount: A column, variable, or function parameter" in result.stderr


def test_unknown_topics_are_reported() -> None:
    """A missing target topic is created if the file has its number of partitions."""
    enrich = {"with": "peple", "on": "id", "as": "person", "parse": {"format": "string"}}
    one = stage(json="id BIGINT", from_="ordrs", enrich=enrich)
    two = stage(name="two", from_="out", to="end", partitions=3)
    new, mistakes = cluster.missing(pipeline(one, two), ["orders", "people", "dead"])
    assert new == {"end": 3}
    assert mistakes == [
        "stage one: from: topic ordrs does not exist (or this user may not see it); did you mean orders?",
        "stage one: enrich.person.with: topic peple does not exist (or this user may not see it); did you mean people?",
        "stage one: to: topic out does not exist (or this user may not see it); with partitions = N the job creates it",
        "stage two: from: topic out does not exist (or this user may not see it)",
    ]


def test_missing_topics_are_created(broker: Any) -> None:
    there, new = create_topic(broker, partitions=2), unique("made")
    kafka = {"bootstrap.servers": broker.bootstrap}
    topics.create(kafka, {new: 3, there: 5}, {}, may_exist=True)
    with Brokers(kafka) as brokers:
        assert {there: 2, new: 3}.items() <= brokers.topics().items()


def settled(broker: Any, monkeypatch: pytest.MonkeyPatch, end_after: int) -> tuple[str, list[float]]:
    """Settle a topic with an open transaction, which ends during the sleep number `end_after`.

    Returns the topic and all sleeps. The clock is played: only sleeps move it.
    """
    topic, sleeps = create_topic(broker), list[float]()
    with transaction(broker, unique("id"), "leave") as producer:
        producer.produce(topic, b"x")

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        if len(sleeps) == end_after:
            producer.commit_transaction(WAIT)
            await_stable(broker, topic)

    monkeypatch.setattr(cluster, "time", SimpleNamespace(monotonic=lambda: sum(sleeps), sleep=sleep))
    cluster.settle({"bootstrap.servers": broker.bootstrap}, [topic])
    return topic, sleeps


def test_open_transactions_are_awaited(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait ends with the transaction."""
    topic, sleeps = settled(broker, monkeypatch, end_after=3)
    assert len(sleeps) == 3
    assert stable_end(broker, topic) == 2, "the record and its marker"


def test_wait_for_a_transaction_that_stays_open_is_limited(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_SECONDS", 1)
    topic, sleeps = settled(broker, monkeypatch, end_after=0)
    assert sum(sleeps) == pytest.approx(1, abs=0.1)
    assert stable_end(broker, topic) == 0
