"""Run `odradek pipeline …` for the demo."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from odradek.demo.data import DemoError
from odradek.loadtest.swarm.broker import die_with_parent

STAGES = Path(__file__).with_name("flights.toml")
TAIL = 2000  # characters of a failed job's output


@dataclass(frozen=True)
class Jobs:
    """Jobs for the broker at `bootstrap`, with all files in the folder `room`, also their output: `archive.log`."""

    bootstrap: str
    room: Path

    def stages(self) -> Path:
        """The file of stages for this broker."""
        mine = STAGES.read_text().replace("localhost:9092", self.bootstrap)
        path = self.room / STAGES.name
        path.write_text(mine.replace("flights-checkpoint", str(self.room / "checkpoint")))
        return path

    def run(self, job: str, *words: str) -> None:
        """Raises DemoError if the job fails, with the end of its output."""
        log = self.room / f"{job}.log"
        cluster = [] if job == "stages" else ["--bootstrap-server", self.bootstrap]
        status = self._call([job, *words, *cluster, "--conf", "spark.ui.enabled=false"], log)
        if status:
            said = log.read_text(errors="replace")[-TAIL:]
            raise DemoError(f"odradek pipeline {job} ended with exit code {status}:\n{said}")

    def _call(self, words: list[str], log: Path) -> int:
        with log.open("wb") as out:
            return subprocess.run(
                [sys.executable, "-m", "odradek.pipeline", *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.room,
                env={**os.environ, "SPARK_LOCAL_DIRS": str(self.room / "spark")},
                preexec_fn=die_with_parent,
            ).returncode
