"""`make release`: what it refuses, and that what it builds is complete."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from .tree import ROOT, pyproject

pytestmark = pytest.mark.live

SCRIPT = ".ci/release"
VERSION = pyproject()["project"]["version"]


@pytest.mark.parametrize(
    ("heading", "line"),
    [
        ("## 0.0.1, 2026-01-01", f'has no section "## {VERSION}, DATE"'),
        (f"## {VERSION}, unreleased", f'says "{VERSION}, unreleased": write the date'),
    ],
)
def test_changelog_without_a_date_for_the_version_is_refused(tmp_path: Path, heading: str, line: str) -> None:
    (tmp_path / ".ci").mkdir()
    for name in (SCRIPT, "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(f"# Changes\n\n{heading}\n\nText.\n")
    done = subprocess.run([tmp_path / SCRIPT], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith(f"{SCRIPT}: CHANGELOG.md") and line in done.stderr
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
