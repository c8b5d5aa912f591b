"""The session of a job: its settings, its console output, and that Java ends with the process that started it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.session import logging_as, session

from ..harness.process import command_words, die_with_parent, family, wait_dead

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCRIPT = """
import sys
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.session import session
conf = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.memory": "512m"}
spark = session("alone", **conf)
query = spark.readStream.format("rate").load().writeStream.format("noop")
query = query.option("checkpointLocation", sys.argv[1] + "/checkpoint").start()
while not query.recentProgress:
    query.awaitTermination(0.1)
print(spark.sparkContext.master, spark.conf.get("spark.sql.session.timeZone"), flush=True)
query.awaitTermination()
"""
INCUBATOR = "WARNING: Using incubator modules: jdk.incubator.vector\n"  # Spark's launcher adds this module


@pytest.mark.live
def test_workers_run_this_python_and_the_time_zone_is_utc(spark: SparkSession) -> None:
    """`sys.executable` on a worker; the text of timestamp 0."""
    from pyspark.sql.functions import udf

    python = udf(lambda: sys.executable)
    [row] = spark.range(1).select(python().alias("python")).collect()
    assert row.python == sys.executable
    [row] = spark.sql("select string(timestamp_millis(0)) as epoch").collect()
    assert row.epoch == "1970-01-01 00:00:00"


@pytest.mark.live
def test_the_data_source_is_registered(spark: SparkSession) -> None:
    with pytest.raises(Exception) as caught:
        spark.read.format("odradek").load().count()
    assert "DATA_SOURCE_NOT_FOUND" not in str(caught.value)


@pytest.mark.live
def test_temporary_files_are_in_the_tests_folder(spark: SparkSession, room: str) -> None:
    """Drivers that tests kill remove nothing."""
    jvm: Any = spark._jvm
    assert jvm.java.lang.System.getProperty("java.io.tmpdir") == room
    folders = jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager().localDirs()
    assert [Path(str(folder.getPath())).parent for folder in folders] == [Path(room)]


@pytest.mark.parametrize(
    ("conf", "environment"),
    [
        ({"spark.remote": "sc://localhost"}, {}),
        ({"spark.master": "sc://localhost:15002"}, {}),
        ({"spark.api.mode": "connect"}, {}),
        ({}, {"SPARK_REMOTE": "sc://localhost"}),
        ({}, {"SPARK_API_MODE": "connect"}),
    ],
)
def test_spark_connect_is_refused(
    monkeypatch: pytest.MonkeyPatch, conf: dict[str, str], environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(PipelineError, match=r"^jobs do not run on Spark Connect: "):
        session("remote", **conf)


@pytest.mark.live
def test_a_process_has_one_session(spark: SparkSession) -> None:
    assert session("again") is spark


@pytest.mark.live
@pytest.mark.needs("java")
def test_java_ends_when_the_driver_is_killed(tmp_path: Path) -> None:
    """The driver prints only the unavoidable warning, and no process survives the kill."""
    with (tmp_path / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(tmp_path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(tmp_path)},
            preexec_fn=die_with_parent,
        )
    with process:
        assert process.stdout is not None
        said, members = process.stdout.readline(), family(process.pid)
        java = [
            one for one in members if "java" in map(os.path.basename, command_words(one)[:1])
        ]  # some may have ended
        noise = (tmp_path / "stderr").read_text()
        process.kill()
    assert said == "local[*] UTC\n" and java, noise
    assert wait_dead(members) == []
    assert noise in ("", INCUBATOR)


def test_last_java_log_option_wins() -> None:
    """Java uses the last of several equal options, so a job's option is put before ours, and the user's comes last."""
    java = "spark.driver.extraJavaOptions"
    inner = logging_as(Path("/job"), {java: "-Xss1m", "spark.a": "b"})
    assert inner == {java: '"-Dlog4j2.configurationFile=/job" -Xss1m', "spark.a": "b"}
    assert logging_as(Path("/ours"), inner)[java] == f'"-Dlog4j2.configurationFile=/ours" {inner[java]}'
    assert logging_as(Path("/a b"), {}) == {java: '"-Dlog4j2.configurationFile=/a b"'}
