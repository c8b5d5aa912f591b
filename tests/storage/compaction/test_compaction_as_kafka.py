"""Our cleaner and Apache Kafka's on the same random logs: after each round both logs have the same batches.

Kafka 4.1, as 3.9 does not yet keep the end of a round as an empty batch, and so drops markers a round earlier.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from odradek.protocol.batch import DELETE_HORIZON
from odradek.protocol.records import batch_v2, codecs, convert
from odradek.storage.compaction import compaction
from odradek.storage.compaction.compaction import DedupeBuffer
from odradek.storage.files import checkpoints, names
from odradek.storage.producers.producer_state import AbortedTxn, read_txn_index

from ...harness import java
from .compaction_world import TP, Row, World

pytestmark = [pytest.mark.live, pytest.mark.needs("java-4.1.0")]
PROGRAM = str(Path(__file__).with_name("KafkaCleaner.java"))
KEYS = [b"%d" % n for n in range(8)] + [b"a key of more than sixteen bytes"]
CODECS = [codecs.NONE] * 3 + [codecs.GZIP, codecs.LZ4, codecs.ZSTD, codecs.SNAPPY]
SEGMENT_BYTES, RETENTION_MS = 900, 5000


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[bytes]]:
    log = tmp_path_factory.mktemp("kafka") / "stderr"
    with log.open("wb") as stderr:
        running = java.spawn("4.1.0", PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr)
    yield running
    running.kill()
    running.communicate()


class Both:
    """One log twice: ours, and the one that Kafka's cleaner goes over. What is written goes to ours first."""

    def __init__(self, folder: Path, kafka: subprocess.Popen[bytes], rng: random.Random) -> None:
        self.kafka, self.rng = kafka, rng
        self.theirs = folder / "theirs" / "t-0"
        self.theirs.mkdir(parents=True)
        (folder / "ours").mkdir()
        self.ours = World(
            folder / "ours", segment_bytes=SEGMENT_BYTES, index_interval_bytes=100, cleanup_policy="compact",
            delete_retention_ms=RETENTION_MS, min_compaction_lag_ms=0,
        )  # fmt: skip
        self.number = self.rounds = 0

    def rows(self) -> list[Row]:
        made: list[Row] = []
        for _ in range(self.rng.randrange(1, 5)):
            self.number += 1
            value = None if self.rng.random() < 0.25 else b"%d" % self.number + b"." * self.rng.randrange(40)
            headers = ((b"h", b"1"),) if self.rng.random() < 0.2 else ()
            made.append((None if value and self.rng.random() < 0.05 else self.rng.choice(KEYS), value, headers))
        return made

    def write(self) -> None:
        """Something that clients and administrators do."""
        log, rng = self.ours, self.rng
        producer, codec = rng.choice(log.producers), rng.choice(CODECS)
        inside = producer.id in log.model.open
        todo: list[tuple[int, Any]] = [
            (5, lambda: log.send(self.rows(), codec)),
            (5, lambda: log.send(self.rows(), codec, producer, inside)),
            (9, lambda: log.send(self.rows(), codec, producer, True)),
            (4, lambda: log.end(producer, True)),
            (4, lambda: log.end(producer, False)),
            (1, lambda: log.fence(producer)),
            (3, log.roll),
        ]
        rng.choices([one for _, one in todo], [weight for weight, _ in todo])[0]()

    def clean(self) -> None:
        """A round of both cleaners over the same range at the same time."""
        ours = self.ours
        offsets = checkpoints.read_offsets(ours.root, checkpoints.CLEANER)
        what = compaction.find_range(ours.partition, offsets.get(TP), ours.now_ms)
        if not what.due(0.0):
            return
        self._hand_over()
        line = f"{self.theirs} 0 {what.first_dirty} {what.upto} {ours.now_ms} {RETENTION_MS} {SEGMENT_BYTES}\n"
        assert self.kafka.stdin is not None and self.kafka.stdout is not None
        self.kafka.stdin.write(line.encode())
        self.kafka.stdin.flush()
        answer = self.kafka.stdout.readline()
        assert answer, "Kafka's cleaner failed"
        ours.clean(DedupeBuffer())
        ours.compare()
        assert checkpoints.read_offsets(ours.root, checkpoints.CLEANER)[TP] == int(answer)
        self.rounds += 1
        self.compare()

    def _hand_over(self) -> None:
        """What was written since the last round: the segments from the one that was active then on."""
        bases = sorted(int(path.stem) for path in self.theirs.glob("*.log"))
        since = bases[-1] if bases else 0
        with self.ours.partition.locked() as values:
            self.ours.settle(values)
        for path in (self.ours.root / "t-0").iterdir():
            parsed = names.parse_segment_file(path.name)
            if parsed is None or (parsed.offset >= since and not parsed.mark):
                shutil.copy2(path, self.theirs / path.name)

    def compare(self) -> None:
        """Batch by batch the same is there, and in the transaction indexes."""
        ours, theirs = left(self.ours.root / "t-0"), left(self.theirs)
        assert (ours - theirs, theirs - ours) == (set(), set())
        assert aborted(self.ours.root / "t-0") == aborted(self.theirs)


class Left(NamedTuple):
    """A remaining batch, with all fields that compaction may change."""

    base: int
    last: int
    attributes: int
    horizon: int | None
    max_timestamp: int
    producer: tuple[int, int, int]
    records: tuple[Any, ...]


def left(directory: Path) -> set[Left]:
    """All batches, also control batches and empty ones."""
    found = set()
    for path in directory.glob("*.log"):
        for one in convert.split(path.read_bytes()):
            head = batch_v2.header(one)
            records = tuple((*record[:4], tuple(record[4])) for record in batch_v2.iterate(one))
            horizon = head.base_timestamp if head.attributes & DELETE_HORIZON else None
            times = horizon, head.max_timestamp
            producer = head.producer_id, head.producer_epoch, head.base_sequence
            found.add(Left(head.base_offset, head.last_offset, head.attributes, *times, producer, records))
    return found


def aborted(directory: Path) -> list[AbortedTxn]:
    """The rows of the transaction indexes."""
    return sorted(row for path in directory.glob(f"*{names.TXN_INDEX}") for row in read_txn_index(path))


@pytest.mark.parametrize("number", range(4))
def test_round_for_round(tmp_path: Path, kafka: subprocess.Popen[bytes], number: int) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    logs = Both(tmp_path, kafka, random.Random(seed))
    try:
        for _ in range(12):
            for _ in range(logs.rng.randrange(1, 25)):
                logs.write()
            logs.ours.now_ms += logs.rng.choice([1, 1000, RETENTION_MS, 10 * RETENTION_MS])
            logs.clean()
        assert logs.rounds > 2
    finally:
        logs.ours.close()
