"""Spark's Python workers skip imported modules and zip files in the work between two tasks."""

from __future__ import annotations

import gc
import importlib
import sys
import zipfile
from pathlib import Path
from zipimport import zipimporter

import pytest

from odradek.pipeline import between_tasks


def test_zip_importers_are_dropped_between_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later imports from the zip file still work."""
    path = tmp_path / "some.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("zipped_first.py", "name = 1")
        archive.writestr("zipped_second.py", "name = 2")
    monkeypatch.syspath_prepend(str(path))
    assert importlib.import_module("zipped_first").name == 1
    assert isinstance(sys.path_importer_cache[str(path)], zipimporter)
    between_tasks.spare()
    assert not any(isinstance(finder, zipimporter) for finder in sys.path_importer_cache.values())
    assert importlib.import_module("zipped_second").name == 2


def test_imported_objects_are_frozen_once() -> None:
    between_tasks._freeze.cache_clear()
    between_tasks.spare()
    frozen = gc.get_freeze_count()
    try:
        assert frozen > 1000 and len(gc.get_objects()) < frozen
        kept: list[list[int]] = [[] for _ in range(100)]
        between_tasks.spare()
        assert gc.get_freeze_count() <= frozen and len(kept) == 100
    finally:
        gc.unfreeze()
