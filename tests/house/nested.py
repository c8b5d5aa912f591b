"""Run pytest on a project that a test writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .tree import ROOT

SECONDS = 60


def run_pytest(folder: Path, *words: str, seconds: float = SECONDS) -> subprocess.CompletedProcess[str]:
    """Run pytest with `words` and the settings in `folder`, with no plugins but those that `words` name."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    environment |= {"PYTHONPATH": f"{ROOT}:{folder}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # locust takes a second
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=seconds,
    )  # fmt: skip
