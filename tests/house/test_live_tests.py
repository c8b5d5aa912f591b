"""A test that starts a program without the mark `live` fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from .nested import run_pytest

pytestmark = pytest.mark.live

TESTS = """
import os, subprocess, pytest

def start():
    subprocess.run(["true"], check=True)

@pytest.fixture(scope="module")
def started():
    start()

@pytest.mark.live
def test_live():
    start()

@pytest.mark.long
def test_long():
    start()

def test_unmarked():
    start()

def test_unmarked_by_its_fixture(started):
    pass

def test_fork():
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
"""


def test_unmarked_test_that_starts_a_program_fails(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_starting.py").write_text(TESTS)
    done = run_pytest(tmp_path, "-p", "tests.harness.live", "-q", "-rfE", "--tb=line", "-W", "ignore")
    assert "3 passed" in done.stdout and "1 failed" in done.stdout and "1 error" in done.stdout, done.stdout
    assert "test_starting.py::test_unmarked starts" in done.stdout
    assert "test_starting.py::test_unmarked_by_its_fixture starts" in done.stdout
