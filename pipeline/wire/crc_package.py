"""Import the package crc32c, which kafka-python uses, without the archives of Spark.

It looks for its own version in every entry of Python's path. In Spark's Python processes the first entries are zips and
a jar with thousands of files, and to list them takes each process half a second of CPU time.
"""

from __future__ import annotations

import sys
from contextlib import suppress

_ARCHIVES = (".zip", ".jar")


def load() -> None:
    """Load it from a folder of the path, in Spark's processes; elsewhere kafka-python itself loads it as quickly."""
    path = sys.path
    if not any(entry.endswith(".jar") for entry in path):
        return
    sys.path = [entry for entry in path if not entry.endswith(_ARCHIVES)]
    try:
        with suppress(ImportError):  # it is in an archive, or missing: both are kafka-python's to say
            import crc32c  # noqa: F401
    finally:
        sys.path = path
