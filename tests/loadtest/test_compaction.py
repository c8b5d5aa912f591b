"""The compaction bench at a small scale, with Odradek alone."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from odradek.loadtest.harness.brokers import Odradek
from odradek.loadtest.measurements import compaction
from odradek.loadtest.measurements.compaction_data import fill
from odradek.protocol.records import batch_v2, convert


@pytest.mark.parametrize("size", [100, 1000])
def test_generated_segments_have_the_batches_of_a_producer(tmp_path: Path, size: int) -> None:
    end = fill(tmp_path / "log", size, 2000, 50)
    paths = sorted((tmp_path / "log").iterdir())
    assert int(paths[-1].stem) == end >= 2000
    offsets, keys = [], set()
    for path in paths:
        for one in convert.split(path.read_bytes()):
            assert batch_v2.check(one, dense=True).size <= 16384
            for offset, _, key, value, _ in batch_v2.iterate(one):
                offsets.append(offset)
                keys.add(key)
                assert size - 5 <= len(key or b"") + len(value or b"") + 10 <= size
    assert offsets == list(range(len(offsets)))
    assert len(keys) == 50


@pytest.mark.live
@pytest.mark.parametrize("key", list(compaction.LOADS))
def test_compaction_leaves_the_expected_share_of_the_log(tmp_path: Path, key: str) -> None:
    entry = compaction.measure(key, tmp_path, 1, 0.0005, [Odradek])
    (found,) = entry.data["Odradek"]
    load = compaction.LOADS[key]
    share = load.keys / load.records * (1 - math.exp(-load.records / load.keys))  # of keys drawn that many times
    assert 0.8 * share < found["left"] / (load.size * load.records * 0.0005) < 1.25 * share
    assert min(found["mb_s"], found["cpu_per_gb"]) > 0
    assert not list(tmp_path.iterdir())
