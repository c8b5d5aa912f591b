"""Power fails and unsynced data is lost, wholly or in part: a topic with flush.messages=1 loses no record."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from odradek.storage.dirs import boot_id
from odradek.storage.files import checkpoints
from odradek.storage.tools.check import check

from ..clients.admin import create_topic
from ..clients.raw.batches import batch, parse
from ..clients.raw.calls import fetch, produce, producer_id
from ..harness.process import wait_until
from .power import SEAM, Disk

pytestmark = pytest.mark.live

ROUNDS = 120


def loaded(fresh_broker: Any, tmp_path: Path) -> tuple[Any, dict[str, int]]:
    """A broker whose fsyncs are recorded in `shadow`, and the number of acknowledged records by topic."""
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    settings = {"log_flush_offset_checkpoint_interval_ms": 300, "replica_high_watermark_checkpoint_interval_ms": 300}
    broker = fresh_broker(start=False, odradek_workers=1, log_index_interval_bytes=500, **settings)
    broker.env |= {"PYTHONPATH": str(SEAM), "ODRADEK_TEST_SHADOW": str(shadow)}
    broker.start()
    kept = create_topic(broker, "kept", flush_messages=1, segment_bytes=20_000)
    lazy = create_topic(broker, "lazy", segment_bytes=20_000)
    acked = {kept: load(broker, kept), lazy: load(broker, lazy)}
    wait_until(lambda: seen(broker, shadow).get((lazy, 0)) == ROUNDS, 60, "the high watermarks are on the disk")
    wait_until(lambda: Disk(broker.data_dir, shadow).durable(boot_id.FILE_NAME), 60, "the boot id is on the disk")
    return broker, acked


@pytest.fixture
def failed(fresh_broker: Any, tmp_path: Path) -> tuple[Any, Disk, dict[str, int]]:
    """A killed broker, and the disk under it."""
    broker, acked = loaded(fresh_broker, tmp_path)
    broker.kill()
    return broker, Disk(broker.data_dir, tmp_path / "shadow"), acked


def seen(broker: Any, shadow: Path) -> dict[tuple[str, int], int]:
    """The checkpointed high watermarks; {} until the checkpoint is durable, which is later than its rename."""
    path = broker.data_dir / checkpoints.HIGH_WATERMARK
    if not path.exists() or Disk(broker.data_dir, shadow).durable(path.name) != path.read_bytes():
        return {}
    return checkpoints.read_offsets(broker.data_dir, checkpoints.HIGH_WATERMARK)


def load(broker: Any, topic: str) -> int:
    """Produce idempotent records one by one, over some rolls; the number of acknowledged records."""
    with broker.wire() as wire:
        identity, epoch = producer_id(wire)
        for number in range(ROUNDS):
            data = batch([b"%d" % number + b"." * 500], producer=identity, epoch=epoch, sequence=number)
            assert produce(wire, topic, data).error_code == 0
    return ROUNDS


def stored(broker: Any, topic: str) -> list[int]:
    """The numbers of all records of the topic."""
    numbers: list[int] = []
    with broker.wire() as wire:
        while True:
            part = fetch(wire, topic, len(numbers), wait_ms=0, min_bytes=0)
            assert part.error_code == 0, part
            found = [int(row.value.split(b".")[0]) for row in parse(part.records) if row.value is not None]
            if not found:
                return numbers
            numbers += found


def after(broker: Any, disk: Disk, seed: int | None, kept: str, lazy: str, acked: dict[str, int]) -> int:
    """Start the broker on the durable data; the number of records left in the lazy topic."""
    original = broker.data_dir.with_name("original")
    shutil.move(broker.data_dir, original)
    disk.root = original
    disk.rebuild(broker.data_dir, seed)
    broker.env.pop("ODRADEK_TEST_SHADOW", None)
    try:
        broker.start()
        assert stored(broker, kept) == list(range(acked[kept])), f"seed {seed}: a flushed record is lost"
        left = stored(broker, lazy)
        assert left == list(range(len(left))), f"seed {seed}: the records left are not a prefix"
        broker.stop()
        assert not list(check(broker.data_dir))
        return len(left)
    finally:
        shutil.rmtree(broker.data_dir)
        shutil.move(original, broker.data_dir)


@pytest.mark.timeout(180)
def test_flushed_records_survive_a_power_failure(failed: tuple[Any, Disk, dict[str, int]]) -> None:
    broker, disk, acked = failed
    kept, lazy = acked
    left = after(broker, disk, None, kept, lazy, acked)
    assert left < acked[lazy], "no record was lost: this test shows nothing"
    assert f"{lazy}-0 ends at offset {left}, but its checkpoints say" in broker.log
    for seed in range(2):
        after(broker, disk, seed, kept, lazy, acked)


@pytest.mark.timeout(180)
def test_a_clean_stop_leaves_nothing_unsynced(fresh_broker: Any, tmp_path: Path) -> None:
    """The clean-shutdown marker makes the next start skip recovery."""
    broker, acked = loaded(fresh_broker, tmp_path)
    broker.stop()
    Disk(broker.data_dir, tmp_path / "shadow").rebuild(tmp_path / "durable", None)
    assert (tmp_path / "durable" / checkpoints.CLEAN_SHUTDOWN).exists()
    for topic in acked:
        there, durable = (contents(data / f"{topic}-0") for data in (broker.data_dir, tmp_path / "durable"))
        assert any(name.endswith(".snapshot") for name in there)
        assert {name for name in there if durable.get(name) != there[name]} == set()


def contents(directory: Path) -> dict[str, bytes]:
    """The files of a directory."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_flushed_records_survive_whatever_unsynced_part_is_lost(failed: tuple[Any, Disk, dict[str, int]]) -> None:
    broker, disk, acked = failed
    kept, lazy = acked
    for seed in range(100, 140):
        after(broker, disk, seed, kept, lazy, acked)
