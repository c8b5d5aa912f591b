"""loadtest/results.json: every figure of every row's last complete run, with its date and commit.

One or several invocations of the bench measure the rows; RESULTS.md is always written from all of them.
"""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent


@dataclass
class Entry:
    """One measured row or curve: `data[broker name]` is a list with one entry a round, or a curve's data."""

    data: dict[str, Any]
    rounds: int
    scale: float = 1
    date: str = field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%d %H:%M}")
    commit: str = field(default_factory=lambda: commit())


@dataclass
class Results:
    """All entries by key, and the versions of brokers and machine."""

    entries: dict[str, Entry] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)  # in this invocation only

    def middle(self, key: str, broker: str, name: str) -> float | None:
        """The median over the rounds of `name` in row `key`; None when it was not measured."""
        rounds = self.entries[key].data.get(broker) if key in self.entries else None
        values = [one[name] for one in rounds or [] if name in one]
        return median(values) if values else None


def load(path: Path) -> Results:
    """The content of the file at `path`; empty when it does not exist."""
    if not path.exists():
        return Results()
    raw = json.loads(path.read_text())
    return Results({key: Entry(**entry) for key, entry in raw["entries"].items()}, raw["versions"])


def save(results: Results, path: Path) -> None:
    """Write `path` atomically."""
    raw = {
        "versions": results.versions,
        "entries": {key: vars(entry) for key, entry in sorted(results.entries.items())},
    }
    fresh = path.with_suffix(".tmp")
    fresh.write_text(json.dumps(raw, indent=1, default=_rounded) + "\n")
    fresh.replace(path)


def _rounded(value: object) -> object:
    raise TypeError(f"not for JSON: {value!r}")


def commit() -> str:
    """The measured commit, with a + when the tree has changes."""
    found = first_line(["git", "-C", str(HERE), "describe", "--always", "--dirty=+"])
    return found or "unknown"


def first_line(command: Sequence[str], having: str = "") -> str:
    """The first output line of `command` with `having` in it; empty when there is none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    lines = (done.stdout + done.stderr).splitlines()
    return next((text.strip() for text in lines if having in text and "http" not in text), "")


def machine() -> dict[str, str]:
    """Versions and hardware."""
    import os

    return {
        "client": f"C clients in loadtest/, librdkafka {first_line(['pkg-config', '--modversion', 'rdkafka'])}",
        "Java": first_line(["java", "-version"], "version") or "none",
        "Python": _python(),
        "machine": f"{os.cpu_count()} cores, {_cpu_model()}, Linux {platform.release()}",
    }


def _python() -> str:
    """Version and build: a build with profile-guided optimisation takes much less CPU for the same work."""
    return f"{platform.python_version()}, built {platform.python_build()[1]} with {platform.python_compiler()}"


def _cpu_model() -> str:
    with open("/proc/cpuinfo") as info:
        return next((text.split(":")[1].strip() for text in info if text.startswith("model name")), platform.machine())
