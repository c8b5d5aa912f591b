"""A real ZooKeeper server, from the jars that come with Apache Kafka 3.9.1."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import java
from .process import die_with_parent, free_port, wait_until

VERSION = "3.9.1"  # the Kafka release that has the jars; "java-3.9.1" for the `needs` marker
_PROPERTIES = """
dataDir={data}
clientPort={port}
clientPortAddress=127.0.0.1
maxClientCnxns=0
tickTime={tick}
admin.enableServer=false
4lw.commands.whitelist=*
"""
# Next to tests that fill disks, an fsync outlasts sessions; writes of a killed process survive without it.
_OPTIONS = ["-Xmx128m", *java.LIGHT, "-Dzookeeper.forceSync=no"]
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


class ZooKeeper:
    """One server with its data under `folder`; sessions last at least two ticks of `tick_ms`.

    `properties` are additional configuration lines, `options` additional Java options.
    """

    def __init__(
        self, folder: Path, tick_ms: int = 500, properties: Mapping[str, object] = {}, options: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self.port = free_port()
        self.connect = f"127.0.0.1:{self.port}"
        self.config = folder / "zoo.cfg"
        self.log_file = folder / "zookeeper.log"
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        more = "".join(f"{key}={value}\n" for key, value in properties.items())
        self.config.write_text(_PROPERTIES.format(data=folder / "zookeeper", port=self.port, tick=tick_ms) + more)
        self._options = [*_OPTIONS, *options]

    def start(self) -> ZooKeeper:
        """Start; returns when the server responds."""
        with self.log_file.open("ab") as log:
            words = java.command(VERSION, MAIN, str(self.config), options=self._options)
            self.process = subprocess.Popen(
                words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent
            )
        wait_until(self._serves, 60, "ZooKeeper serves")
        return self

    def _serves(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log_file.read_text()[-4000:]
        try:
            return self.command("ruok") == "imok"
        except OSError:
            return False

    def command(self, word: str) -> str:
        """The response to a four-letter word."""
        return four_letter_word(self.port, word)

    def kill(self) -> None:
        """SIGKILL; acknowledged writes are on disk."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def suspend(self) -> None:
        """SIGSTOP, until all threads have stopped: for its clients, the host does not respond."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{self.process.pid}/task")
        stopped = lambda: all(_state(task) == "T" for task in tasks.iterdir())  # noqa: E731
        wait_until(stopped, 60, "all threads of ZooKeeper are stopped")

    def resume(self) -> None:
        """SIGCONT: the server continues."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


def four_letter_word(port: int, word: str) -> str:
    """The response of the server on `port` to `ruok`, `srvr`, …"""
    with socket.create_connection(("127.0.0.1", port), 5) as sock:
        sock.sendall(word.encode())
        return b"".join(iter(lambda: sock.recv(65536), b"")).decode()


def _state(task: Path) -> str:
    try:
        return (task / "stat").read_text().rpartition(") ")[2][0]
    except FileNotFoundError:  # the thread has ended
        return "T"
