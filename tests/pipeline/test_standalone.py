"""A job on Spark's standalone cluster of two workers, against three brokers; also with the loss of a worker."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyspark
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyarrow import dataset

from odradek.pipeline.jobs import archive

from ..clients.admin import unique
from ..harness.cluster import Cluster
from ..harness.process import die_with_parent, wait_until
from ..harness.standalone import HERE, Standalone

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1"), pytest.mark.timeout(600)]

PARTITIONS = 6
RECORDS = 60_000
SECONDS = 300
COMMAND = [sys.executable, "-m", "odradek.pipeline", "archive"]
SUBMIT = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit")]
MODULE = [str(Path(archive.__file__).parent / "__main__.py")]

Rows = list[tuple[int, int, bytes]]
"""Partition, offset, value."""


class Topic(NamedTuple):
    """A topic with three replicas of each partition, and its acknowledged records."""

    name: str
    rows: Rows


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    folder = tmp_path / "spark"
    folder.mkdir()
    with Standalone(folder) as running:
        yield running


@pytest.fixture(scope="module")
def topic(cluster: Cluster) -> Topic:
    name, rows = unique("standalone"), Rows()
    config = {"min.insync.replicas": "2"}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 3, config=config)])[name].result(30)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "queue.buffering.max.messages": RECORDS}
    )
    for number in range(RECORDS):
        producer.produce(
            name, b"record %d" % number, partition=number % PARTITIONS,
            on_delivery=lambda error, it: rows.append((it.partition() or 0, it.offset() or 0, it.value() or b"")),
        )  # fmt: skip
    assert not producer.flush(60)
    return Topic(name, sorted(rows))


def words(cluster: Cluster, topic: Topic, to: Path) -> list[str]:
    """Arguments of an archive job."""
    return ["--bootstrap-server", cluster.bootstrap, "--topics", topic.name, "--to", str(to)]


def settings(standalone: Standalone) -> list[str]:
    """Spark settings of the job. It starts with both executors: the ratio refers to `cores.max`."""
    both = {"cores.max": "2", "scheduler.minRegisteredResourcesRatio": "1"}
    both["scheduler.maxRegisteredResourcesWaitingTime"] = f"{SECONDS}s"
    conf = standalone.conf | {f"spark.{name}": value for name, value in both.items()}
    pairs = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    return ["--master", standalone.url, *pairs]


def started(command: list[str], log: Path, python: Path | str = sys.executable) -> subprocess.Popen[bytes]:
    """Start a job; executors run the Python of this test, which has the package."""
    with log.open("wb") as out:
        environment = {**os.environ, "SPARK_LOCAL_IP": HERE, "PYSPARK_PYTHON": str(python)}
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, preexec_fn=die_with_parent
        )


def archived(folder: Path, topic: Topic) -> Rows:
    """The records in the archive's files."""
    table = dataset.dataset(folder / f"topic={topic.name}", format="parquet").to_table(["partition", "offset", "value"])
    return sorted(zip(*(table[name].to_pylist() for name in ("partition", "offset", "value")), strict=True))


@pytest.mark.long  # the job below also has tasks on both
def test_tasks_run_on_both_workers(cluster: Cluster, standalone: Standalone, topic: Topic, tmp_path: Path) -> None:
    to, log = tmp_path / "archive", tmp_path / "job.log"
    job = started([*COMMAND, *words(cluster, topic, to), *settings(standalone)], log)
    assert job.wait(SECONDS) == 0, log.read_text()[-4000:]
    assert archived(to, topic) == topic.rows
    assert standalone.tasks(0) and standalone.tasks(1)


def waiting_python(folder: Path) -> tuple[Path, Path]:
    """A Python that starts no task before the gate file exists, and the path of that file.

    Only executors wait: they run in a folder of their worker.
    """
    script, gate = folder / "python", folder / "gate"
    waits = f"case $PWD in */app-*) until [ -e {shlex.quote(str(gate))} ]; do sleep 0.1; done;; esac"
    script.write_text(f'#!/bin/sh\n{waits}\nexec {shlex.quote(sys.executable)} "$@"\n')
    script.chmod(0o755)
    return script, gate


def test_archive_job_survives_the_loss_of_a_worker(
    cluster: Cluster, standalone: Standalone, topic: Topic, tmp_path: Path
) -> None:
    """Started by spark-submit. The whole worker is killed during its first task, which cannot end before."""
    to, log = tmp_path / "archive", tmp_path / "job.log"
    python, gate = waiting_python(tmp_path)
    job = started([*SUBMIT, *settings(standalone), *MODULE, *words(cluster, topic, to)], log, python)
    wait_until(lambda: standalone.tasks(1) or job.poll() is not None, SECONDS, "the worker runs a task")
    assert job.poll() is None, log.read_text()[-4000:]
    standalone.kill(1)
    gate.touch()
    assert job.wait(SECONDS) == 0, log.read_text()[-4000:]
    assert archived(to, topic) == topic.rows
    assert standalone.tasks(0) and "Lost executor" in log.read_text()
    wait_until(lambda: standalone.alive() == 1, SECONDS, "the master has noticed the loss of the worker")
