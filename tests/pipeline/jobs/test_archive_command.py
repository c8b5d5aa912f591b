"""`odradek pipeline archive`: errors are one line, and come before Spark starts where possible."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.archive.command import _source
from odradek.pipeline.jobs.archive.command import archive as command

from ...clients.admin import create_topic
from ...harness.process import die_with_parent, wait_until
from ..topics import WAIT, send
from .archives import assert_whole, ids, visible

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give --topics or --topics-pattern"),
        (["--topics", "a", "--topics-pattern", "b"], "give --topics or --topics-pattern"),
        (["--topics", " , "], "there is none in ' , '"),
        (["--topics-pattern", "("], "subscribePattern is not a regular expression"),
        (["--topics", "nowhere,no-place"], "no-place, nowhere does not exist"),
        (["--topics-pattern", "^nowhere$"], r"no topic matches '\^nowhere\$'"),
        (["--topics", "a", "--trigger", "often"], "--trigger must be a duration such as"),
        (["--topics", "a", "--target-file-size", "large"], "--target-file-size must be a size such as"),
        (["--topics", "a", "--max-offsets", "0"], "--max-offsets must be a whole number above 0"),
        (["--topics", "a", "--value-format", "xml"], "--value-format must be raw, string, json"),
        (["--topics", "a", "--property", "isolation.level=none"], "isolation.level must be read_uncommitted or"),
    ],
)
def test_invalid_arguments_are_refused_in_one_line(
    broker: Any, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    """Without Java, which the check does not need."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    always = ["--bootstrap-server", broker.bootstrap, "--to", "/nowhere/archive"]
    with pytest.raises(PipelineError, match=message) as error:
        CliRunner().invoke(command, [*always, *words], catch_exceptions=False)
    assert "\n" not in str(error.value)


def test_format_of_an_unknown_topic_is_refused_or_logged(
    broker: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a pattern, which may find the topic later, it is a warning; the next error is the missing Java."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    topic = create_topic(broker)
    always = ["--bootstrap-server", broker.bootstrap, "--to", "/nowhere/archive"]
    always += ["--key-format", f"{topic}=string", "--value-format", "raw", "--value-format", "ordrs=string"]
    with pytest.raises(PipelineError, match=r"^a format is given for ordrs, which --topics does not name$"):
        CliRunner().invoke(command, [*always, "--topics", topic], catch_exceptions=False)
    with caplog.at_level(logging.WARNING), pytest.raises(PipelineError, match="/nowhere"):
        CliRunner().invoke(command, [*always, "--topics-pattern", f"^{topic}$"], catch_exceptions=False)
    assert [record.getMessage() for record in caplog.records] == [
        f"there is a format for ordrs, and no such topic among those that match '^{topic}$'"
    ]


def test_read_committed_is_the_default() -> None:
    level = "kafka.isolation.level"
    assert _source({}, "t", None, True)[level] == "read_committed"
    assert _source({level: "read_uncommitted"}, None, "t", True)[level] == "read_uncommitted"


def test_continuous_archive_ends_on_sigterm(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """As a service runs it."""
    topic = create_topic(broker, partitions=2)
    sent = send(broker, topic, range(20), 2)
    folder, stderr = tmp_path / "archive", tmp_path / "stderr"
    job = started(broker, stderr, "--topics", topic, "--to", str(folder), "--continuous", "--trigger", "0")
    try:
        wait_until(lambda: len(visible(spark, folder, topic)) == 20, 2 * WAIT, "the records are archived")
        sent += send(broker, topic, range(20, 30), 2)
        wait_until(lambda: len(visible(spark, folder, topic)) == 30, WAIT, "later records are archived")
        wait_until(lambda: told(stderr) == len(sent), WAIT, "the log has the batches of all records")
    finally:
        job.send_signal(signal.SIGTERM)
        job.wait(WAIT)
    assert job.returncode == 128 + signal.SIGTERM, stderr.read_text()
    assert told(stderr) == len(sent)
    assert_whole(spark, folder, topic, ids(sent))


def told(stderr: Path) -> int:
    """The number of records in the logged batches."""
    lines = stderr.read_text().splitlines()
    facts = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
    return sum(each["rows"] for each in facts if "batch" in each)


def started(broker: Any, stderr: Path, *words: str) -> subprocess.Popen[bytes]:
    """Start the job with few resources."""
    conf = ("spark.master=local[1]", "spark.driver.memory=512m", "spark.ui.enabled=false")
    always = ["--bootstrap-server", broker.bootstrap, *(word for each in conf for word in ("--conf", each))]
    command = [sys.executable, "-m", "odradek.pipeline", "archive", *always, *words]
    with stderr.open("w") as file:
        return subprocess.Popen(command, stderr=file, preexec_fn=die_with_parent)
