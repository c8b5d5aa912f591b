"""The summary of skipped tests has a few lines, whatever their number."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .tree import ROOT

pytestmark = pytest.mark.live

TESTS = """
import pytest
from tests.harness import needs

@pytest.mark.parametrize("tool", ["kcat", *["java-3.9.1"] * 3, "java-4.1.0", "hdfs", "kcat"])
def test_of_tools(tool):
    needs.skip(needs.missing(tool))

def test_of_root():
    pytest.skip("only root may")

def test_is_fine():
    pass
"""


def test_skips_with_the_same_remedy_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_skipping.py").write_text(TESTS)
    lacking = {"PATH": "", "ODRADEK_TEST_CACHE": str(tmp_path), "PYTHONPATH": str(ROOT), "CI": ""}
    words = ["-n", "2", "-p", "tests.harness.skips", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=tmp_path,
        env={**os.environ, **lacking},
        capture_output=True,
        text=True,
    )
    *_, heading, jars, kcat, root, closing = done.stdout.splitlines()
    assert heading.strip("= ") == "skipped" and "1 passed, 8 skipped" in closing, done
    assert jars == "    5 tests for want of hdfs, java-3.9.1, java-4.1.0: apt-get install maven && make test-tools"
    assert kcat == "    2 tests for want of kcat: apt-get install kcat"
    assert root == "    1 test: only root may"
