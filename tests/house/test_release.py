"""`make release`: what it refuses, and that what it builds is complete; and the list of released versions."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ..versions.released import VERSIONS
from .tree import ROOT, pyproject

SCRIPT = ".ci/release"
VERSION = pyproject()["project"]["version"]
NEWEST = list(VERSIONS)[-1]


def test_version_of_the_tree_follows_the_released_ones() -> None:
    """Step 3 of a release (CONTRIBUTING.md) is not forgotten."""
    numbers = [tuple(map(int, name.split("."))) for name in (*VERSIONS, VERSION.partition(".dev")[0])]
    assert numbers == sorted(set(numbers))


def test_each_released_version_has_a_date_in_the_changelog() -> None:
    dated = re.findall(r"^## (\S+), \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert [name for name in dated if name in VERSIONS] == list(reversed(VERSIONS))


@pytest.mark.live
@pytest.mark.parametrize(
    ("version", "heading", "line"),
    [
        ("9.9.0", "## 0.0.1, 2026-01-01", 'CHANGELOG.md has no section "## 9.9.0, DATE"'),
        ("9.9.0", "## 9.9.0, unreleased", 'CHANGELOG.md says "9.9.0, unreleased": write the date'),
        ("9.9.0.dev0", "## 9.9.0, 2026-01-01", "pyproject.toml says 9.9.0.dev0: write 9.9.0"),
        (NEWEST, f"## {NEWEST}, 2026-01-01", f"{NEWEST} is in .ci/released.toml: raise the version"),
    ],
)
def test_version_without_a_date_or_released_before_is_refused(
    tmp_path: Path, version: str, heading: str, line: str
) -> None:
    (tmp_path / ".ci").mkdir()
    for name in (SCRIPT, ".ci/released.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n')
    (tmp_path / "CHANGELOG.md").write_text(f"# Changes\n\n{heading}\n\nText.\n")
    done = subprocess.run([tmp_path / SCRIPT], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith(f"{SCRIPT}: {line}")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_draft_is_built_and_runs(tmp_path: Path) -> None:
    """The script itself compares the builds, and runs the wheel."""
    subprocess.run(["git", "clone", "-q", ROOT, tmp_path / "clone"], check=True)
    done = subprocess.run([tmp_path / "clone" / SCRIPT, "--draft"], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    built = sorted(path.name for path in (tmp_path / "clone" / "dist").iterdir())
    wheel = f"odradek-{VERSION}-py3-none-any.whl"
    assert built == sorted([f"odradek-{VERSION}{end}" for end in ("-licences.md", ".cdx.json", ".tar.gz")] + [wheel])
