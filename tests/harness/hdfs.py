"""HDFS on this machine: a NameNode and a DataNode."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from xml.sax.saxutils import escape

import pyspark

from .java import OPTIONS, temporary_files
from .needs import hdfs_jar
from .process import die_with_parent, free_port, wait_until

HERE = "127.0.0.1"
SECONDS = 60
_SERVERS = "org.apache.hadoop.hdfs.server."
_NAMENODE, _DATANODE = f"{_SERVERS}namenode.NameNode", f"{_SERVERS}datanode.DataNode"


class Hdfs:
    """A context manager over an existing folder. Its processes are killed when the test run dies."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, free_port()
        self._running: list[subprocess.Popen[bytes]] = []

    @property
    def uri(self) -> str:
        """The URI of the root, without a trailing slash."""
        return f"hdfs://{HERE}:{self._port}"

    def __enter__(self) -> Hdfs:
        (self._folder / "hdfs-site.xml").write_text(_xml(self._settings()))
        (self._folder / "core-site.xml").write_text(_xml({"fs.defaultFS": self.uri}))
        try:
            assert self._spawn("format", _NAMENODE, "-format", "-nonInteractive").wait(SECONDS) == 0, self._log(
                "format"
            )
            self._running = [self._spawn("namenode", _NAMENODE), self._spawn("datanode", _DATANODE)]
            wait_until(self._is_up, SECONDS, f"a DataNode is registered\n{self._log('namenode')}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.kill()
            process.wait()

    def _settings(self) -> dict[str, str]:
        servers = ("namenode.http-address", "datanode.address", "datanode.http.address", "datanode.ipc.address")
        return {
            "dfs.namenode.rpc-address": f"{HERE}:{self._port}",
            "dfs.namenode.name.dir": str(self._folder / "names"),
            "dfs.datanode.data.dir": str(self._folder / "data"),
            **{f"dfs.{each}": f"{HERE}:0" for each in servers},
        }

    def _spawn(self, name: str, main: str, *words: str) -> subprocess.Popen[bytes]:
        path = f"{self._folder}:{hdfs_jar()}:{Path(pyspark.__file__).parent}/jars/*"
        with (self._folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                ["java", *OPTIONS, temporary_files(), "-cp", path, main, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )

    def _is_up(self) -> bool:
        """Whether the DataNode scans its first block pool, after which it accepts blocks.

        The pool's folders exist half a second earlier: a write in between finds no DataNode.
        """
        try:
            socket.create_connection((HERE, self._port), timeout=5).close()
        except OSError:
            return False
        return any((self._folder / "data").glob("current/BP-*/scanner.cursor"))

    def _log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")[-2000:]


def _xml(settings: dict[str, str]) -> str:
    pairs = (
        f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in settings.items()
    )
    return f"<configuration>{''.join(pairs)}</configuration>"
