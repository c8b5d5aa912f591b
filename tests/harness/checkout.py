"""bin/ and config/ of an unpacked copy of this project, with its own ports and folders."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from odradek.ipc.rundir import run_dir, shm_prefix

from .needs import jars
from .process import die_with_parent, free_port, shm_names
from .zookeeper import VERSION

ROOT = Path(__file__).parents[2]
_PORTS = ("2181", "9092", "9093", "9094")
_PLACES = {"/tmp/kafka-logs": "data", "/tmp/zookeeper": "zookeeper"}


class Checkout:
    """Copies below `folder`; `odradek` is that of this interpreter, ZooKeeper comes with Kafka's jars."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._changes = {port: str(free_port()) for port in _PORTS}
        self._changes |= {place: str(folder / name) for place, name in _PLACES.items()}
        self.env = os.environ | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "CLASSPATH": f"{jars(VERSION)}/*",
            "KAFKA_HEAP_OPTS": "-Xmx100m",
        }
        for name in ("bin", "config"):
            shutil.copytree(ROOT / name, folder / name)
        for file in (folder / "config").iterdir():
            file.write_text(self.own(file.read_text()))

    def own(self, text: str) -> str:
        """`text` with the ports and folders of this copy."""
        return re.sub("|".join(self._changes), lambda found: self._changes[found[0]], text)

    def config(self, name: str) -> Path:
        """The file `name`.properties."""
        return self.folder / "config" / f"{name}.properties"

    def value(self, name: str, key: str) -> str:
        """The last value of `key` in a properties file."""
        found = re.findall(rf"^{re.escape(key)}=(.*)$", self.config(name).read_text(), re.MULTILINE)
        assert found, f"{name}.properties has no {key}"
        return found[-1]

    def address(self, name: str) -> str:
        """The listener address of the broker of a file."""
        return f"127.0.0.1:{self.value(name, 'port')}"

    def start(self, line: str, log: str) -> subprocess.Popen[bytes]:
        """Start a shell command with its output in a file; the process dies with the test run."""
        with (self.folder / log).open("wb") as out:
            return subprocess.Popen(
                ["sh", "-c", f"exec {self.own(line)}"],
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def run(self, line: str, *, stdin: str = "", code: int = 0) -> str:
        """Run a shell command; returns its output. AssertionError for another exit code."""
        done = subprocess.run(
            ["sh", "-c", self.own(line)],
            cwd=self.folder,
            env=self.env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == code, (line, done)
        return done.stdout

    def sweep(self) -> None:
        """Remove files that killed brokers leave for their next start."""
        for data_dir in self.folder.glob(f"{_PLACES['/tmp/kafka-logs']}*"):
            for name in shm_names(shm_prefix(data_dir)):
                Path("/dev/shm", name).unlink(missing_ok=True)
            shutil.rmtree(run_dir(data_dir), ignore_errors=True)
