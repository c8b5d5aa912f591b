"""The scripts under Kafka's names, and the files in config/: as a checkout has them, run from anywhere."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from odradek.broker import config as configuration

from ..harness.needs import jars
from ..harness.process import die_with_parent, family, free_port, living, wait_dead, wait_until
from ..harness.wire import answers
from ..harness.zookeeper import VERSION
from .conftest import SECONDS

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "bin").glob("*.sh"))
OWN = {"odradek-run.sh", "odradek-cluster.sh"}
DEFAULTS = {"/tmp/kafka-logs": "logs", "/tmp/zookeeper": "zookeeper"}


def environment(**more: str) -> dict[str, str]:
    """With this interpreter's `odradek` as the one on PATH."""
    return os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"} | more


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """bin/ and config/ of a checkout without .venv, with ports and folders of its own."""
    shutil.copytree(ROOT / "bin", tmp_path / "bin")
    shutil.copytree(ROOT / "config", tmp_path / "config")
    ports = {port: str(free_port()) for port in ("2181", "9092", "9093", "9094")}
    changes = ports | {place: str(tmp_path / name) for place, name in DEFAULTS.items()}
    for file in (tmp_path / "config").iterdir():
        file.write_text(re.sub("|".join(changes), lambda found: changes[found[0]], file.read_text()))
    return tmp_path


def value(file: Path, key: str) -> str:
    """What a properties file says of `key`."""
    return re.search(rf"^{re.escape(key)}=(.*)$", file.read_text(), re.MULTILINE)[1]  # type: ignore[index]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_each_is_a_command(script: Path) -> None:
    if script.name in OWN:
        return
    done = subprocess.run([script, "--help"], env=environment(), capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done
    assert done.stdout.startswith("Usage: odradek ")


@pytest.mark.parametrize("name", ["server", "server-1", "server-2"])
def test_a_broker_reads_its_file_without_a_word(name: str) -> None:
    read = configuration.load(ROOT / f"config/{name}.properties")
    assert [line for line in read.warnings if "zookeeper" not in line] == []
    assert [str(listener) for listener in read.listeners] == [f"PLAINTEXT://127.0.0.1:{9092 + read['broker.id']}"]


def test_as_the_manual_edits_them() -> None:
    """Copies of server.properties in which three keys are changed, or come again at the end."""
    first = (ROOT / "config/server.properties").read_text()
    for key in ("broker.id", "port", "log.dir"):
        assert len(re.findall(rf"^{re.escape(key)}=", first, re.MULTILINE)) == 1
    assert "log.dirs" not in first


def test_the_clients_files_are_read_without_a_word(checkout: Path) -> None:
    for script, option in (
        ("kafka-console-consumer", "--consumer.config"),
        ("kafka-console-producer", "--producer.config"),
    ):
        file = checkout / "config" / f"{script.rpartition('-')[2]}.properties"
        words = [checkout / f"bin/{script}.sh", "--broker-list", "127.0.0.1:9", "--topic", "t", option, file]
        with subprocess.Popen(
            words, env=environment(), stdin=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=die_with_parent
        ) as process:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(3)
            process.kill()
            assert process.stderr is not None and b"WARN" not in process.stderr.read()


def test_a_broker_in_the_background(checkout: Path) -> None:
    """`-daemon`; `ps` finds one process by the file's name, and killing that ends the broker."""
    file = checkout / "config/server-1.properties"
    address = f"127.0.0.1:{value(file, 'port')}"
    alone = ("--override", "zookeeper.connect=")
    start = [checkout / "bin/kafka-server-start.sh", "-daemon", file, *alone]
    subprocess.run(start, env=environment(), check=True, timeout=SECONDS)
    try:
        wait_until(lambda: "READY" in (checkout / "logs/start.out").read_text(), 60, "the broker to be ready")
        found = [one for one in psutil.process_iter() if str(file) in " ".join(_words(one))]
        assert len(found) == 1
        broker = family(found[0].pid)
        found[0].kill()
        assert not wait_dead(broker)
    finally:
        _kill(file)
        subprocess.run(start, env=environment(), check=True, timeout=SECONDS)  # and stopped, it leaves nothing
        wait_until(lambda: answers(address), 60, "the broker to answer")
        stop = [checkout / "bin/kafka-server-stop.sh", file]
        subprocess.run(stop, env=environment(), check=True, capture_output=True, timeout=SECONDS)


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _kill(file: Path) -> None:
    for one in psutil.process_iter():
        if str(file) in " ".join(_words(one)):
            one.kill()


@pytest.fixture
def cluster(checkout: Path) -> Iterator[subprocess.Popen[bytes]]:
    """bin/odradek-cluster.sh as in a terminal: a process group of its own."""
    with (checkout / "log").open("wb") as log:
        process = subprocess.Popen(
            [checkout / "bin/odradek-cluster.sh"],
            env=environment(CLASSPATH=f"{jars(VERSION)}/*", KAFKA_HEAP_OPTS="-Xmx100m"),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    yield process
    for one in family(process.pid):
        one.kill()
    process.wait()


@pytest.mark.needs("java-3.9.1")
def test_a_cluster_until_ctrl_c(checkout: Path, cluster: subprocess.Popen[bytes]) -> None:
    files = [checkout / f"config/server{which}.properties" for which in ("", "-1", "-2")]
    addresses = [f"127.0.0.1:{value(file, 'port')}" for file in files]
    wait_until(lambda: all(map(answers, addresses)), 60, "the brokers to answer")
    members = family(cluster.pid)
    os.killpg(cluster.pid, signal.SIGINT)
    assert cluster.wait(SECONDS) == 0, (checkout / "log").read_text()
    assert not living(members)
    assert "Traceback" not in (checkout / "log").read_text()


@pytest.mark.needs("java-3.9.1")
def test_a_cluster_ends_with_one_of_it(checkout: Path, cluster: subprocess.Popen[bytes]) -> None:
    file = checkout / "config/server-2.properties"
    wait_until(lambda: answers(f"127.0.0.1:{value(file, 'port')}"), 60, "the brokers to answer")
    members = family(cluster.pid)
    stop = [checkout / "bin/zookeeper-server-stop.sh", checkout / "config/zookeeper.properties"]
    subprocess.run(stop, env=environment(), check=True, timeout=SECONDS)
    assert cluster.wait(SECONDS) == 1
    assert not living(members)
