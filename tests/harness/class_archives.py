"""Archives of the classes that Java programs of the tests load: with one, a program starts in half the CPU time.

`make class-archives` writes them (tests/tools/class_archives.py). Java takes an archive only if its own build and the
class path are those of the archive, and ignores it otherwise (application class-data sharing, JEP 310 and 350).
"""

from __future__ import annotations

import sys
from pathlib import Path

from .needs import cache

BROKER = "kafka.Kafka"
OWN = (BROKER, "org.apache.zookeeper.server.quorum.QuorumPeerMain")  # programs with an archive of their own
QUIET = ["-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]  # an archive that does not fit is no warning


def spark() -> Path:
    """The archive of Spark's driver: its class path is in this Python's environment."""
    return Path(sys.prefix) / "spark.jsa"


def kafka(version: str, main: str = BROKER) -> Path:
    """The archive of the program `main` of Apache Kafka `version`; the tools share the broker's."""
    return cache() / "classes" / f"{version}-{main if main in OWN else BROKER}.jsa"


def options(archive: Path) -> list[str]:
    """Java's options to start with `archive`; none without it."""
    return [f"-XX:SharedArchiveFile={archive}", *QUIET] if archive.exists() else []
