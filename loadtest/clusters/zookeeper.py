"""A ZooKeeper server for the measured brokers, from the jars of Apache Kafka 3.9.1. No figure includes it."""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path

import psutil

from odradek.loadtest.harness import processes
from odradek.loadtest.harness.tools import BrokerError, kafka_jars

VERSION = "3.9.1"  # the last Kafka that needs ZooKeeper
_START_SECONDS = 60
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


class ZooKeeper:
    """One server with its data under `folder`."""

    def __init__(self, folder: Path) -> None:
        self.port = processes.free_port()
        self.connect = f"127.0.0.1:{self.port}"
        self._folder = folder
        self._process: psutil.Popen | None = None
        folder.mkdir(parents=True)
        (folder / "zoo.cfg").write_text(
            f"dataDir={folder}/data\nclientPort={self.port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
            "4lw.commands.whitelist=ruok\nmaxClientCnxns=0\n"
        )

    def start(self) -> None:
        """Start; returns when it serves."""
        words = ["java", "-Xmx256m", "-cp", f"{kafka_jars(VERSION)}/*", _MAIN, str(self._folder / "zoo.cfg")]
        self._process = processes.spawn(words, self._folder / "zookeeper.log")
        deadline = time.monotonic() + _START_SECONDS
        while not self._serves():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise BrokerError(f"ZooKeeper did not start: see {self._folder / 'zookeeper.log'}")
            time.sleep(0.05)

    def _serves(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
                connection.sendall(b"ruok")
                return connection.recv(4) == b"imok"
        except OSError:
            return False

    def stop(self) -> None:
        """Kill it."""
        if self._process is not None:
            processes.end(self._process, signal.SIGKILL, 10)
            self._process.wait()
            self._process = None
