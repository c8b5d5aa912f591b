"""An index is deleted or damaged while the broker runs: fetches fail for a moment, then return all records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ..clients.admin import create_topic
from ..clients.raw.batches import batch, parse
from ..clients.raw.calls import fetch, produce
from ..harness.process import wait_until

pytestmark = pytest.mark.live

RECORDS = 40
KAFKA_STORAGE_ERROR = 56


def delete_index(path: Path) -> None:
    path.unlink()


def corrupt_positions(path: Path) -> None:
    """Make each position wrong."""
    data = bytearray(path.read_bytes())
    for at in range(7, len(data), 8):
        data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("harm", [delete_index, corrupt_positions])
def test_janitor_rebuilds_a_damaged_index(fresh_broker: Any, harm: Any) -> None:
    broker = fresh_broker(odradek_workers=1)
    topic = create_topic(broker, "t", segment_bytes=5000, index_interval_bytes=300)
    with broker.wire() as wire:
        for n in range(RECORDS):
            assert produce(wire, topic, batch([b"%d" % n * 150])).error_code == 0
        folder = broker.data_dir / f"{topic}-0"
        path = sorted(folder.glob("*.index"))[1]
        whole, base = path.read_bytes(), int(path.stem)
        harm(path)
        codes = set()

        def served() -> bool:
            part = fetch(wire, topic, base + 5)
            codes.add(part.error_code)
            return bool(part.error_code == 0 and (parse(part.records)[-1].value or b"")[:1])

        wait_until(served, 60, "the index is rebuilt")
        assert codes == {0, KAFKA_STORAGE_ERROR}, "no fetch needed the damaged index: this test shows nothing"
        assert path.read_bytes() == whole
        found = [row.value for row in parse(fetch(wire, topic, base + 5).records)]
        assert found[0] == b"%d" % (base + 5) * 150
    assert "WARNING" in next(line for line in broker.log.splitlines() if "read failed" in line)
    assert "rebuilt the indexes of segment" in broker.log
