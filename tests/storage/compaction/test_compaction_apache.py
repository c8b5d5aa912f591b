"""Compaction and Apache Kafka 3.9.1: its tools accept what we compacted, and we read what its cleaner wrote."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from odradek.protocol.batch import DELETE_HORIZON
from odradek.protocol.records import batch_v2, codecs, convert
from odradek.storage.config import LogConfig
from odradek.storage.files import checkpoints, names
from odradek.storage.log import control_batch
from odradek.storage.recovery import recovery
from odradek.storage.tools import check
from tests.harness import java
from tests.harness.apache import Apache
from tests.harness.process import wait_until

from ..live import NOW, live
from .compacting import compact, headers, keyed, put, seal

# Compaction leaves gaps between offsets; the tool reports them all the same.
EXPECTED = re.compile(r"log4j|Non-consecutive offsets in |\s*\d+ is followed by \d+$")
pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]


def test_kafkas_tool_accepts_our_compacted_log(tmp_path: Path) -> None:
    with live(tmp_path, segment_bytes=3000, index_interval_bytes=300, cleanup_policy="compact") as world:
        partition = world.partition()
        for n in range(120):
            codec = (codecs.NONE, codecs.GZIP, codecs.LZ4, codecs.ZSTD, codecs.SNAPPY)[n % 5]
            value = None if n % 17 == 0 else b"%d" % n * 20
            put(partition, keyed([(b"%d" % (n % 50), value), (b"%d" % n, b"x")], codec=codec, timestamp=NOW + n))
        for sequence, commit in enumerate((True, False, False)):
            put(partition, keyed([(b"t", b"%d" % sequence)], producer=5, sequence=sequence, transaction=True))
            control_batch.write_marker(partition, 5, 0, 1, commit, NOW)
        put(partition, keyed([(b"1", b"the end")]))
        seal(partition)
        assert compact(partition, world) is not None
        put(partition, keyed([(b"2", b"the end")]))
        seal(partition)
        assert compact(partition, world) is not None
        kinds = {(head.num_records == 0, bool(head.attributes & DELETE_HORIZON)) for head in headers(partition)}
        assert kinds == {(False, False), (True, False), (False, True)}
        directory = tmp_path / "t-0"
        kinds_of_files = (names.LOG, *names.INDEXES)
        paths = ",".join(str(p) for p in sorted(directory.iterdir()) if p.suffix in kinds_of_files)
    for options in (["--deep-iteration"], ["--verify-index-only"], ["--index-sanity-check"]):
        done = java.run("3.9.1", "kafka.tools.DumpLogSegments", "--files", paths, *options)
        complaints = [line for line in done.stderr.decode().splitlines() if not EXPECTED.match(line)]
        assert complaints == []
        for words in (b"isvalid: false", b"invalid bytes", b"Mismatches", b"Unreadable"):
            assert words not in done.stdout, done.stdout.decode()[-3000:]


def test_our_cleaner_continues_after_kafkas(tmp_path: Path) -> None:
    """Keys, tombstones and an aborted transaction, compacted by Kafka's own cleaner; then by ours."""
    broker = Apache("3.9.1", tmp_path)
    with broker.properties.open("a") as properties:
        properties.write("log.cleaner.backoff.ms=200\nlog.initial.task.delay.ms=100\n")
    broker.start()
    try:
        last = _produce(broker.bootstrap)
        point = broker.data_dir / checkpoints.CLEANER
        key = ("t", 0)
        wait_until(
            lambda: point.exists() and checkpoints.read_offsets(broker.data_dir, checkpoints.CLEANER).get(key, 0) > 500,
            60,
            "Kafka's cleaner has compacted",
        )
    finally:
        broker.stop()
    directory = broker.data_dir / "t-0"
    assert [str(fault) for fault in check.check(broker.data_dir, deep=True)] == []
    found = _records(directory)
    assert len(found) < 700
    assert _last(found) == last
    clean_upto = checkpoints.read_offsets(broker.data_dir, checkpoints.CLEANER)[key]
    recovered = recovery.recover(directory, LogConfig(), clean=True, compacted_upto=clean_upto)
    assert recovered.notes == []
    with live(tmp_path / "ours", segment_bytes=1 << 20, cleanup_policy="compact", delete_retention_ms=0) as world:
        (world.root / "t-0").rmdir()
        directory.rename(world.root / "t-0")
        partition = world.partition()
        state = partition.state()._replace(
            leo=recovered.leo, hw=recovered.leo, active_base=recovered.active_base, active_size=recovered.active_size,
            index_entries=recovered.index_entries, time_entries=recovered.time_entries, generation=1,
            log_start=recovered.log_start,
        )  # fmt: skip
        partition.slot.publish(state)
        seal(partition)
        done = compact(partition, world, NOW * 2)
        assert done is not None
        compact(partition, world, NOW * 2 + 1)
        ours = _records(world.root / "t-0")
        assert len(ours) < len(found)
        assert {key: value for key, value in _last(ours).items() if value is not None} == {
            key: value for key, value in last.items() if value is not None
        }
        assert [str(fault) for fault in check.check(world.root / "t-0", deep=True)] == []


def _produce(bootstrap: str) -> dict[bytes, bytes | None]:
    from kafka import KafkaProducer
    from kafka.admin import KafkaAdminClient, NewTopic

    config = {
        "cleanup.policy": "compact", "segment.bytes": "5000", "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "100000",
    }  # fmt: skip
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic("t", 1, 1, topic_configs=config)])
    admin.close()
    last: dict[bytes, bytes | None] = {}
    for codec in (None, "gzip", "lz4"):
        producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, batch_size=500)
        for n in range(300):
            key, value = b"%d" % (n % 70), None if n % 13 == 0 else b"%d" % n * 10
            producer.send("t", key=key, value=value)
            last[key] = value
        producer.close()
    transactional = KafkaProducer(bootstrap_servers=bootstrap, transactional_id="x")
    transactional.init_transactions()
    for abort in (True, False):
        transactional.begin_transaction()
        value = b"aborted" if abort else b"committed"
        transactional.send("t", key=b"in a transaction", value=value)
        transactional.flush()
        transactional.abort_transaction() if abort else transactional.commit_transaction()
    transactional.close()
    last[b"in a transaction"] = b"committed"
    producer = KafkaProducer(bootstrap_servers=bootstrap, batch_size=500)
    for n in range(100):
        producer.send("t", key=b"filler %d" % (n % 3), value=b"x" * 100)
        last[b"filler %d" % (n % 3)] = b"x" * 100
    producer.close()
    return last


def _records(directory: Path) -> list[batch_v2.Record]:
    found = []
    for path in sorted(directory.glob("*.log")):
        for one in convert.split(path.read_bytes()):
            if not batch_v2.header(one).is_control:
                found += [row for row in batch_v2.iterate(one) if row[3] != b"aborted"]
    return found


def _last(rows: list[batch_v2.Record]) -> dict[bytes, bytes | None]:
    return {row[2]: row[3] for row in rows if row[2] is not None}
