"""A start with every partition damaged in another way: each is repaired, or is offline and named in the log.

No loss is silent: an online partition has all its records, or the log says how many are missing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from odradek.cluster.tree.embedded import FILE_NAME
from odradek.storage.files import checkpoints, names
from odradek.storage.files.names import partition_dir
from odradek.storage.tools.check import check

from ..clients.admin import create_topic
from ..clients.raw.batches import batch, parse
from ..clients.raw.calls import fetch, produce, producer_id
from ..harness.process import wait_until

pytestmark = pytest.mark.live

RECORDS = 40
STORAGE_ERROR = 56


def flip(path: Path, where: float) -> None:
    """Flip one bit at fraction `where` of the file."""
    data = bytearray(path.read_bytes())
    data[int(len(data) * where)] ^= 0x10
    path.write_bytes(data)


def shorten(path: Path, to: float) -> None:
    """Cut the file to fraction `to` of its size."""
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * to)])


def first(directory: Path, kind: str) -> Path:
    """The file of this kind of the first segment, which is sealed."""
    return sorted(directory.glob(f"*{kind}"))[0]


def last(directory: Path, kind: str) -> Path:
    """The active segment's file of this kind."""
    return sorted(directory.glob(f"*{kind}"))[-1]


class Damage(NamedTuple):
    """A damage of a partition's directory, the number of records left (-1: offline), and the expected log line."""

    do: Callable[[Path], object]
    left: int = RECORDS
    said: str = ""


ALL = RECORDS
INDEX, TIME, SNAPSHOT = names.INDEX, names.TIME_INDEX, names.SNAPSHOT
DAMAGES = {
    "nothing": Damage(lambda at: None),
    "torn-tail": Damage(lambda at: last(at, ".log").open("ab").write(b"\0" * 7 + b"\x39" * 60), ALL, "torn write"),
    "zeros-at-the-end": Damage(lambda at: last(at, ".log").open("ab").write(bytes(5000)), ALL, "torn write"),
    "active-log-flipped": Damage(lambda at: flip(last(at, ".log"), 0.3), -1, "damaged at byte"),
    "active-log-cut": Damage(lambda at: shorten(last(at, ".log"), 0.4), -2, "records are lost"),
    "active-log-gone": Damage(lambda at: last(at, ".log").unlink(), -2, "records are lost"),
    "index-flipped": Damage(lambda at: flip(last(at, INDEX), 0.5)),
    "index-gone": Damage(lambda at: first(at, INDEX).unlink()),
    "index-cut": Damage(lambda at: shorten(first(at, INDEX), 0.6)),
    "timeindex-flipped": Damage(lambda at: flip(last(at, TIME), 0.5)),
    "timeindex-gone": Damage(lambda at: first(at, TIME).unlink()),
    "timeindex-cut": Damage(lambda at: shorten(last(at, TIME), 0.5)),
    "snapshot-flipped": Damage(lambda at: flip(last(at, SNAPSHOT), 0.5), ALL, "broken producer snapshot"),
    "snapshot-cut": Damage(lambda at: shorten(last(at, SNAPSHOT), 0.5), ALL, "broken producer snapshot"),
    "snapshots-gone": Damage(lambda at: [path.unlink() for path in at.glob("*.snapshot")]),
    "epochs-flipped": Damage(lambda at: (at / "leader-epoch-checkpoint").write_text("0\n9\n0 0\n"), ALL, "epochs"),
    "epochs-gone": Damage(lambda at: (at / "leader-epoch-checkpoint").unlink()),
    "epochs-empty": Damage(lambda at: (at / "leader-epoch-checkpoint").write_bytes(b"")),
    "metadata-gone": Damage(lambda at: (at / "partition.metadata").unlink()),
    "metadata-flipped": Damage(
        lambda at: (at / "partition.metadata").write_text("version: 0\ntopic_id: x"), ALL, "rewriting it"
    ),
    "directory-gone": Damage(lambda at: shutil.rmtree(at), 0, "directory missing: starting with an empty log"),
    "all-empty": Damage(lambda at: [path.write_bytes(b"") for path in at.iterdir()], -2, "are missing"),
}


@pytest.fixture
def killed(fresh_broker: Any) -> tuple[Any, str]:
    """A killed broker with a partition for each damage, and the topic's name."""
    settings = {"log_flush_offset_checkpoint_interval_ms": 300, "replica_high_watermark_checkpoint_interval_ms": 300}
    settings["log_retention_ms"] = -1
    broker = fresh_broker(log_segment_bytes=2500, log_index_interval_bytes=300, **settings)
    topic = create_topic(broker, "t", len(DAMAGES))
    with broker.wire() as wire:
        identity, epoch = producer_id(wire)
        for index in range(len(DAMAGES)):
            for number in range(RECORDS):
                data = batch([b"%d." % number + b"v" * 90], producer=identity, epoch=epoch, sequence=number,
                             timestamp=1_700_000_000_000 + number)  # fmt: skip
                assert produce(wire, topic, data, partition=index).error_code == 0
    wait_until(lambda: set(seen(broker, topic)) == {RECORDS}, 60, "the high watermarks are written")
    wait_until((broker.data_dir / checkpoints.RECOVERY_POINT).exists, 60, "the recovery points are written, too")
    broker.kill()
    return broker, topic


def seen(broker: Any, topic: str) -> list[int]:
    """High watermarks in the checkpoint."""
    found = checkpoints.read_offsets(broker.data_dir, checkpoints.HIGH_WATERMARK)
    return [found.get((topic, index), 0) for index in range(len(DAMAGES))]


def stored(wire: Any, topic: str, index: int) -> list[int] | None:
    """The numbers of all records of a partition, None if it is offline."""
    numbers: list[int] = []
    while True:
        part = fetch(wire, topic, len(numbers), partition=index, wait_ms=0, min_bytes=0)
        if part.error_code == STORAGE_ERROR:
            return None
        assert part.error_code == 0, part
        found = [int((row.value or b"").split(b".")[0]) for row in parse(part.records)]
        if not found:
            return numbers
        numbers += found


@pytest.mark.timeout(120)
def test_start_repairs_every_kind_of_damage(killed: tuple[Any, str]) -> None:
    broker, topic = killed
    for index, damage in enumerate(DAMAGES.values()):
        damage.do(broker.data_dir / partition_dir(topic, index))
    faults = [str(fault.path) for fault in check(broker.data_dir)]
    broker.start()
    log, wrong = broker.log, []
    with broker.wire() as wire:
        for index, (name, damage) in enumerate(DAMAGES.items()):
            found = stored(wire, topic, index)
            lines = [line for line in log.splitlines() if f"{topic}-{index}" in line]
            if not as_expected(found, damage.left) or damage.said not in "\n".join(lines):
                wrong.append(f"{name}: {len(found) if found is not None else 'offline'}; {lines}")
            named = any(partition_dir(topic, index) + "/" in one for one in faults)
            if found != list(range(RECORDS)) and not named and name not in ("directory-gone", "active-log-cut"):
                wrong.append(f"{name}: `odradek check` did not name it")
    assert not wrong, "\n".join(wrong)
    broker.stop()
    left = {Path(fault.path).parent.name for fault in check(broker.data_dir)}
    known = [index for index, (name, damage) in enumerate(DAMAGES.items()) if damage.left == -1 or name == "all-empty"]
    assert left <= {partition_dir(topic, index) for index in known}


def as_expected(found: list[int] | None, left: int) -> bool:
    """`left`: a count, -1 for offline, -2 for a prefix of the records."""
    if found is None or left == -1:
        return found is None and left == -1
    return found == list(range(len(found))) and (len(found) == left if left >= 0 else len(found) < RECORDS)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", ["flipped", *(pytest.param(how, marks=pytest.mark.long) for how in ("gone", "cut"))])
def test_start_recovers_all_records_without_checkpoints(killed: tuple[Any, str], how: str) -> None:
    broker, topic = killed
    for name in (checkpoints.RECOVERY_POINT, checkpoints.HIGH_WATERMARK):
        path = broker.data_dir / name
        path.unlink() if how == "gone" else flip(path, 0.0) if how == "flipped" else shorten(path, 0.5)
    broker.start()
    with broker.wire() as wire:
        for index in range(len(DAMAGES)):
            assert stored(wire, topic, index) == list(range(RECORDS))
    assert how == "gone" or f"{checkpoints.RECOVERY_POINT}: ignored" in broker.log


def overwrite(path: Path) -> None:
    """Write bytes that SQLite cannot read."""
    path.write_bytes(b"not a database at all " * 400)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("name", "do", "said"),
    [
        (checkpoints.META_PROPERTIES, lambda path: path.write_text("nonsense"), "meta.properties"),
        (FILE_NAME, overwrite, "restore it from a backup, or move it away"),
        pytest.param(
            FILE_NAME, lambda path: flip(path, 0.0), "restore it from a backup, or move it away", marks=pytest.mark.long
        ),
    ],
    ids=["meta.properties", "metadata-overwritten", "metadata-flipped"],
)
def test_start_names_an_irreparable_file(
    killed: tuple[Any, str], name: str, do: Callable[[Path], Any], said: str
) -> None:
    """Once the file is moved away, the broker recreates the topics from the logs."""
    broker, topic = killed
    path = broker.data_dir / name
    for beside in broker.data_dir.glob(f"{name}-*"):
        beside.unlink()
    do(path)
    with pytest.raises(AssertionError, match="ended with"):
        broker.start()
    assert said in broker.log and str(path) in broker.log
    path.rename(path.with_suffix(".old"))
    broker.start()
    with broker.wire() as wire:
        assert producer_id(wire)[0] > 1_000_000 or name != FILE_NAME, "producer ids in the logs are assigned again"
        for index in range(len(DAMAGES)):
            assert stored(wire, topic, index) == list(range(RECORDS))
