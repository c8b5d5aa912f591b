""".ci/install.py lets uv install, and pip where pip's configuration says more than uv knows, or where uv fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .tree import ROOT

pytestmark = pytest.mark.live

ABSENT = "odradek-no-such-package"  # with PIP_NO_INDEX pip looks for it nowhere


def test_uv_installs_with_the_settings_of_pip(tmp_path: Path) -> None:
    done, log = installed(tmp_path, status=0, PIP_INDEX_URL="http://index", PIP_FIND_LINKS=f"/absent / {tmp_path}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert log == f"pip install {sys.executable} {ABSENT}: http://index /,{tmp_path}\n"


def test_variables_of_uv_go_first(tmp_path: Path) -> None:
    _, log = installed(tmp_path, status=0, PIP_INDEX_URL="http://index", UV_DEFAULT_INDEX="http://other")
    assert "http://other" in log


def test_settings_of_the_command_go_before_those_of_all(tmp_path: Path) -> None:
    """As in pip. Empty variables, and settings of another command, count for nothing."""
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = http://all\n[install]\nindex-url = http://own\n[download]\nno-index = true\n"
    )
    _, log = installed(tmp_path, status=0, PIP_CONFIG_FILE=str(tmp_path / "pip.conf"), PIP_INDEX_URL="")
    assert "http://own" in log


def test_uv_that_does_not_know_all_settings_is_not_used(tmp_path: Path) -> None:
    """It would ask another index. (The locked one or pip does, and here finds none.)"""
    done, log = installed(tmp_path, status=0, version="0.4.22", PIP_INDEX_URL="http://127.0.0.1:1", PIP_RETRIES="0")
    assert (done.returncode, log) == (1, "")


def test_pip_installs_what_uv_cannot(tmp_path: Path) -> None:
    unusable = {"PIP_INDEX_URL": "http://127.0.0.1:1", "PIP_RETRIES": "0"}
    done, log = installed(tmp_path, status=2, **unusable)
    assert done.returncode == 1
    assert "uv does not install these packages, for the reason above: pip does" in done.stderr
    assert f"No matching distribution found for {ABSENT}" in done.stderr
    assert log


def test_pip_installs_with_a_setting_that_uv_does_not_know(tmp_path: Path) -> None:
    done, log = installed(tmp_path, status=0, PIP_NO_INDEX="1")
    assert (done.returncode, log) == (1, "")
    assert f"No matching distribution found for {ABSENT}" in done.stderr


def installed(
    tmp_path: Path, status: int, version: str = "0.4.23", **variables: str
) -> tuple[subprocess.CompletedProcess[str], str]:
    """What install.py does with ABSENT beside a uv that ends with `status`, and what that uv notes of its call."""
    log = tmp_path / "log"
    called = f'echo "$1 $2 $5 $9: $UV_DEFAULT_INDEX $UV_FIND_LINKS" >> {log}; exit {status}'
    (tmp_path / "uv").write_text(f'#!/bin/sh\n[ "$1" != --version ] || {{ echo uv {version}; exit; }}\n{called}\n')
    (tmp_path / "uv").chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    env = {**kept, "PIP_CONFIG_FILE": os.devnull, "PATH": f"{tmp_path}:{os.environ['PATH']}", **variables}
    command: list[str | Path] = [sys.executable, ROOT / ".ci" / "install.py", ABSENT]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    return done, log.read_text() if log.exists() else ""
