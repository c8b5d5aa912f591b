"""The code of a released version is what a broker gets, and a clone that lacks it is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ..harness.broker import Broker
from . import released as released_versions
from .released import HERE, VERSIONS, code_of, install

pytestmark = pytest.mark.live

WHERE = "import os; from odradek.broker import cli; print(os.path.realpath(cli.__file__))"


def test_installed_code_is_what_processes_import(released: Path, tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    for code in (released, HERE, released):
        install(broker, code)
        done = subprocess.run([sys.executable, "-c", WHERE], env=broker.env, capture_output=True, text=True, check=True)
        assert Path(done.stdout.strip()) == (code / "odradek" / "broker" / "cli.py").resolve()


def test_clone_without_a_version_is_named_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "init", "-q", tmp_path / "clone"], check=True)
    monkeypatch.setattr(released_versions, "ROOT", tmp_path / "clone")
    monkeypatch.setenv("CI", "true")
    version = next(iter(VERSIONS))
    with pytest.raises(pytest.fail.Exception) as failed:
        code_of(version, tmp_path)
    assert str(failed.value).startswith(f"{version} is not in this clone: git fetch --unshallow")
    assert "\n" not in str(failed.value)
