"""Code that is "installed" while a broker runs: changes that every Python process which starts from now on makes first.

A broker started with `environment(file)` imports `sitecustomize` from here, which executes the file if there is one.
So a test changes what `odradek upgrade` finds, without touching the tree.
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "ODRADEK_TEST_INSTALLED"


def environment(file: Path) -> dict[str, str]:
    """Variables for the environment of the broker."""
    former = os.environ.get("PYTHONPATH")
    return {VARIABLE: str(file), "PYTHONPATH": os.pathsep.join(filter(None, [os.path.dirname(__file__), former]))}
