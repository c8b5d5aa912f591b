"""The make targets exist, and one line says what to do on a machine without a prerequisite."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .tree import ROOT

pytestmark = pytest.mark.live

TARGETS = ["install", "run", "test", "test-long", "test-tools", "lint", "format", "bench", "wheel", "clean", "help"]
TARGETS += ["locust", "demo"]
PREREQUISITES = ROOT / ".ci" / "prerequisites"


@pytest.mark.parametrize("target", TARGETS)
def test_target_exists(target: str) -> None:
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_help_names_every_target() -> None:
    """A target that is declared phony and missing in `make help` cannot be found."""
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(TARGETS) <= set(phony[1].split())
    for target in TARGETS:
        assert f"make {target} " in shown or target == "help"


def lacking(tmp_path: Path, python: str = "python3", shell: str = "", status: int = 1, **programs: str) -> str:
    """The output of .ci/prerequisites with these scripts first on PATH: one line, and exit code `status`."""
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", f"{shell} exec {PREREQUISITES} {python}"], env=env, capture_output=True, text=True
    )
    assert done.returncode == status
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_this_machine_has_all_prerequisites() -> None:
    done = subprocess.run([PREREQUISITES, "python3"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_missing_python_is_reported(tmp_path: Path) -> None:
    assert "install Python 3.11" in lacking(tmp_path, python="no-such-python")


def test_old_python_is_reported(tmp_path: Path) -> None:
    old = 'case "$1" in -V) echo Python 3.9.2;; *) exit 1;; esac'
    programs: dict[str, Any] = {"python3.9": old}
    assert re.search(r"Python 3\.9\.2 is too old.*PYTHON=", lacking(tmp_path, "python3.9", **programs))


def test_missing_venv_module_is_reported(tmp_path: Path) -> None:
    script = f'case "$2" in *ensurepip*) exit 1;; *) exec {shutil.which("python3")} "$@";; esac'
    programs: dict[str, Any] = {"bare-python": script}
    assert "apt-get install python3-venv" in lacking(tmp_path, "bare-python", **programs)


def test_first_usable_python_is_chosen(tmp_path: Path) -> None:
    bare, good = tmp_path / "bare", tmp_path / "good"
    bare.write_text('#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; esac\n')
    good.write_text(f'#!/bin/sh\nexec {shutil.which("python3")} "$@"\n')
    bare.chmod(0o755), good.chmod(0o755)
    assert chosen(bare, tmp_path / "absent", good, "python3") == str(good)
    assert chosen(bare) == "python3"
    assert chosen() in ("/usr/bin/python3", "python3")


def chosen(*candidates: Path | str) -> str:
    """The one of `candidates` that .ci/python chooses."""
    return subprocess.check_output([ROOT / ".ci" / "python", *candidates], text=True).strip()


def test_low_limit_of_open_files_is_reported(tmp_path: Path) -> None:
    assert "only 512 open files" in lacking(tmp_path, shell="ulimit -n 512;", status=0)


def test_small_dev_shm_is_reported(tmp_path: Path) -> None:
    small = "echo Filesystem; echo shm 65536 60000 5536 92% /dev/shm"
    assert "/dev/shm has 5 MiB free" in lacking(tmp_path, df=small, status=0)


def test_install_stops_without_python(tmp_path: Path) -> None:
    """`make install` prints the line and builds no environment."""
    clone = tmp_path / "clone"
    shutil.copytree(ROOT / ".ci", clone / ".ci")
    for name in ["Makefile", "pyproject.toml", "requirements.lock", "requirements-uv.lock"]:
        shutil.copy(ROOT / name, clone / name)
    done = subprocess.run(["make", "install", "PYTHON=no-such-python"], cwd=clone, capture_output=True, text=True)
    assert done.returncode != 0
    assert "install Python 3.11" in done.stderr
    assert not (clone / ".venv").exists()
