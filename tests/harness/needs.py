"""Tools from outside PyPI: found, or a loud skip, or (CI=true) a failure."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

JARS = {f"java-{version}": version for version in ("0.8.2.2", "3.9.1", "4.1.0")}
REMEDY = {
    "kcat": "apt-get install kcat",
    "librdkafka-dev": "apt-get install gcc libc6-dev librdkafka-dev",
    "java": "apt-get install default-jre-headless",
    "java-0.8.2.2": "a JRE, and make test-tools (or set ODRADEK_TEST_CACHE to a folder with kafka-0.8.2.2/libs)",
    "java-3.9.1": "a JRE, and make test-tools (or set ODRADEK_TEST_CACHE to a folder with kafka-3.9.1/libs)",
    "java-4.1.0": "a JRE, and make test-tools (or set ODRADEK_TEST_CACHE to a folder with kafka-4.1.0/libs)",
}


def cache() -> Path:
    """Where downloaded tools are kept: `ODRADEK_TEST_CACHE`, else `.cache` of the repository."""
    return Path(os.environ.get("ODRADEK_TEST_CACHE") or Path(__file__).parents[2] / ".cache")


def jars(version: str) -> Path:
    """The folder of all jars of Apache Kafka `version` (tests/tools/kafka_jars.sh)."""
    return cache() / f"kafka-{version}" / "libs"


def available(tool: str) -> bool:
    """Is `tool` (`kcat`, `java-4.1.0`, or any command) on this machine?"""
    if tool in JARS:
        version = JARS[tool]
        return bool(shutil.which("java")) and any(jars(version).glob(f"kafka_2.*-{version}.jar"))
    if tool == "librdkafka-dev":  # what the load clients are compiled with
        return bool(shutil.which("cc")) and Path("/usr/include/librdkafka/rdkafka.h").exists()
    return shutil.which(tool) is not None


def missing(tool: str) -> str | None:
    """None when `tool` is there; else one line that says what to install."""
    if available(tool):
        return None
    return f"{tool} is not installed: {REMEDY.get(tool, tool)}"


def must_not_skip() -> bool:
    """CI installs everything first, so there a missing tool is a failure."""
    return os.environ.get("CI", "").lower() == "true"
