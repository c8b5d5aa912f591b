"""How `.ci/run` treats failing tests: a nested pytest runs a project that has such tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from .nested import run_pytest
from .tree import ROOT

pytestmark = pytest.mark.live

SECONDS = 240
HEAD = """
import os, pathlib, signal, pytest

def nth(name):
    '''How often this was called, in all processes.'''
    with open(f"{name}.calls", "ab") as file:
        file.write(b"x")
        file.flush()
        return os.fstat(file.fileno()).st_size
"""
ONCE = """
def test_fails_once():
    print("a word of the log")
    assert nth("once") > 1, "for the first time"
"""
ALWAYS = """
def test_fails_always():
    assert not nth("always")
"""
NOW_AND_THEN = """
def test_fails_again_the_third_time():
    assert nth("now") == 2
"""
SKIPS = """
def test_fails_then_skips():
    assert nth("skips") > 1
    pytest.skip("now")
"""
SETUP = """
@pytest.fixture
def broken():
    assert nth("setup") > 1, "no setup"

def test_errs_in_setup(broken):
    pass
"""
TEARDOWN = """
@pytest.fixture
def leaving():
    yield
    assert nth("teardown") > 1, "no teardown"

def test_errs_in_teardown(leaving):
    pass
"""
LEAK = """
left = []

@pytest.fixture(autouse=True, scope="module")
def nothing_left():
    yield
    assert not left

def test_leaves_something():
    left.append(1)

def test_gets_the_blame():
    pass
"""
CRASH = """
def test_kills_its_worker():
    if nth("crash") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
"""
HANGS = """
@pytest.fixture
def waiting_for_what_is_left():
    yield
    signal.pause()

@pytest.fixture
def waiting_too(waiting_for_what_is_left):
    yield
    signal.pause()

@pytest.mark.timeout(1)
def test_fails_and_waits(waiting_too):
    assert nth("hangs") > 1
"""
FINE = """
def test_is_fine():
    pass
"""
ALSO_FINE = """
def test_is_fine_too():
    pass
"""
MANY = """
@pytest.mark.parametrize("number", range(11))
def test_one_of_many(number):
    assert nth(f"many-{number}") > 1
"""


class Run(NamedTuple):
    """A run that has ended: its last line, and the report."""

    status: int
    said: str
    report: str

    @property
    def closing(self) -> str:
        return re.sub(r" in .*", "", self.said.splitlines()[-1].strip("= "))

    @property
    def flaky(self) -> set[str]:
        return set(re.findall(r"^FLAKY: \w+\.py::(\w+): failed", self.report, re.MULTILINE))


def run(folder: Path, jobs: int = 0, *more: str, **files: str) -> Run:
    """Run test files of these names in a project of their own, with `more` words to pytest."""
    (folder / "pytest.ini").touch()
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(HEAD + text)
    words = ["-p", "xdist", "-n", str(jobs), "--dist", "loadfile", "-p", "tests.harness.loadfile"]
    report = folder.parent / f"{folder.name}-report"  # elsewhere, as in CI
    given = [*words, "-p", "tests.harness.flaky", f"--flaky={report}", *more]
    done = run_pytest(folder, *given, seconds=SECONDS)
    assert f"rootdir: {folder}\n" in done.stdout, "pytest does not read the project's settings"
    return Run(done.returncode, done.stdout, report.read_text() if report.exists() else "")


def test_tests_that_fail_once_do_not_fail_the_run(tmp_path: Path) -> None:
    """The failures are in a call, a setup, a teardown, and the death of a worker."""
    done = run(tmp_path, 2, once=ONCE + FINE, setup=SETUP, teardown=TEARDOWN, crash=CRASH)
    assert done.status == 0, done.said
    assert done.closing == "2 passed, 4 flaky"  # the test with the failed teardown also counts as passed
    assert done.flaky == {"test_fails_once", "test_errs_in_setup", "test_errs_in_teardown", "test_kills_its_worker"}
    for line in (
        "AssertionError: for the first time",
        "a word of the log",
        "AssertionError: no setup",
        "crashed while",
    ):
        assert re.search(f"^FLAKY: \\| .*{line}", done.report, re.MULTILINE), done.report
    assert all(line.startswith("FLAKY: ") for line in done.report.splitlines())
    assert {path.stat().st_size for path in tmp_path.glob("*.calls")} == {3}


@pytest.mark.parametrize("again", [ALWAYS, NOW_AND_THEN, SKIPS, LEAK])
def test_second_failure_of_a_test_fails_the_run(tmp_path: Path, again: str) -> None:
    """A failure in either rerun counts; so does a module teardown that fails only after all tests of its file."""
    done = run(tmp_path, once=ONCE, again=again)
    assert (done.status, done.flaky) == (1, {"test_fails_once"}), done.said
    assert re.search(r"1 (failed|error)", done.closing) and "1 flaky" in done.closing


CRASHES = [(1, CRASH), (2, FINE + CRASH)]


@pytest.mark.parametrize(
    ("jobs", "file"),
    [(1, FINE + CRASH + ALSO_FINE), *(pytest.param(*case, marks=pytest.mark.long) for case in CRASHES)],
)
def test_other_tests_of_a_killed_worker_run_once(tmp_path: Path, jobs: int, file: str) -> None:
    """This holds for tests before the kill, after it, and in other files."""
    done = run(tmp_path, jobs, a=FINE, b=file, c=FINE, d=FINE)
    assert (done.status, done.closing) == (0, f"{3 + file.count('fine')} passed, 1 flaky"), done.said


def test_a_failed_test_whose_teardown_hangs_is_named(tmp_path: Path) -> None:
    """The time limit applies to each fixture of the test; the tests after it run."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p pytest_timeout -p tests.harness.time_limits\n")
    done = run(tmp_path, hangs=HANGS + FINE)
    assert (done.status, done.closing) == (1, "1 failed, 1 passed, 1 error"), done.said
    assert "test_hangs.py::test_fails_and_waits: failed again" in done.said


def test_reruns_end_with_their_time_budget(tmp_path: Path) -> None:
    """Without time left, the tests have failed, and the output says why."""
    (tmp_path / "no_time.py").write_text("from tests.harness import flaky\nflaky.BUDGET = 0\n")
    done = run(tmp_path, 0, "-p", "no_time", once=ONCE)
    assert (done.status, done.closing, done.report) == (1, "1 failed", ""), done.said
    assert "not done within 0 s" in done.said


def test_run_without_failures_has_no_report(tmp_path: Path) -> None:
    done = run(tmp_path, 2, fine=FINE)
    assert (done.status, done.closing, done.report) == (0, "1 passed", "")


def test_many_failing_tests_are_not_run_again(tmp_path: Path) -> None:
    done = run(tmp_path, many=MANY)
    assert (done.status, done.closing, done.report) == (1, "11 failed", "")
    assert {path.stat().st_size for path in tmp_path.glob("*.calls")} == {1}


@pytest.mark.parametrize("jobs", [0, 2])
def test_a_file_that_cannot_be_imported_fails_the_run(tmp_path: Path, jobs: int) -> None:
    done = run(tmp_path, jobs, once=ONCE, broken="raise RuntimeError")
    assert done.status != 0 and done.report == ""


@pytest.mark.parametrize("target", ["test", "test-rest"])
@pytest.mark.parametrize("status", [0, 1])
def test_ci_prints_the_report_last(tmp_path: Path, status: int, target: str) -> None:
    """`.ci/run` exits as the make target does. The stubs install, fetch and test nothing."""
    programs = tmp_path / "programs"
    for script in (
        programs / "make",
        programs / "apt-get",
        *(tmp_path / "tests/tools" / f"{name}.sh" for name in ("kafka_jars", "maven_jars", "registry")),
    ):
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text("#!/bin/sh\n")
        script.chmod(0o755)
    (programs / "make").write_text(
        f'#!/bin/sh\n[ "$1" = {target} ] || exit 0\n'
        f'for report in $2; do :; done\necho "FLAKY: one" > "${{report#--flaky=}}"\necho "== 1 passed"\nexit {status}\n'
    )
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    (tmp_path / ".ci/bare").write_text("#!/bin/sh\n")
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", tmp_path / ".ci/run"], env=env, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "FLAKY: one" and lines[lines.index(f"== make {target}") + 1] == "== 1 passed"
