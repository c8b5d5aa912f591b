"""The report of a long run that is killed and resumed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from .nested import run_pytest

pytestmark = pytest.mark.live

CONFTEST = """
from tests.harness import long_report
from tests.harness.long_report import add_options as pytest_addoption, register as pytest_configure
"""
OTHER_TESTS = """
def test_is_not_long():
    assert False
"""
TESTS = """
import os, signal
from pathlib import Path
import pytest

pytestmark = pytest.mark.long

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
        pass  # another process writes it
    os.kill(os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid(), signal.SIGKILL)

def test_last():
    pass
"""


def run(folder: Path, *words: str) -> str:
    """Run all tests there, with `words` to pytest; return its output."""
    done = run_pytest(folder, "-p", "xdist", "--dist", "loadfile", "-m", "long", "--report", "tests/LONG.md", *words)
    return done.stdout + done.stderr


@pytest.mark.parametrize("jobs", ["0", "2"])
def test_killed_run_resumes_with_the_remaining_tests(tmp_path: Path, jobs: str) -> None:
    """No test runs or is reported twice. (A folder named long marks no test: the others do not run.)"""
    folder = tmp_path / "long"
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\ntestpaths = tests\nmarkers = long\n")
    (folder / "tests").mkdir()
    (folder / "tests" / "conftest.py").write_text(CONFTEST)
    (folder / "tests" / "test_some.py").write_text(TESTS)
    (folder / "tests" / "test_others.py").write_text(OTHER_TESTS)
    run(folder, "-n", jobs)
    assert not (folder / "tests" / "LONG.md").exists()
    assert "2 passed in" in run(folder, "-n", jobs, "--rest").replace(", 4 deselected", "")
    said = (folder / "tests" / "LONG.md").read_text()
    assert re.search(r"3 passed, 1 failed, 1 skipped in \d minutes, in 2 pieces\.", said)
    assert re.findall(r"^\| tests/test_some.py::(\w+) \|", said, re.M) == sorted(re.findall(r"def (test_\w+)", TESTS))
    assert said.count("test_some.py::test_fails (call)") == said.count("seen once") == 1
    assert (folder / "ran").read_text() == "x"
    assert "1 failed" in run(folder, "-n", jobs, "--lf")
    again = (folder / "tests" / "LONG.md").read_text().removeprefix(said)
    assert "What had failed, run again" in again
    assert re.search(r"0 passed, 1 failed, 0 skipped in \d minutes\.", again)
    assert "5 passed" not in run(folder, "-n", jobs)
    assert (folder / "ran").read_text() == "xx", "a whole run runs every test"


FAILS_ONCE = """
from pathlib import Path
import pytest

pytestmark = pytest.mark.long

def test_passes():
    with Path("ran").open("a") as file:
        file.write("x")
    assert Path("ran").read_text() == "x"
    print("seen once")

def test_says():
    print("12 rounds | of 3\\n\\nall good")

def test_fails_once():
    Path("tries").open("a").write("x")
    assert Path("tries").read_text() == "xx"

def test_skips():
    pytest.skip("not here")

def test_goes():
    pass
"""
WAITS = """
import os, signal, time
import pytest

pytestmark = pytest.mark.long

def test_runs():
    pass

def test_is_interrupted():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)

def test_does_not_run():
    pass
"""


def test_interrupted_run_names_what_did_not_run(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\nmarkers = long\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "conftest.py").write_text(CONFTEST)
    (tmp_path / "tests" / "test_some.py").write_text(WAITS)
    run(tmp_path, "-n", "0")
    said = (tmp_path / "tests" / "LONG.md").read_text()
    assert "1 passed, 0 failed, 0 skipped, 2 not run in " in said
    not_run = "## Not run\n\n- tests/test_some.py::test_does_not_run\n- tests/test_some.py::test_is_interrupted\n"
    assert not_run in said


def test_failed_test_that_did_not_run_again_is_named(tmp_path: Path) -> None:
    """Also in the file after the next one."""
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\nmarkers = long\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "conftest.py").write_text(CONFTEST)
    some = tmp_path / "tests" / "test_some.py"
    some.write_text(WAITS.replace("os.kill(os.getpid(), signal.SIGINT)", "assert False"))
    run(tmp_path, "-n", "0")
    some.write_text(WAITS + WAITS[WAITS.index("def test_does") :].replace("test_does", "test_still_does"))
    for _ in range(2):
        shutil.rmtree(tmp_path / ".pytest_cache")
        some.write_text(some.read_text().replace("def test_runs", "def test_runs_first"))
        run(tmp_path, "-n", "0", "--rest")
        said = (tmp_path / "tests" / "LONG.md").read_text()
        assert "## Failed before, not run again\n\n- tests/test_some.py::test_is_interrupted (before)\n" in said


def test_run_goes_on_behind_the_file_where_there_is_no_journal(tmp_path: Path) -> None:
    """As on another machine: what has passed keeps its result and words, what failed or did not run has its turn."""
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\nmarkers = long\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "conftest.py").write_text(CONFTEST)
    some = tmp_path / "tests" / "test_some.py"
    some.write_text(FAILS_ONCE)
    run(tmp_path, "-n", "0")
    former = (tmp_path / "tests" / "LONG.md").read_text()
    assert "3 passed, 1 failed, 1 skipped in " in former
    (tmp_path / "tests" / "LONG.md").write_text(
        former.replace("test_says | passed | 0 | 1 |", "test_says | passed | 0 |")
    )
    some.write_text(FAILS_ONCE.replace("def test_goes", "def test_has_gone"))
    shutil.rmtree(tmp_path / ".pytest_cache")
    assert re.search(r"2 passed, 3 deselected in ", run(tmp_path, "-n", "0", "--rest"))
    said = (tmp_path / "tests" / "LONG.md").read_text()
    assert re.search(r"4 passed, 0 failed, 1 skipped in \d minutes, in 2 pieces\.", said)
    rows = re.findall(r"^\| tests/test_some.py::(\w+) \| (\w+) \| \d+ \| (\d|–) \|$", said, re.M)
    assert rows == [
        ("test_fails_once", "passed", "2"),
        ("test_has_gone", "passed", "2"),
        ("test_passes", "passed", "1"),
        ("test_says", "passed", "–"),
        ("test_skips", "skipped", "1"),
    ]
    assert said.count("12 rounds | of 3\n\nall good\n") == said.count("seen once\n") == 1
    assert "5 deselected" in run(tmp_path, "-n", "0", "--rest"), "the journal is there again"
