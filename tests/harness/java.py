"""Apache Kafka's own Java tools, from jars."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any

from . import class_archives
from .needs import jars
from .process import die_with_parent

LIGHT = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
"""One collector's thread, and no optimizing compiler: it takes as long again as a short program itself."""
OPTIONS = ["-Xmx300m", *LIGHT, "-Xshare:auto"]


def command(version: str, main: str, *words: str, options: Sequence[str] = OPTIONS) -> list[str]:
    """The command `java -cp …/* MAIN WORDS…` for Apache Kafka `version`."""
    archive = class_archives.options(class_archives.kafka(version, main))
    return ["java", *archive, *options, temporary_files(), "-cp", f"{jars(version)}/*", main, *words]


def spark_options(*more: str) -> str:
    """SPARK_SUBMIT_OPTS for drivers with such a Java, and with the archive of Spark's classes."""
    return " ".join([*LIGHT, *class_archives.options(class_archives.spark()), *more])


@functools.cache
def temporary_files() -> str:
    """The option for a temporary folder of this process: a killed Java leaves libraries there."""
    folder = tempfile.mkdtemp(prefix="odradek-java-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return f"-Djava.io.tmpdir={folder}"


def run(version: str, main: str, *words: str, **kwargs: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a tool to its end; AssertionError with its output for an exit code other than 0."""
    check = kwargs.pop("check", True)
    line = command(version, main, *words, options=kwargs.pop("options", OPTIONS))
    done = subprocess.run(line, capture_output=True, timeout=kwargs.pop("timeout", 120), **kwargs)
    if check:
        assert done.returncode == 0, f"{main}: exit code {done.returncode}\n{_tail(done)}"
    return done


def _tail(done: subprocess.CompletedProcess[bytes]) -> str:
    return (done.stdout[-2000:] + done.stderr[-4000:]).decode(errors="replace")


def spawn(version: str, main: str, *words: str, **kwargs: Any) -> subprocess.Popen[bytes]:
    """Start a tool that dies with the test run."""
    return subprocess.Popen(command(version, main, *words), preexec_fn=die_with_parent, **kwargs)
