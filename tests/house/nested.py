"""Run pytest on a project that a test writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .tree import ROOT

SECONDS = 60


def environment(folder: Path) -> dict[str, str]:
    """The variables of such a run: no plugin is loaded that its command does not name (locust takes a second)."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    return kept | {"PYTHONPATH": f"{ROOT}:{folder}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def command(*words: str) -> list[str]:
    """The command of such a run."""
    return [sys.executable, "-m", "pytest", *words]


def run_pytest(folder: Path, *words: str, seconds: float = SECONDS) -> subprocess.CompletedProcess[str]:
    """Run pytest with `words` and the settings in `folder`, with no plugins but those that `words` name."""
    return subprocess.run(
        command(*words), cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=seconds
    )
