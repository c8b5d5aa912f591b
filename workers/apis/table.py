"""The table of Kafka APIs: the rows of the files in this folder, by key."""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import cache

from odradek.protocol import library
from odradek.workers import apis
from odradek.workers.dispatch.api import Api

_FILE = re.compile(r"k\d\d_\w+")


@cache
def _files() -> dict[int, str]:
    """The names of the files, by key."""
    found = (module.name for module in pkgutil.iter_modules(apis.__path__) if _FILE.fullmatch(module.name))
    return {int(name[1:3]): name for name in sorted(found)}


@cache
def row(key: int) -> Api | None:
    """One row, by its key; None when there is no such API. Loads no other file."""
    name = _files().get(key)
    if name is None:
        return None
    found: Api = importlib.import_module(f"odradek.workers.apis.{name}").API
    return found


@cache
def load_rows() -> dict[int, Api]:
    """Every row by key."""
    return {key: found for key in _files() if (found := row(key)) is not None}


@cache
def names() -> dict[int, str]:
    """Kafka's name of every API by key, from the names of the files: no file is imported."""
    return {key: name[4:].title().replace("_", "") for key, name in _files().items()}


@cache
def served(clustered: bool, like: str = "") -> dict[int, Api]:
    """The rows that a broker serves, as a member of a cluster or standalone; with `like`, a version of Apache Kafka,
    only what that offers to clients."""
    rows = {key: row for key, row in load_rows().items() if clustered or not row.between_brokers}
    if not like:
        return rows
    from odradek.workers.apis import kafka_versions

    return kafka_versions.limited(rows, like)


def load_all() -> None:
    """Load rows and message classes now, so that a process does not wait at its first request."""
    load_rows()
    library.load_all()
