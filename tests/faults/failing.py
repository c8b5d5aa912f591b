"""System calls of a broker with `SEAM` on its path fail while the file that ODRADEK_TEST_FAULTS names says so."""

from __future__ import annotations

import errno
import json
from collections.abc import Sequence
from pathlib import Path


def fail(faults: Path, under: Path, calls: Sequence[str]) -> None:
    """From now on `calls` fail with EIO below `under`, until `faults` is removed. The file is replaced in one step."""
    beside = faults.with_suffix(".new")
    beside.write_text(json.dumps({"under": str(under), "errno": errno.EIO, "calls": calls}))
    beside.rename(faults)
