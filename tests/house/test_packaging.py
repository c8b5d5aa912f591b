"""The package has every folder, its wheel runs outside the clone, and the locks fit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.harness.process import command_words, die_with_parent, free_port, wait_until

from .test_first_minutes import try_commands
from .tree import ROOT, package_dirs, pyproject, top_folders

pytestmark = pytest.mark.live

SAMPLES = ROOT / "tests" / "samples"
_PIP = ["-m", "pip", "--quiet", "--disable-pip-version-check"]
NOT_PACKAGES = {"tests", "src", "data", "build", "dist"}


def test_every_folder_of_modules_is_a_package() -> None:
    """A folder without a link in src/odradek, or without an __init__.py, is missing from the wheel."""
    folders = {path.parent for path in ROOT.glob("[a-z]*/**/*.py") if not _outside(path.parent)}
    assert folders == set(package_dirs().values())


def _outside(folder: Path) -> bool:
    top = folder.relative_to(ROOT).parts[0]
    return top in NOT_PACKAGES or top.endswith(".egg-info") or top.startswith(".")


def test_locks_hold_every_dependency() -> None:
    project = pyproject()["project"]
    assert _missing(project["dependencies"], ["requirements.lock"]) == []
    more = project["optional-dependencies"]
    extras = ("test", "arrow", "pytest", "load", "bench", "registry", "spark", "delta", "zookeeper")
    tested = [wanted for extra in extras for wanted in more[extra]]
    assert _missing(tested, ["requirements.lock", "requirements-test.lock"]) == []
    assert _missing(more["release"], ["requirements.lock", "requirements-release.lock"]) == []
    assert _missing(more["demo"], ["requirements-test.lock", "requirements-demo.lock"]) == []


def _missing(requirements: list[str], locks: list[str]) -> list[str]:
    from packaging.requirements import Requirement

    pinned = dict(line.split("==") for lock in locks for line in _lines(ROOT / lock))
    versions = {_normal(name): version for name, version in pinned.items()}
    wanted = [Requirement(text) for text in requirements]
    return [str(one) for one in wanted if versions.get(_normal(one.name), "0") not in one.specifier]


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if not line.startswith("#")]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


class Wheel(NamedTuple):
    """The built wheel, and the copy of the tree that it was built from."""

    file: Path
    source: Path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    """Built from a copy of what it needs, far from the clone."""
    room = tmp_path_factory.mktemp("wheel")
    source = room / "source"
    source.mkdir()
    for name in [
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "src",
        *[path.name for path in top_folders()],
    ]:
        _copy(ROOT / name, source / name)
    pip = [sys.executable, *_PIP]
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", room, source], check=True, cwd=room
    )
    return Wheel(next(room.glob("odradek-*.whl")), source)


class Installed(NamedTuple):
    """`bin` of the fresh environment, and the copy of the tree that its wheel was built from."""

    bin: Path
    source: Path


@pytest.fixture(scope="module")
def installed(wheel: Wheel, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """A fresh environment that has the wheel and its dependencies, far from the clone."""
    room = tmp_path_factory.mktemp("installed")
    venv.create(room / "env", with_pip=True)
    python = room / "env" / "bin" / "python"
    subprocess.run(
        [python, *_PIP, "install", "--constraint", ROOT / "requirements.lock", wheel.file], check=True, cwd=room
    )
    return Installed(python.parent, wheel.source)


def _copy(here: Path, there: Path) -> None:
    if here.is_dir():
        shutil.copytree(here, there, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(here, there)


def test_the_wheel_runs_outside_the_clone(installed: Installed, tmp_path: Path) -> None:
    done = subprocess.run([installed.bin / "odradek", "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Usage: odradek" in done.stdout


def test_the_wheel_has_every_module(installed: Installed, tmp_path: Path) -> None:
    """Each package of the wheel comes from the fresh environment, with as many modules as its folder."""
    code = "import importlib, sys; print(*importlib.import_module(sys.argv[1]).__path__)"
    for package, folder in package_dirs().items():
        done = subprocess.run(
            [installed.bin / "python", "-c", code, package], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        there = Path(done.stdout.strip())
        assert there.is_relative_to(installed.bin.parent)
        assert {path.name for path in there.glob("*.py")} == {
            path.name for path in (installed.source / folder.relative_to(ROOT)).glob("*.py")
        }


def test_the_wheel_has_the_pytest_plugin(installed: Installed, tmp_path: Path) -> None:
    """By the entry point that pytest looks for; without pytest in the environment, which is an extra."""
    code = "import importlib.metadata as it; print(*(one.value for one in it.entry_points(group='pytest11')))"
    done = subprocess.run([installed.bin / "python", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == ["odradek.inside.pytest_plugin"], done.stderr


def test_the_wheel_has_the_log_handler(installed: Installed, tmp_path: Path) -> None:
    """`odradek.logging` is a module of src, not a folder; and it needs nothing but the wheel's dependencies."""
    code = "import logging, odradek.logging; print(issubclass(odradek.logging.KafkaHandler, logging.Handler))"
    done = subprocess.run([installed.bin / "python", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


def test_the_wheel_has_the_tables(installed: Installed, tmp_path: Path) -> None:
    """`odradek.arrow` is a module of src as well; without the extra it names what is missing."""
    done = subprocess.run(
        [installed.bin / "python", "-c", "import odradek.arrow"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stderr.splitlines()[-1] == "ImportError: odradek.arrow needs pyarrow: pip install 'odradek[arrow]'"


def test_the_wheel_has_the_systemd_units(installed: Installed, tmp_path: Path) -> None:
    """The units name the environment that has the wheel."""
    subprocess.run([installed.bin / "odradek", "systemd", "install", "--prefix", tmp_path], cwd=tmp_path, check=True)
    unit = (tmp_path / "etc/systemd/system/odradek-worker@.service").read_text()
    assert f"ExecStart={installed.bin}/python" in unit


def test_the_wheel_has_the_page_of_the_console(installed: Installed, tmp_path: Path) -> None:
    page = Path("broker", "exporter", "console", "page")
    (there,) = installed.bin.parent.glob(f"lib/python*/site-packages/odradek/{page}")
    assert {path.name for path in there.iterdir()} == {path.name for path in (ROOT / page).iterdir()}


def test_broker_from_the_wheel_runs_the_readme_commands(installed: Installed, tmp_path: Path) -> None:
    """The broker also stops with exit code 0."""
    port = free_port()
    settings = [f"listeners=PLAINTEXT://127.0.0.1:{port}", f"log.dirs={tmp_path / 'data'}"]
    words = [word for setting in settings for word in ("--override", setting)]
    log = tmp_path / "broker.log"
    with log.open("wb") as out:
        broker = subprocess.Popen(
            [installed.bin / "odradek", "start", *words],
            cwd=tmp_path,
            stdout=out,
            stderr=out,
            preexec_fn=die_with_parent,
        )
    try:
        wait_until(lambda: "is ready" in log.read_text() or broker.poll() is not None, 60, "the broker is ready")
        try_commands(installed.bin / "odradek", f"127.0.0.1:{port}", tmp_path)
    finally:
        broker.terminate()
        status = broker.wait(60)
    assert status == 0, log.read_text()


@pytest.mark.slow
def test_sample_project_passes_its_tests_with_the_wheel_and_leaves_nothing(
    wheel: Wheel, short_folder: Path, tmp_path: Path
) -> None:
    """Nothing of the clone is on its path. The wheel's dependencies are those that these tests have, by the lock files:
    that its own list is complete is what `installed` shows, and extras are compared with the locks."""
    python, project = _environment_with(wheel, tmp_path / "env"), tmp_path / "orders"
    shutil.copytree(SAMPLES / "orders", project)
    assert _module_of(python, project).is_relative_to(tmp_path / "env")
    done = _pytest(python, project, short_folder)
    assert done.returncode == 0 and "4 passed" in done.stdout, done.stdout + done.stderr
    assert [path for path in short_folder.rglob("*") if path.is_file() or path.name.startswith("odradek-broker")] == []
    assert [one for one in psutil.process_iter() if str(short_folder) in " ".join(command_words(one))] == []


def _environment_with(wheel: Wheel, folder: Path) -> Path:
    """The Python of a new environment that has the wheel, and sees the packages of this one behind its own."""
    venv.create(folder, with_pip=False)
    site = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, *_PIP, "--python", python, "install", "--no-deps", wheel.file], check=True)
    Path(site, "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return python


def _module_of(python: Path, project: Path) -> Path:
    code = "import odradek; print(odradek.__file__)"
    return Path(subprocess.run([python, "-c", code], cwd=project, capture_output=True, text=True, check=True).stdout)


def _pytest(python: Path, project: Path, temporary: Path) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON", "ODRADEK"))}
    return subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project, env={**kept, "TMPDIR": str(temporary)}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
