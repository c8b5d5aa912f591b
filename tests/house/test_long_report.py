"""The report of a run that was broken off, and went on."""

from __future__ import annotations

from pathlib import Path

import pytest

from .nested import run_pytest

CONFTEST = """
from tests.harness import long_report
from tests.harness.long_report import add_options as pytest_addoption, register as pytest_configure
"""
TESTS = """
import os, signal
from pathlib import Path
import pytest

@pytest.mark.long
def test_passes():
    print("seen once")
    with Path("ran").open("a") as file:
        file.write("x")

def test_fails():
    assert False

def test_skips():
    pytest.skip("not here")

def test_ends_the_run():
    if Path("ended").exists():
        return
    Path("ended").touch()
    while "test_skips" not in Path(".pytest_cache/d/long/journal").read_text():
        pass  # it comes from another process
    os.kill(os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid(), signal.SIGKILL)

def test_last():
    pass
"""


def run(folder: Path, *words: str) -> str:
    """All tests there, with `words` to pytest; what it said at last."""
    done = run_pytest(folder, "-p", "xdist", "--dist", "loadfile", "--report", "tests/LONG.md", *words)
    return done.stdout + done.stderr


@pytest.mark.parametrize("jobs", ["0", "2"])
def test_it_goes_on(tmp_path: Path, jobs: str) -> None:
    """Its process is killed; neither what had passed before nor what had failed is run again, or told twice."""
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\nmarkers = long\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "conftest.py").write_text(CONFTEST)
    (tmp_path / "tests" / "test_some.py").write_text(TESTS)
    run(tmp_path, "-n", jobs)
    assert not (tmp_path / "tests" / "LONG.md").exists()
    assert "2 passed in" in run(tmp_path, "-n", jobs, "--rest").replace(", 3 deselected", "")
    said = (tmp_path / "tests" / "LONG.md").read_text()
    assert "3 passed, 1 failed, 1 skipped in 0 minutes, in 2 pieces." in said
    assert said.count("test_some.py::test_fails (call)") == said.count("seen once") == 1
    assert (tmp_path / "ran").read_text() == "x"
    assert "1 failed" in run(tmp_path, "-n", jobs, "--lf")
    again = (tmp_path / "tests" / "LONG.md").read_text().removeprefix(said)
    assert "What had failed, run again" in again and "0 passed, 1 failed, 0 skipped in 0 minutes." in again
    assert "5 passed" not in run(tmp_path, "-n", jobs)
    assert (tmp_path / "ran").read_text() == "xx", "a whole run runs every test"
