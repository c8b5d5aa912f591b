"""Brokers with a ZooKeeper, inside a program: what `Broker` is for one broker, for several.

Layout    : a private folder (inside.folders) for ZooKeeper; each broker has its own.
Owner     : the process that calls `start`; the end of a `with` in a fork of it stops nothing.
Crash rule: ZooKeeper runs under a shell that reads a pipe of the program. When the program ends, for any reason, the
            shell kills it and removes its folder; the brokers stop by themselves.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from odradek.broker.commands import zookeeper_server_start
from odradek.inside import folders
from odradek.inside.async_context import AsyncContext
from odradek.inside.broker import Broker
from odradek.inside.folders import Folder

_END_S = 60.0
_UNDER_SHELL = '{command} > "$1/zookeeper.log" 2>&1 & read -r _; kill -9 $!; rm -rf "$1"'
_ZOOKEEPER = """
dataDir={folder}/data
clientPort={port}
clientPortAddress=127.0.0.1
maxClientCnxns=0
tickTime=500
admin.enableServer=false
"""
# A small JVM, as for one test run; the disk may forget what it has if the machine stops.
_OPTIONS = {
    "KAFKA_HEAP_OPTS": "-Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "KAFKA_OPTS": "-Dzookeeper.forceSync=no",
}


def needs_java() -> None:
    """Raises OdradekError where Java or ZooKeeper's jars are missing; it says what installs them."""
    zookeeper_server_start.java()
    zookeeper_server_start.class_path()


class Cluster(AsyncContext):
    """A context manager, with `async` too; or `start` and `stop`. `brokers` are `Broker`s with the ids from 0, which
    can be stopped, killed and made to fail one by one. `settings` are Kafka's, for all of them."""

    def __init__(
        self, brokers: int = 3, settings: Mapping[str, Any] | None = None, *, timeout: float = 120
    ) -> None:  # fmt: skip
        self._settings = settings or {}
        self._timeout = timeout
        self._zookeeper: ZooKeeper | None = None
        self._owner = 0
        self.brokers = [Broker({"broker.id": number}, timeout=timeout) for number in range(brokers)]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self._owner == os.getpid():
            self.stop()

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, for a client's `bootstrap.servers`."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    def start(self) -> Self:
        """Start ZooKeeper and all brokers, and wait until they serve. Raises OdradekError."""
        needs_java()
        self._owner = os.getpid()
        self._zookeeper = ZooKeeper()
        try:
            for broker in self.brokers:
                broker.settings |= self._of_all(self._zookeeper.connect) | dict(self._settings)
            _all_of(broker.start for broker in self.brokers)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop all brokers, and end ZooKeeper. Raises BrokerError for a broker that has ended by itself."""
        try:
            _all_of(broker.stop for broker in self.brokers)
        finally:
            if self._zookeeper is not None:
                self._zookeeper.end()
                self._zookeeper = None

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None, replication_factor: int = 0
    ) -> None:
        """Create a topic, with a replica on every broker unless the number is given. Raises TopicError, OSError."""
        self.brokers[0].create_topic(name, partitions, configs, replication_factor or len(self.brokers))

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises TopicError, OSError."""
        self.brokers[0].delete_topic(name)

    def _of_all(self, connect: str) -> dict[str, Any]:
        replicas = min(3, len(self.brokers))
        return {
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": 6000,
            "controlled.shutdown.retry.backoff.ms": 200,  # else the stop of all brokers at once takes long
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
        }


class ZooKeeper:
    """One server, started; the brokers wait until it serves."""

    def __init__(self) -> None:
        self._folder: Folder = folders.make()
        port = _free_port()
        self.connect = f"127.0.0.1:{port}"
        file = self._folder.path / "zookeeper.properties"
        file.write_text(_ZOOKEEPER.format(folder=self._folder.path, port=port))
        self._shell = self._start(file)

    def _start(self, file: Path) -> subprocess.Popen[bytes]:
        words = shlex.join([sys.executable, "-m", "odradek.broker", "zookeeper-server-start", str(file)])
        script = _UNDER_SHELL.format(command=words)
        return subprocess.Popen(
            ["/bin/sh", "-c", script, "sh", str(self._folder.path)], stdin=subprocess.PIPE, start_new_session=True,
            env={**os.environ, **_OPTIONS}, pass_fds=[self._folder.lock],
        )  # fmt: skip

    def end(self) -> None:
        """Kill it, and remove its folder."""
        self._shell.communicate(timeout=_END_S)
        shutil.rmtree(self._folder.path, ignore_errors=True)
        os.close(self._folder.lock)


def _free_port() -> int:
    """A port of 127.0.0.1 that nothing has: ZooKeeper cannot say which one it chose."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _all_of(calls: Iterable[Callable[[], object]]) -> None:
    """Make all calls at once and wait for all; raises the first error."""
    with ThreadPoolExecutor() as pool:
        done = [pool.submit(call) for call in calls]
    for one in done:
        one.result()
