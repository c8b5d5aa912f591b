"""The scripts under Kafka's names, and the files in config/."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from odradek.broker import config as configuration

from ..harness.checkout import ROOT, Checkout
from ..harness.process import command_words, family, kill_all, living, wait_dead, wait_until
from .conftest import SECONDS

pytestmark = pytest.mark.live

OWN = {"odradek-run.sh", "odradek-cluster.sh"}
SCRIPTS = sorted(path.name for path in (ROOT / "bin").glob("*.sh") if path.name not in OWN)
SERVERS = ["server", "server-1", "server-2"]


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    made = Checkout(tmp_path)
    yield made
    made.sweep()


@pytest.mark.parametrize("script", SCRIPTS)
def test_each_script_runs_its_command(checkout: Checkout, script: str) -> None:
    assert checkout.run(f"bin/{script} --help").startswith("Usage: odradek ")


@pytest.mark.parametrize("name", SERVERS)
def test_broker_reads_its_file_without_warnings(name: str) -> None:
    read = configuration.load(ROOT / f"config/{name}.properties")
    assert not read.warnings
    assert [str(listener) for listener in read.listeners] == [f"PLAINTEXT://127.0.0.1:{9092 + read['broker.id']}"]


def test_config_file_has_each_edited_key_once() -> None:
    """Users edit or append these keys, so no second key may override them."""
    text = (ROOT / "config/server.properties").read_text()
    for key in ("broker.id", "port", "log.dir"):
        assert len(re.findall(rf"^{re.escape(key)}=", text, re.MULTILINE)) == 1
    assert not re.search(r"^(log\.dirs|listeners|node\.id)=", text, re.MULTILINE)


@pytest.mark.parametrize(("client", "option"), [("consumer", "--consumer.config"), ("producer", "--producer.config")])
def test_client_reads_its_file_without_warnings(checkout: Checkout, client: str, option: str) -> None:
    """The client connects to a broker that does not exist, and says that and nothing else."""
    line = f"bin/kafka-console-{client}.sh --broker-list 127.0.0.1:9 --topic t {option} config/{client}.properties"
    process = checkout.start(line, "log")
    try:
        assert process.wait(60) == 1
    finally:
        process.kill()
        process.wait()
    (said,) = (checkout.folder / "log").read_text().splitlines()
    assert said.endswith("127.0.0.1:9: Connection refused: start the broker, or correct --bootstrap-server")


@pytest.mark.smoke
def test_daemon_broker_is_one_process_in_ps_and_ends_whole(checkout: Checkout) -> None:
    """`ps` finds one process by the name of the file; a kill of that process, or a stop, leaves no process."""
    file = checkout.config("server-1")
    start = f"bin/kafka-server-start.sh -daemon {file} --override zookeeper.connect="
    log = checkout.folder / "logs/start.out"
    for last in (False, True):
        log.unlink(missing_ok=True)  # or the test reads the output of the first broker
        checkout.run(start)
        try:
            wait_until(lambda: log.exists() and "\nREADY " in log.read_text(), 120, "the broker is ready")
            (supervisor,) = named(file)
            members = family(supervisor.pid)
            if last:
                checkout.run(f"bin/kafka-server-stop.sh {file}")
            else:
                supervisor.kill()
            assert not wait_dead(members)
        finally:
            kill_all(named(file))


def named(file: Path) -> list[psutil.Process]:
    """The processes with the file in their command lines."""
    return [process for process in psutil.process_iter() if str(file) in " ".join(command_words(process))]


@pytest.fixture
def cluster(checkout: Checkout) -> Iterator[subprocess.Popen[bytes]]:
    """bin/odradek-cluster.sh in its own process group, as in a terminal."""
    process = checkout.start("bin/odradek-cluster.sh", "log")
    log = checkout.folder / "log"
    try:
        wait_until(lambda: process.poll() is not None or log.read_text().count("\nREADY ") == 3, 180, "READY thrice")
        assert process.poll() is None, log.read_text()
        yield process
    finally:
        kill_all(family(process.pid))
        process.wait()


@pytest.mark.needs("java-3.9.1")
def test_ctrl_c_ends_the_cluster(checkout: Checkout, cluster: subprocess.Popen[bytes]) -> None:
    members = family(cluster.pid)
    assert len(members) > 20
    os.killpg(cluster.pid, signal.SIGINT)
    assert cluster.wait(SECONDS) == 0, (checkout.folder / "log").read_text()
    assert not living(members)
    assert "Traceback" not in (checkout.folder / "log").read_text()


@pytest.mark.needs("java-3.9.1")
def test_stopped_broker_ends_the_cluster(checkout: Checkout, cluster: subprocess.Popen[bytes]) -> None:
    members = family(cluster.pid)
    checkout.run("bin/kafka-server-stop.sh config/server-2.properties")
    assert cluster.wait(SECONDS) == 1
    assert not living(members)
