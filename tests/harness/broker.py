"""A real broker in a subprocess, on free ports, with its data under the test's own directory."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from odradek.inside import settings
from odradek.inside.launched import BrokerError, Launched
from odradek.ipc.rundir import run_dir, shm_prefix

from .process import (
    command_words,
    die_with_parent,
    family,
    free_port,
    kernel_state,
    kill_all,
    living,
    shm_names,
    wait_dead,
    wait_until,
)
from .wire import Wire, answers

START_SECONDS = 60
STOP_SECONDS = 60

# Over the settings of a broker inside a program; several workers and partitions, as these are under test.
DEFAULTS: dict[str, Any] = {
    **settings.DEFAULTS,
    "odradek.partition.slots": None,
    "odradek.disk.reserve.bytes": None,
    "odradek.workers": 2,
    "num.partitions": 1,
    "auto.create.topics.enable": True,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": None,
    "group.min.session.timeout.ms": 100,
    "log.retention.check.interval.ms": 1000,
    "log.segment.delete.delay.ms": 1000,
}


class Broker:
    """`odradek start` with its own properties file; start, stop, kill, and inspect its processes.

    Start it from a thread that outlives it: its death signal is tied to the thread that forked it.
    """

    external = False

    def __init__(self, folder: Path, **overrides: Any) -> None:
        """`overrides` are server properties with `_` for `.`; `None` removes a default."""
        self.folder = folder
        self.port = free_port()
        self.host = "127.0.0.1"
        self.data_dir = folder / "data"
        self.properties_file = folder / "server.properties"
        self.log_file = folder / "broker.log"
        self.env = dict(os.environ)
        self.prefix: list[str] = []  # words before the command: `nsenter …`
        self.answers: Callable[[], bool] = lambda: answers(self.bootstrap)  # on a new connection
        self.process: subprocess.Popen[bytes] | None = None
        self._launched: Launched | None = None
        self._killed_of: dict[str, int] = {}  # by role: the number of processes before the last kill
        self.properties: dict[str, Any] = {
            **DEFAULTS,
            "listeners": f"PLAINTEXT://{self.host}:{self.port}",
            "log.dirs": str(self.data_dir),
        }
        self.set(**overrides)

    # -- what a client needs

    @property
    def bootstrap(self) -> str:
        """`host:port` for `bootstrap.servers`."""
        return f"{self.host}:{self.port}"

    def wire(self, timeout: float = 15) -> Wire:
        """A new raw connection."""
        return Wire(self.bootstrap, timeout)

    # -- life cycle

    def set(self, **overrides: Any) -> None:
        """Change server properties for the next start; `_` stands for `.`, None removes one."""
        for name, value in overrides.items():
            key = name.replace("_", ".")
            if value is None:
                self.properties.pop(key, None)
            else:
                self.properties[key] = value

    def start(self, *arguments: str) -> Broker:
        """Start and wait for a response to ApiVersions; AssertionError with the log otherwise."""
        self.launch(*arguments)
        self.await_ready()
        return self

    def launch(self, *arguments: str) -> None:
        """Start without waiting: `await_ready` comes next, after the launch of others."""
        assert self.process is None, "already started"
        self.folder.mkdir(parents=True, exist_ok=True)
        settings.write(self.properties_file, self.properties)
        command = [*self.prefix, sys.executable, "-m", "odradek.broker", "start", str(self.properties_file), *arguments]
        self._launched = Launched(
            command, self.log_file, env=self.env, cwd=self.folder, preexec_fn=die_with_parent
        )  # fmt: skip
        self.process = self._launched.process

    def await_ready(self) -> None:
        """Wait until the broker responds on a new connection and reports that all its processes run."""
        assert self._launched is not None and self.process is not None
        deadline = time.monotonic() + START_SECONDS
        while not self._serves(self._launched):
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the broker was not ready in {START_SECONDS} s:\n{self.log}")
            time.sleep(0.01)

    def _serves(self, launched: Launched) -> bool:
        try:
            return bool(launched.listeners()) and self.answers()
        except BrokerError as error:
            self.process = None
            raise AssertionError(f"{error}\n\nThe whole log:\n{self.log}") from None

    def stop(self) -> None:
        """SIGTERM; asserts exit code 0 and that no process and no shared memory is left."""
        assert self.process is not None, "not running"
        members = family(self.process.pid)
        self.process.send_signal(signal.SIGTERM)
        status = self._reap(STOP_SECONDS)
        left = wait_dead(members)
        kill_all(left)
        assert status == 0, f"exit code {status} after SIGTERM:\n{self.log}"
        assert not left, f"left after stop: {[command_words(process) for process in left]}"
        assert not self.shared_memory(), f"left in /dev/shm after stop: {self.shared_memory()}"

    def kill(self) -> None:
        """SIGKILL the supervisor; asserts that its children die with it."""
        assert self.process is not None, "not running"
        members = family(self.process.pid)
        self.process.kill()
        self._reap(STOP_SECONDS)  # the process may wait for the disk
        left = wait_dead(members)
        kill_all(left)
        assert not left, f"outlived the supervisor: {[command_words(process) for process in left]}"

    def _reap(self, seconds: float) -> int:
        assert self.process is not None
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            members = family(self.process.pid)
            kill_all(members)
            self.process.wait(STOP_SECONDS)
            raise AssertionError(f"the broker did not end in {seconds} s:\n{self.log}") from None
        finally:
            self.process = None

    def restart(self, *, kill: bool = False, **overrides: Any) -> Broker:
        """Stop (or kill) and start again on the same port and data."""
        if self.process is not None:
            self.kill() if kill else self.stop()
        self.set(**overrides)
        return self.start()

    def close(self) -> None:
        """For fixtures: stop the broker if it runs, remove its run directory and the leftovers of a kill."""
        try:
            if self.process is not None:
                self.stop()
        finally:
            for name in self.shared_memory():
                Path("/dev/shm", name).unlink(missing_ok=True)
            shutil.rmtree(run_dir(self.data_dir), ignore_errors=True)

    # -- inspection

    @property
    def log(self) -> str:
        """The output to stdout and stderr of all its starts."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def pids(self, role: str) -> list[int]:
        """Pids of the broker's processes of `role` (`worker`, …, `supervisor`); workers in the order of their ids."""
        assert self.process is not None, "not running"
        if role == "supervisor":
            return [self.process.pid]
        found = []
        for process in living(family(self.process.pid)[1:]):
            words = command_words(process)
            if "run" in words[:-1] and words[words.index("run") + 1] == role:
                number = int(words[words.index("--id") + 1]) if "--id" in words else 0
                found.append((number, process.pid))
        return [pid for _, pid in sorted(found)]

    def kill_role(self, role: str, which: int = 0) -> int:
        """SIGKILL one process of `role`; returns its pid after its death."""
        pids = self.pids(role)
        assert len(pids) > which, f"no {role} {which} among {self.commands()}"
        self._killed_of[role] = len(pids)
        victim = psutil.Process(pids[which])
        victim.kill()
        assert not wait_dead([victim]), f"{role} {victim.pid} outlives SIGKILL: {kernel_state(victim.pid)}"
        return victim.pid

    def commands(self) -> list[list[str]]:
        """The command lines of the broker's processes."""
        assert self.process is not None, "not running"
        return [command_words(process) for process in family(self.process.pid)]

    def await_respawn(self, role: str, dead: int, seconds: float = 30) -> list[int]:
        """Wait until `role` has as many processes as before the kill, without pid `dead`; returns their pids."""

        def respawned() -> list[int]:
            pids = self.pids(role)
            return pids if len(pids) >= self._killed_of.get(role, 1) and dead not in pids else []

        return wait_until(respawned, seconds, f"{role} started again")

    def shared_memory(self) -> list[str]:
        """The broker's regions in /dev/shm."""
        return shm_names(shm_prefix(self.data_dir))

    def command(self, *words: str, timeout: float = 60, **kwargs: Any) -> subprocess.CompletedProcess[str]:
        """Run `odradek WORDS…`; returns the completed process with its output."""
        return subprocess.run(
            [sys.executable, "-m", "odradek.broker", *words],
            capture_output=True,
            text=True,
            env=self.env,
            cwd=self.folder,
            timeout=timeout,
            **kwargs,
        )


class ExternalBroker:
    """A foreign broker, by `ODRADEK_TEST_BOOTSTRAP`: shows that a test expects Kafka's behaviour."""

    external = True

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.host, port = bootstrap.rsplit(":", 1)
        self.port = int(port)

    def wire(self, timeout: float = 15) -> Wire:
        """A new raw connection."""
        return Wire(self.bootstrap, timeout)
