"""Make system calls of a broker with `SEAM` on its PYTHONPATH fail, by the file that ODRADEK_TEST_FAULTS names."""

from __future__ import annotations

import errno
import json
from collections.abc import Sequence
from pathlib import Path


def fail(faults: Path, under: Path, calls: Sequence[str]) -> None:
    """Make `calls` fail with EIO below `under` until `faults` is removed. A rename replaces the file atomically."""
    beside = faults.with_suffix(".new")
    beside.write_text(json.dumps({"under": str(under), "errno": errno.EIO, "calls": calls}))
    beside.rename(faults)
