"""ZooKeeper under a program: it ends with it, and leaves nothing. Its Java is a script here, so no JVM is needed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from odradek.inside.cluster import Cluster, ZooKeeper
from odradek.inside.launched import BrokerError

from ..harness.process import die_with_parent, wait_dead, wait_until

pytestmark = pytest.mark.live

PROGRAM = """
import sys, time
from odradek.inside.cluster import Cluster, ZooKeeper
from odradek.inside.launched import BrokerError
made = ZooKeeper()
print(made.connect, flush=True)
time.sleep(600)
"""


@pytest.fixture
def folder(short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary directory of the program; `java` in it is a process that waits."""
    java = short_folder / "jvm" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\necho $$ > "$(dirname $0)/pid"\nexec sleep 600\n')
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(short_folder / "jvm"))
    monkeypatch.setenv("CLASSPATH", "zookeeper.jar")
    monkeypatch.setenv("TMPDIR", str(short_folder))
    return short_folder


def process_of(folder: Path) -> psutil.Process:
    """The process in place of ZooKeeper."""
    file = folder / "jvm" / "bin" / "pid"
    text = wait_until(lambda: file.exists() and file.read_text().strip(), 60, "java runs")
    return psutil.Process(int(text))


def left(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith("odradek-broker-")]


def test_zookeeper_ends_with_its_killed_program(folder: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent
    )
    assert program.stdout is not None
    assert program.stdout.readline().startswith("127.0.0.1:")
    zookeeper = process_of(folder)
    assert len(left(folder)) == 1
    program.kill()
    program.wait()
    program.stdout.close()
    assert wait_dead([zookeeper]) == []
    wait_until(lambda: not left(folder), 60, "its folder is removed")


def test_ended_zookeeper_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    made = ZooKeeper()
    zookeeper = process_of(folder)
    (its,) = left(folder)
    assert f"clientPort={made.connect.partition(':')[2]}\n" in (folder / its / "zookeeper.properties").read_text()
    made.end()
    assert wait_dead([zookeeper]) == []
    assert left(folder) == []


def test_async_with_starts_and_ends_it_and_lets_the_loop_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The brokers give up, as no ZooKeeper answers: the error comes out, and nothing stays."""
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.001)

    async def use() -> None:
        counting = asyncio.create_task(count())
        with pytest.raises(BrokerError, match="before it was ready"):
            async with Cluster(1, {"zookeeper.connection.timeout.ms": 500}):
                raise AssertionError("it serves without ZooKeeper")
        counting.cancel()

    asyncio.run(use())
    assert turns > 10
    zookeeper = int((folder / "jvm" / "bin" / "pid").read_text())
    wait_until(lambda: not psutil.pid_exists(zookeeper), 20, "init has reaped the killed ZooKeeper")
    assert left(folder) == []


def test_end_of_a_with_in_a_fork_stops_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    cluster = Cluster(0).start()
    zookeeper = process_of(folder)
    pid = os.fork()
    if not pid:
        cluster.__exit__(None, None, None)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert zookeeper.is_running() and len(left(folder)) == 1
    cluster.__exit__(None, None, None)
    assert wait_dead([zookeeper]) == []
