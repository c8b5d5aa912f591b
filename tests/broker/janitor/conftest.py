"""Partitions for the janitor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..partitions import Bench
from .benches import Maker


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Maker]:
    made: list[Bench] = []

    def make(**arguments: Any) -> Bench:
        made.append(Bench(tmp_path, **arguments))
        return made[-1]

    yield make
    for one in made:
        one.close()
