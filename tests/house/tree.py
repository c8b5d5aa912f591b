"""The source tree for the house rules: the package folders, their modules, and the imports of each module."""

from __future__ import annotations

import ast
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
PREFIX = "odradek."


class Import(NamedTuple):
    """One import by its whole name (of a module, or of something in one), and where."""

    name: str
    line: int


def pyproject() -> dict[str, Any]:
    """pyproject.toml, parsed."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def top_folders() -> list[Path]:
    """The folders of the repository that are packages: those that src/odradek links to."""
    return sorted(link.resolve() for link in (ROOT / "src" / "odradek").iterdir() if link.is_symlink())


@cache
def package_dirs() -> dict[str, Path]:
    """Every package that is built, by name: `odradek.workers.apis` → …/workers/apis."""
    files = [file for top in top_folders() for file in top.rglob("__init__.py")]
    return {PREFIX + ".".join(file.parent.relative_to(ROOT).parts): file.parent for file in sorted(files)}


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of every package: (`odradek.ipc.shm`, its path)."""
    for package, folder in package_dirs().items():
        for path in sorted(folder.glob("*.py")):
            yield (package if path.stem == "__init__" else f"{package}.{path.stem}"), path


def imports(source: str, module: str) -> Iterator[Import]:
    """All that `source` imports, anywhere in it, `TYPE_CHECKING` blocks included; `module` resolves `from . import`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _from(node, module)


def _from(node: ast.ImportFrom, module: str) -> Iterator[Import]:
    base = node.module or ""
    if node.level:
        above = module.split(".")[: -node.level]
        base = ".".join([*above, base]) if base else ".".join(above)
    # Only a caller that knows all modules can tell whether the alias is a module or a name in one.
    yield from (Import(f"{base}.{alias.name}", node.lineno) for alias in node.names)


def layer(name: str) -> str | None:
    """The top folder of a module of ours: `odradek.ipc.shm` → `ipc`; None for other projects' modules."""
    return name.split(".")[1] if name.startswith(PREFIX) else None


def tracked_files() -> list[Path]:
    """The files that git tracks; an error outside a clone."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        raise AssertionError(f"the house rules are checked on a clone: {listed.stderr}")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
