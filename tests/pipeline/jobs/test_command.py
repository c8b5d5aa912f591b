"""Start and end of the jobs' commands: options, errors, signals."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner

from odradek.pipeline.errors import OptionError, PipelineError
from odradek.pipeline.jobs import command
from odradek.pipeline.jobs.causes import cause, expected, one_line_error

from ...harness.process import die_with_parent, free_port, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live

JOB = Path(__file__).with_name("streaming_job.py")
WAIT = 120  # seconds


# -- options


@click.command()
@command.cluster_options
@command.spark_options
def showing(**given: Any) -> None:
    """Prints its options."""
    click.echo(repr(given))


def given(*words: str) -> dict[str, Any]:
    done = CliRunner().invoke(showing, ["--bootstrap-server", "b:1", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return dict(eval(done.output))


def test_cluster_options_of_file_and_arguments(tmp_path: Path) -> None:
    """--property overrides the file, --bootstrap-server both; names are those that `.options` accepts."""
    file = tmp_path / "client.properties"
    file.write_text("acks=1\nclient.id : x\\u0041\nbootstrap.servers=no:1\n")
    found = given("--command-config", str(file), "--property", "acks=all", "--property", "a=b=c")
    assert found["kafka"] == {
        "kafka.acks": "all", "kafka.client.id": "xA", "kafka.a": "b=c", "kafka.bootstrap.servers": "b:1",
    }  # fmt: skip
    assert found["conf"] == {}


def test_master_and_conf_become_spark_settings() -> None:
    found = given("--master", "local[3]", "--conf", "spark.a=1", "--conf", "spark.b=")
    assert found["conf"] == {"spark.a": "1", "spark.b": "", "spark.master": "local[3]"}


def test_malformed_options_are_refused() -> None:
    for words in (["--property", "a"], ["--conf", "=x"]):
        done = CliRunner().invoke(showing, ["--bootstrap-server", "b:1", *words])
        assert (done.exit_code, "is not of the form KEY=VALUE" in done.output) == (2, True)
    assert CliRunner().invoke(showing).exit_code == 2
    with pytest.raises(OptionError, match="cannot read /nix: No such file"):
        given("--command-config", "/nix")


# -- `odradek pipeline`


def odradek(*words: str, without: str = "") -> subprocess.CompletedProcess[str]:
    """`odradek` where the module `without` is not installed; the same for the program that it executes."""
    code = f"import sys; sys.modules[{without!r}] = None; import odradek.broker.cli as cli; cli.main()"
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=WAIT, preexec_fn=die_with_parent
    )


def test_help_works_without_spark() -> None:
    for words in ([], ["--help"]):
        done = odradek("pipeline", *words, without="pyspark")
        assert re.findall(r"^  (\w+)  ", done.stdout + done.stderr, re.M) == ["archive", "audit", "restore", "stages"]
    assert "Usage: odradek pipeline audit" in odradek("pipeline", "audit", "--help").stdout


@pytest.mark.parametrize("name", ["archive", "audit", "restore", "stages"])
def test_each_job_is_a_program(name: str) -> None:
    """Executed by its path, as spark-submit does."""
    program = Path(command.__file__).parent / name / "__main__.py"
    done = subprocess.run([sys.executable, str(program), "--help"], capture_output=True, text=True, timeout=WAIT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: odradek pipeline {name} ")


def test_missing_spark_is_reported_in_one_line() -> None:
    done = odradek("pipeline", "audit", "--audit-topic", "a", without="pyspark")
    assert (done.returncode, done.stderr) == (
        1, "odradek: pipeline: Spark is not installed: pip install 'odradek[spark]'\n",
    )  # fmt: skip


def test_error_before_spark_starts_is_one_line() -> None:
    """The line names the job."""
    server = f"127.0.0.1:{free_port()}"
    done = odradek("pipeline", "audit", "--bootstrap-server", server, "--archive", "a", "--last", "x")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "odradek pipeline audit: --last must be a duration such as 90s, 15m or 2h, not 'x'\n"
    assert odradek("pipeline", "audit", "--nix").returncode == 2
    assert odradek("pipeline", "nix").returncode == 2


# -- causes of errors


@pytest.mark.parametrize("where", ["batch", "task", "plan"])
def test_cause_of_a_failed_stream_is_one_line(spark: SparkSession, tmp_path: Path, where: str) -> None:
    from pyspark.sql.functions import udf

    def fail(*_: Any) -> Any:
        raise PipelineError("orders-0: it is so\nbecause")

    rows: Any = spark.readStream.format("rate").load()
    if where == "task":
        rows = rows.select(udf(fail)("value"))
    if where == "plan":
        kafka = {"kafka.bootstrap.servers": f"127.0.0.1:{free_port()}", "kafka.default.api.timeout.ms": "10"}
        rows = spark.readStream.format("odradek").options(subscribe="x", **kafka).load()
    with pytest.raises(Exception) as raised:
        writer = rows.writeStream.option("checkpointLocation", str(tmp_path))
        writer.foreachBatch(one_line_error(fail) if where == "batch" else _all).start().awaitTermination(WAIT)
    assert expected(raised.value)
    line = "no broker responds" if where == "plan" else "orders-0: it is so"
    assert cause(raised.value).startswith(line) and "\n" not in cause(raised.value)


def _all(frame: Any, _number: int) -> None:
    frame.collect()


def test_causes_of_spark_and_java_errors(spark: SparkSession) -> None:
    with pytest.raises(Exception) as raised:
        spark.range(1).select("nix")
    assert cause(raised.value).startswith("[UNRESOLVED_COLUMN") and expected(raised.value)
    with pytest.raises(Exception) as raised:
        spark._jvm.java.lang.Integer.parseInt("x")  # type: ignore[union-attr]
    assert cause(raised.value) == 'For input string: "x"'
    with pytest.raises(Exception) as raised:
        spark._jvm.java.io.FileReader("/nix")  # type: ignore[union-attr]
    assert cause(raised.value) == "java.io.FileNotFoundException: /nix (No such file or directory)"
    assert (cause(ValueError()), expected(ValueError())) == ("ValueError", False)


# -- failures and signals


class Job:
    """streaming_job.py in its own process."""

    def __init__(self, what: str, folder: Path) -> None:
        self.folder = folder
        words = [sys.executable, str(JOB), what, str(folder), "--master", "local[1]"]
        words += ["--conf", "spark.ui.enabled=false"]
        self._out, self._err = folder.with_suffix(".out"), folder.with_suffix(".err")
        with self._out.open("w") as out, self._err.open("w") as err:
            self._process = subprocess.Popen(words, stdout=out, stderr=err, preexec_fn=die_with_parent)

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self._out.read_text() or self._process.poll() is not None, WAIT, what=text)
        assert text in self._out.read_text(), self.errors

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        return self._process.wait(WAIT)

    @property
    def errors(self) -> list[str]:
        """Its stderr without Java's own warning at the start."""
        return [line for line in self._err.read_text().splitlines() if not line.startswith("WARNING: Using incubator")]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[str], Job]]:
    """Starts jobs. `spark` is requested only to skip where it is missing."""
    jobs: list[Job] = []

    def start(what: str) -> Job:
        jobs.append(Job(what, tmp_path / what))
        return jobs[-1]

    yield start
    for one in jobs:
        one.kill()


def test_failed_and_stopped_streams_end_without_stack_traces(job: Callable[[str], Job]) -> None:
    """Stopped within a batch or between batches."""
    failing = job("fail")
    assert failing.wait() == 1
    assert failing.errors == ["odradek pipeline streaming: the disk is full"]
    long, idle = job("long"), job("idle")
    long.wait_for("batch 0")
    long.send(signal.SIGINT)
    assert (long.wait(), [line for line in long.errors if not line.startswith("{")]) == (0, [])
    idle.wait_for("batch 1")
    idle.send(signal.SIGTERM)
    assert (idle.wait(), [line for line in idle.errors if not line.startswith("{")]) == (143, [])
    assert (idle.folder / "ended").exists()


@contextmanager
def without_spark(callback: str) -> Iterator[subprocess.Popen[bytes]]:
    """A job that has printed `now` and runs `callback`; its output is buffered, as usual for programs."""
    code = (
        "import click, os, signal, sys, time; from odradek.pipeline.jobs import command\n"
        f"def callback(): print('now', flush=True); {callback}; time.sleep(60)\n"
        "command.main(click.Command('x', callback=callback))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        preexec_fn=die_with_parent,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"now\n"
        yield process


def ended(process: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    assert process.stderr
    return process.wait(WAIT), process.stderr.read()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_before_spark_starts_ends_the_job(number: int, status: int) -> None:
    with without_spark("pass") as process:
        process.send_signal(number)
        assert ended(process) == (status, b"")


def test_signal_ends_a_job_that_blocks_on_stdout() -> None:
    """The pipe is full, so the job's thread holds the lock of stdout forever."""
    with without_spark("print('x' * 1_000_000, flush=True)") as process:
        assert process.stdout
        wait_until(lambda: _unread(process.stdout) >= 65_536 - 8_192, WAIT, "the pipe is full")
        process.terminate()
        assert ended(process) == (143, b"")


def _unread(pipe: Any) -> int:
    """Bytes in a pipe."""
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"1234"))[0]


def test_signal_at_the_start_ends_the_job() -> None:
    """The main thread still waits for the start of the job's thread."""
    with without_spark("os.kill(os.getpid(), signal.SIGTERM)") as process:
        assert ended(process) == (143, b"")


def test_unexpected_error_has_a_traceback() -> None:
    code = (
        "import click; from odradek.pipeline.jobs import command\n"
        "command.main(click.Command('x', callback=lambda: 1 / 0))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT)
    assert done.returncode == 1
    assert "Traceback" in done.stderr and done.stderr.endswith("odradek pipeline x: division by zero\n")


def test_local_master_binds_the_ui_to_localhost(spark: SparkSession) -> None:
    """The session already exists, so the test checks the variable that Java would read at its start."""
    before = os.environ.pop("SPARK_LOCAL_IP", None)
    try:
        command.start("x", {"spark.master": "spark://elsewhere:7077"})
        assert "SPARK_LOCAL_IP" not in os.environ
        command.start("x", {})
        assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    finally:
        os.environ.pop("SPARK_LOCAL_IP", None)
        if before is not None:
            os.environ["SPARK_LOCAL_IP"] = before
