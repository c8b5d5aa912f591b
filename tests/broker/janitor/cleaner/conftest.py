"""Partitions of compacted topics for the log cleaner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.janitor import log_cleaner

from ...partitions import Bench
from .cleaning import Maker


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Maker]:
    monkeypatch.setattr(log_cleaner, "_be_nice", lambda: None)
    made: list[Bench] = []

    def make(count: int = 1, **arguments: Any) -> Bench:
        made.append(Bench(tmp_path, count, cleanup_policy="compact", segment_bytes=1000, **arguments))
        return made[-1]

    yield make
    for one in made:
        one.close()
