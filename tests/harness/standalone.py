"""Spark's standalone cluster from PySpark's jars on this machine: a master, and workers with a one-core executor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pyspark

from odradek.pipeline.java import home

from .java import LIGHT
from .process import die_with_parent, family, free_port, kill_all, wait_dead, wait_until

HERE = "127.0.0.1"
SECONDS = 60
MEMORY = "512m"
"""Memory of an executor; Spark requires at least 450 MB."""
_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_DAEMON = "org.apache.spark.deploy."


class Standalone:
    """A context manager. Its processes are killed when the test run dies; executors end with their worker's connection.

    Raises PipelineError without Java.
    """

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder = folder
        self.port, self._page = free_port(), free_port()
        self.workers: list[subprocess.Popen[bytes]] = []
        self._master: subprocess.Popen[bytes] | None = None
        self._wanted = workers
        self._environment = _environment(folder)

    @property
    def url(self) -> str:
        """The URL for `--master`."""
        return f"spark://{HERE}:{self.port}"

    @property
    def conf(self) -> dict[str, str]:
        """Settings of a job: its driver on this machine, executors as large as the workers."""
        return {
            "spark.driver.host": HERE,
            "spark.driver.bindAddress": HERE,
            "spark.driver.memory": MEMORY,
            "spark.executor.memory": MEMORY,
            "spark.executor.extraJavaOptions": _java_options(self.folder),
            "spark.executor.cores": "1",
            "spark.local.dir": str(self.folder / "driver"),
            "spark.ui.enabled": "false",
        }

    def __enter__(self) -> Standalone:
        try:
            self._master = self._spawn("master", "master.Master", "--port", self.port, "--webui-port", self._page)
            wait_until(self._alive, SECONDS, f"the master answers\n{self._log('master')}", fail=False)
            for number in range(self._wanted):
                self.workers.append(self._worker(number))
            wait_until(lambda: self.alive() == self._wanted, SECONDS, f"{self._wanted} workers are registered")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self.workers, self._master]:
            if process is not None:
                _kill(process)

    def alive(self) -> int:
        """The number of workers that the master considers alive."""
        return sum(worker["state"] == "ALIVE" for worker in (self._alive() or {"workers": []})["workers"])

    def kill(self, number: int) -> None:
        """SIGKILL all processes of a worker, as if its machine was gone."""
        _kill(self.workers[number])

    def tasks(self, number: int) -> int:
        """The number of tasks that the worker's executors have started, from their logs."""
        logs = (self.folder / f"worker-{number}").glob("app-*/*/stderr")
        return sum(log.read_text(errors="replace").count("Executor: Running task") for log in logs)

    def _worker(self, number: int) -> subprocess.Popen[bytes]:
        work = self.folder / f"worker-{number}"
        size = ["--cores", 1, "--memory", "1g", "--work-dir", work, "--webui-port", 0]
        return self._spawn(f"worker-{number}", "worker.Worker", *size, self.url)

    def _spawn(self, name: str, what: str, *words: object) -> subprocess.Popen[bytes]:
        command = [str(_CLASS), _DAEMON + what, "--host", HERE, *map(str, words)]
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                cwd=self.folder,
                preexec_fn=die_with_parent,
            )

    def _alive(self) -> Any:
        """The master's status page; None while it starts: no response, or an empty page."""
        try:
            with urllib.request.urlopen(f"http://{HERE}:{self._page}/json/", timeout=5) as page:
                return json.load(page)
        except (OSError, json.JSONDecodeError):
            return None

    def _log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]


def _environment(folder: Path) -> dict[str, str]:
    java = home()
    return {
        **os.environ,
        **({"JAVA_HOME": str(java)} if java else {}),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": _java_options(folder),
        "SPARK_DAEMON_MEMORY": "128m",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_LOCAL_IP": HERE,
    }


def _java_options(folder: Path) -> str:
    return " ".join([*LIGHT, f"-Djava.io.tmpdir={folder}"])


def _kill(process: subprocess.Popen[bytes]) -> None:
    members: list[psutil.Process] = family(process.pid)
    kill_all(members)
    process.wait()
    assert wait_dead(members) == []
