"""A worker for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .inprocess import Bench, Client
from .inprocess import bench as make


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A worker with a topic `t` of one partition."""
    with make(tmp_path) as made:
        yield made


@pytest.fixture
def client(bench: Bench) -> Client:
    """One connection to it."""
    return bench.connect()
