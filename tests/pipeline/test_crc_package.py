"""Spark's Python processes import crc32c without reading the archives on their path."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest


@pytest.mark.live
@pytest.mark.smoke
@pytest.mark.parametrize("name", ["spark.jar", "pyspark.zip"])
def test_archives_on_the_path_are_not_searched(tmp_path: Path, name: str) -> None:
    """The archive claims to have the package's metadata; the path is as before afterwards."""
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        archive.writestr("crc32c-0.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: crc32c\nVersion: 0.0\n")
    jar = tmp_path / "other.jar"
    zipfile.ZipFile(jar, "w").close()
    code = "import sys; was = list(sys.path)\nimport odradek.pipeline.wire\nfrom kafka.record import util\n"
    code += "import crc32c\nassert sys.path == was\nprint(crc32c.__version__)"
    path = os.pathsep.join(map(str, [tmp_path / name, jar]))
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == version("crc32c") != "0.0"
