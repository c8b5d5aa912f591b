"""CRC-32C: the C function of the package crc32c, without the rest of that package.

`import crc32c` reads the metadata of installed packages to learn its own version, and for that imports email, csv and
zipfile: a twentieth of the CPU time of a broker's start, and memory in each process. So this loads its extension alone.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

_PACKAGE, _EXTENSION = "crc32c", "crc32c._crc32c"


def _extension() -> Any:
    """The extension module; ImportError without the package."""
    package = find_spec(_PACKAGE)
    spec = None if package is None else PathFinder.find_spec(_EXTENSION, package.submodule_search_locations)
    if spec is None or spec.loader is None:
        raise ImportError(f"{_EXTENSION} is missing: install the package {_PACKAGE}")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


crc32c: Callable[..., int] = _extension().crc32c
"""`crc32c(data, value=0)`: the CRC-32C of `data`, continued from `value`."""
