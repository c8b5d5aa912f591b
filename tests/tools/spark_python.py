"""Adds bytecode to PySpark's zips: Spark's Python processes import from them, and otherwise compile each module."""

from __future__ import annotations

import compileall
import shutil
import tempfile
from pathlib import Path
from py_compile import PycInvalidationMode

import pyspark


def add_bytecode() -> None:
    """Write the bytecode of each module next to it into PySpark's zips, in this Python's environment."""
    for archive in (Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip"):
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            modules, new = Path(folder, "modules"), Path(folder, archive.name)
            shutil.unpack_archive(archive, modules)
            _compile(modules, archive)
            shutil.make_archive(str(new.with_suffix("")), "zip", modules)
            new.rename(archive)
        print(f"compiled {archive}")


def _compile(modules: Path, archive: Path) -> None:
    """Python takes bytecode from a zip only next to its module, and does not compare it with the module."""
    mode = PycInvalidationMode.UNCHECKED_HASH
    assert compileall.compile_dir(
        modules, quiet=1, legacy=True, invalidation_mode=mode, stripdir=str(modules), prependdir=str(archive)
    )
