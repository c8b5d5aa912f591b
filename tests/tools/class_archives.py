"""`make class-archives`: write the archives of classes of Java programs that the tests start often.

Each program is used once as the tests use it, and writes its archive when it ends. Spark's Python modules are compiled.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..harness import class_archives
from ..harness.apache import Apache
from ..harness.java import LIGHT
from ..harness.needs import missing
from ..harness.zookeeper import MAIN, ZooKeeper
from . import spark_python

VERSIONS = "3.9.1", "4.1.0"


@contextlib.contextmanager
def written(archive: Path) -> Iterator[list[str]]:
    """Java's option that writes a temporary file, which becomes `archive` when the block ends; no block that fails
    leaves a broken archive.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.unlink(missing_ok=True)  # a program that reads one cannot write one
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        file = Path(folder) / archive.name
        yield [f"-XX:ArchiveClassesAtExit={file}", *class_archives.QUIET]
        file.rename(archive)
    print(f"wrote {archive}")


def spark() -> None:
    line = [sys.executable, "-m", "tests.tools.spark_classes"]
    with written(class_archives.spark()) as options:
        subprocess.run(line, env={**os.environ, "SPARK_SUBMIT_OPTS": " ".join([*LIGHT, *options])}, check=True)


def zookeeper(folder: Path) -> None:
    with written(class_archives.kafka(VERSIONS[0], MAIN)) as options:
        server = ZooKeeper(folder, options=options).start().process
        assert server is not None
        server.terminate()
        server.wait()


def broker(version: str, folder: Path) -> None:
    folder.mkdir()
    apache = Apache(version, folder)
    apache.format()
    with written(class_archives.kafka(version)) as options:
        apache.spawn(options)
        apache.await_ready()
        apache.stop()


def main() -> None:
    for tool in ("java", *(f"java-{version}" for version in VERSIONS)):
        if why := missing(tool):
            sys.exit(why)
    spark_python.add_bytecode()
    spark()
    with tempfile.TemporaryDirectory() as folder:
        zookeeper(Path(folder))
        for version in VERSIONS:
            broker(version, Path(folder, version))


if __name__ == "__main__":
    main()
