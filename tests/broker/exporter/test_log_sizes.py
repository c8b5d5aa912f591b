"""Sizes of logs from their directories, in slices."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from odradek.broker.exporter import log_sizes
from odradek.broker.exporter.log_sizes import LogSizes


def _swept(sizes: LogSizes) -> None:
    for _ in range(1000):
        sizes.follow(-1)  # one directory in each call


def test_each_partition_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions of all log directories, with dashes in names; index files and other folders do not count."""
    monkeypatch.setattr(log_sizes, "SWEEP_S", 0)
    rnd, wanted = random.Random(21), {}
    dirs = [tmp_path / "a", tmp_path / "b"]
    for number in range(60):
        name = f"t-{number % 7}.x"
        folder = dirs[number % 2] / f"{name}-{number}"
        folder.mkdir(parents=True)
        files = [rnd.randrange(1000) for _ in range(rnd.randrange(4))]
        for at, size in enumerate(files):
            (folder / f"{at:020}.log").write_bytes(bytes(size))
            (folder / f"{at:020}.index").write_bytes(bytes(77))
        wanted[name, number] = sum(files)
    for other in ("t-0.x-0.0123-delete", "no", "-3"):
        (dirs[0] / other).mkdir()
    (dirs[0] / "meta.properties").write_text("x")
    sizes = LogSizes(lambda: [*dirs, tmp_path / "failed"])
    assert sizes.sizes is None
    sizes.follow(-1)
    assert sizes.sizes is None, "sizes are published before the sweep has ended"
    _swept(sizes)
    assert sizes.sizes == wanted
    (dirs[0] / "t-0.x-0" / f"{99:020}.log").write_bytes(bytes(5))
    _swept(sizes)
    assert sizes.sizes == {**wanted, ("t-0.x", 0): wanted["t-0.x", 0] + 5}


def test_a_sweep_waits_for_its_time(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    sizes = LogSizes(lambda: [tmp_path])
    sizes.follow(10)
    first = sizes.sizes
    (tmp_path / "t-1").mkdir()
    sizes.follow(10)
    assert first == sizes.sizes == {("t", 0): 0}
