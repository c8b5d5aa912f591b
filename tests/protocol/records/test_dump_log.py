"""Apache Kafka's DumpLogSegments reads a segment made of our batches, every codec and a marker."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.protocol.records import batch_v2, control, message_sets, validate
from tests.harness import java

from .strategies import NOW, mixed

pytestmark = pytest.mark.live


@pytest.mark.needs("java-3.9.1")
def test_dump_log_segments_accepts_every_codec_and_a_marker(tmp_path: Path) -> None:
    parts, offset = [], 0
    for codec in range(5):
        old = message_sets.build(mixed(30, headers=False), codec % 2, codec=codec % 4)
        rules = validate.ValidationRules(now_ms=NOW, base_offset=offset + 30, leader_epoch=1, timestamp_type=codec % 2)
        for batch in (
            batch_v2.build(mixed(30, base=offset), codec=codec, leader_epoch=1),
            *validate.normalise(old, rules),
        ):
            parts.append(batch)
            offset += 30
    ids = {"producer_id": 5, "producer_epoch": 2, "coordinator_epoch": 9, "timestamp": NOW}
    parts.append(control.end_marker(control.COMMIT, base_offset=offset, leader_epoch=1, **ids))
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(b"".join(parts))
    words = ("--files", str(segment), "--deep-iteration", "--print-data-log")
    text = java.run("3.9.1", "kafka.tools.DumpLogSegments", *words).stdout.decode(errors="replace")
    assert text.count("isvalid: true") == len(parts)
    assert "isvalid: false" not in text and "bytes remaining" not in text.lower()
    assert text.count("| offset:") == offset + 1
    assert "endTxnMarker: COMMIT coordinatorEpoch: 9" in text
