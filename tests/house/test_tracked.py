"""Tracked files: no link leads out of the repository, and no file of the cache is among them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from .tree import ROOT

pytestmark = pytest.mark.live
LINK = "120000"


def tracked() -> dict[Path, str]:
    """The mode of each path that git tracks."""
    listed = subprocess.run(
        ["git", "ls-files", "-s", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    rows = (row.split("\t", 1) for row in listed.split("\0") if row)
    return {ROOT / path: facts.split()[0] for facts, path in rows}


def test_no_link_leads_out_of_the_repository() -> None:
    """A link to the cache of one machine would replace the cache of every other machine."""
    links = [path for path, mode in tracked().items() if mode == LINK]
    assert links, "src/odradek has some"
    assert [path for path in links if os.path.isabs(os.readlink(path))] == []
    assert [path for path in links if not path.resolve().is_relative_to(ROOT)] == []


def test_no_file_of_the_cache_is_tracked() -> None:
    assert [path for path in tracked() if ".cache" in path.relative_to(ROOT).parts] == []
