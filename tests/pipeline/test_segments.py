"""Reading a leader's files returns the records that a consumer gets over the wire, or refuses with `NotLocal`."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.pipeline.reading import segments
from odradek.pipeline.reading.segments import NotLocal
from odradek.storage.dirs import logdirs
from odradek.storage.files import checkpoints, names
from odradek.storage.tools.offline_reader import OfflineReader

from ..clients.admin import create_named, unique
from ..clients.raw.batches import batch
from ..clients.raw.calls import produce
from ..clients.transactions import Confluent, await_stable
from ..harness.broker import Broker
from ..harness.process import wait_until
from .local import Local, Row, rows

pytestmark = pytest.mark.live

Fresh = Callable[..., Broker]
SMALL = {"segment_bytes": 2000}
COMPACTED = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", "segment_bytes": 2000}
CLEANER = {"log_cleaner_backoff_ms": 50}


def values(first: int, count: int) -> list[bytes]:
    return [b"value %d" % number for number in range(first, first + count)]


def batches(count: int, size: int = 3, first: int = 0) -> Iterator[list[bytes]]:
    return (values(first + at * size, size) for at in range(count))


def all_rows(count: int, start: int = 0) -> list[Row]:
    return list(enumerate(values(start, count - start), start))


def logs(topic: Local) -> list[str]:
    return sorted(name for name in os.listdir(topic.directory) if name.endswith(names.LOG))


# -- ranges -----------------------------------------------------------------------------------------------------


def test_any_range_across_segments_and_batches_is_read(broker: Any) -> None:
    topic = Local(broker, **SMALL)
    topic.put(batches(60))
    assert len(logs(topic)) > 3
    assert topic.read() == all_rows(180) == topic.consumed()
    some = [*range(0, 180, 17), *range(60, 72), 178, 179, 180]
    for start, end in itertools.combinations(sorted(some), 2):
        assert topic.read(start, end) == all_rows(end, start), (start, end)
    assert topic.read(90, 90) == []


def test_chunks_are_whole_batches_of_any_size(broker: Any) -> None:
    topic = Local(broker, max_message_bytes=16 << 20)
    sizes = [900_000] * 9 + [segments.PIECE + 1_000_000] + [100] * 3 + [900_000] * 4
    topic.put([b"%06d" % at + bytes(size)] for at, size in enumerate(sizes))
    chunks = list(topic.chunks())
    assert len(chunks) >= 3
    assert [(offset, value[:6], len(value)) for offset, value in rows(chunks, topic.range()) if value] == [
        (at, b"%06d" % at, size + 6) for at, size in enumerate(sizes)
    ]
    assert [len(topic.read(at, at + 1)) for at in range(len(sizes))] == [1] * len(sizes)


def test_the_offset_index_finds_the_start(broker: Any) -> None:
    topic = Local(broker, segment_bytes=1 << 20)
    topic.put(batches(600, 10))
    begin = OfflineReader(topic.directory).segment(5000).position
    assert os.stat(os.path.join(topic.directory, logs(topic)[0])).st_size - begin < 60_000
    assert topic.read(5000) == all_rows(6000, 5000)


def test_bytes_after_the_high_watermark_are_not_read(broker: Any) -> None:
    topic = Local(broker)
    topic.put(batches(3))
    with open(os.path.join(topic.directory, logs(topic)[0]), "ab") as log:
        log.write(batch(values(9, 3))[:-5] + os.urandom(50))
    assert topic.read() == all_rows(9)


def test_log_that_ends_before_the_range_is_not_local(broker: Any) -> None:
    topic = Local(broker)
    topic.put(batches(3))
    going = topic.chunks(0, 12)
    assert rows([next(going)], topic.range()) == all_rows(9)
    with pytest.raises(NotLocal, match=rf"{topic.name}-0: offset 9 .* before offset 12") as told:
        next(going)
    assert told.value.offset == 9


def test_damaged_batch_header_is_not_skipped(broker: Any) -> None:
    topic = Local(broker, **SMALL)
    topic.put(batches(60))
    with open(os.path.join(topic.directory, logs(topic)[1]), "r+b") as log:
        log.seek(8)
        log.write(bytes(4))
    first = names.parse_segment_file(logs(topic)[1])
    assert first is not None
    with pytest.raises(NotLocal, match="damaged") as told:
        list(topic.chunks())
    assert told.value.offset == first.offset


def test_truncated_sealed_segment_is_not_skipped(broker: Any) -> None:
    topic = Local(broker, **SMALL)
    topic.put(batches(60))
    path = os.path.join(topic.directory, logs(topic)[0])
    os.truncate(path, os.stat(path).st_size - 9)
    with pytest.raises(NotLocal, match="damaged"):
        topic.read()


# -- transactions -----------------------------------------------------------------------------------------------


def test_read_committed_skips_aborted_and_open_transactions(broker: Any) -> None:
    topic = Local(broker, **SMALL)
    producers = [Confluent(broker, unique("id")) for _ in range(2)]
    for number in range(8):
        for producer in producers:
            producer.begin()
            for at in range(20):
                producer.send(topic.name, b"%d-%d" % (number, at))
            producer.flush()
        for producer, keep in zip(producers, (number % 3 == 0, number % 2 == 0), strict=True):
            producer.commit() if keep else producer.abort()
    await_stable(broker, topic.name)
    topic.put(batches(1))
    producers[0].begin()
    producers[0].send(topic.name, b"open")
    producers[0].flush()
    topic.put(batches(1))
    assert topic.end(committed=True) < topic.end()
    wanted = topic.consumed("read_committed")
    assert topic.read(committed=True) == wanted
    assert topic.read() == topic.consumed() != wanted
    end = topic.end(committed=True)
    for middle in range(0, end, 7):
        assert topic.read(0, middle, committed=True) + topic.read(middle, end, committed=True) == wanted, middle
    producers[0].abort()
    for producer in producers:
        producer.close()


# -- changes while a reader is active ----------------------------------------------------------------------------


def delete_records(topic: Local, offset: int) -> None:
    from kafka import KafkaAdminClient, TopicPartition

    admin = KafkaAdminClient(bootstrap_servers=topic.broker.bootstrap)
    admin.delete_records({TopicPartition(topic.name, 0): offset})
    admin.close()


def test_deleted_records_are_not_local(broker: Any) -> None:
    topic = Local(broker, **SMALL)
    topic.put(batches(60))
    delete_records(topic, 100)
    first = names.parse_segment_file(logs(topic)[0])
    assert first is not None and 0 < first.offset <= 100
    assert topic.read(100) == all_rows(180, 100)
    with pytest.raises(NotLocal, match=rf"{topic.name}-0: offset 5 .* now starts at offset {first.offset}") as told:
        topic.read(5)
    assert told.value.offset == 5, "the leader may have it in tiered storage"


def configure(topic: Local, config: dict[str, Any]) -> None:
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=topic.broker.bootstrap)
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic.name, config)])
    admin.close()


def test_records_that_retention_deletes_during_a_read_are_not_local(broker: Any) -> None:
    topic = Local(broker, **SMALL)
    topic.put(batches(60))
    borders = [found.offset for name in logs(topic) if (found := names.parse_segment_file(name))]
    going = topic.chunks()
    there = rows([next(going)], topic.range())
    configure(topic, {"retention.ms": 1})
    wait_until(
        lambda: not set(borders) & {int(name[:20]) for name in logs(topic)}, 30, "retention has deleted all records"
    )
    with pytest.raises(NotLocal, match=rf"{topic.name}-0: offset {borders[1]} .* now starts at offset 180"):
        next(going)
    assert there == all_rows(borders[1]), "the reader did not reach the end of its open segment"


def compacted(topic: Local) -> None:
    """Wait until all but the active segment are compacted."""

    def cleaned() -> bool:
        offsets = checkpoints.read_offsets(topic.broker.data_dir, checkpoints.CLEANER)
        return offsets.get((topic.name, 0), 0) == int(logs(topic)[-1][:20]) > 0

    wait_until(cleaned, 30, "the log is compacted")


def keyed(topic: Local, keys: list[bytes], first: int = 0) -> None:
    with topic.broker.wire() as wire:
        for at, key in enumerate(keys, first):
            answer = produce(wire, topic.name, batch([b"value %d" % at], key=key))
            assert answer.error_code == 0


def test_a_compacted_topic_has_gaps_in_and_between_segments(fresh_broker: Fresh) -> None:
    topic = Local(fresh_broker(**CLEANER), **COMPACTED)
    keyed(topic, [b"k%d" % (number % 7) for number in range(300)] + [b"other"] * 40)
    compacted(topic)
    wanted = topic.consumed()
    assert len(wanted) < 100
    assert topic.read() == wanted
    for start, end in itertools.combinations([*range(0, 340, 31), 292, 293, 299, 300, 301], 2):
        assert topic.read(start, end) == [row for row in wanted if start <= row[0] < end], (start, end)


def test_compaction_during_a_read_loses_no_record(fresh_broker: Fresh) -> None:
    """Most keys differ, so most records survive, in other files: several small segments become one."""
    topic = Local(fresh_broker(**CLEANER), **SMALL)
    keyed(topic, [b"same"] * 200)
    keyed(topic, [b"k%d" % number for number in range(800)], 200)
    end, before = topic.end(), logs(topic)
    readers = [topic.chunks(end=end) for _ in range(3)]
    found: list[list[Row]] = [[] for _ in readers]
    for at, (reader, rows_) in enumerate(zip(readers, found, strict=True)):
        for _ in range(1 + 2 * at):
            rows_ += rows([next(reader)], topic.range(len(rows_), end))
    configure(topic, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01, "segment.bytes": 30_000})
    keyed(topic, [b"last"] * 400, end)
    compacted(topic)
    assert len(set(before) - set(logs(topic))) > 10
    for reader, rows_ in zip(readers, found, strict=True):
        rows_ += rows(reader, topic.range(len(rows_), end))
        offsets = [offset for offset, _ in rows_]
        assert offsets == sorted(set(offsets))
        assert dict(rows_).items() <= dict(all_rows(end)).items()
        assert set(range(199, end)) <= set(offsets), "a record that compaction keeps is missing"
    assert len(found[0]) < len(found[1]) < len(found[2]) < end, (
        "each reader must meet the compaction at another position"
    )


def test_reader_continues_across_a_kill_of_the_broker(fresh_broker: Fresh) -> None:
    topic = Local(fresh_broker(), **SMALL)
    topic.put(batches(60))
    going = topic.chunks()
    found = rows([next(going)], topic.range())
    topic.broker.kill()
    found += rows([next(going)], topic.range(len(found), 180))
    topic.broker.start()
    topic.put(batches(20, first=180))
    assert found + rows(going, topic.range(len(found), 180)) == all_rows(180)
    assert topic.read() == all_rows(240)


# -- directories of other replicas -------------------------------------------------------------------------------


def test_only_the_requested_replica_is_usable(broker: Any, tmp_path: Path) -> None:
    topic, other = Local(broker), Local(broker)
    assert topic.usable()
    assert not topic.usable(cluster_id="another")
    assert not topic.usable(leader_id=7)
    assert not topic.usable(topic_id=bytes(16))
    assert not topic.usable(directory=other.directory)
    assert not topic.usable(directory=os.path.relpath(topic.directory))
    assert not topic.usable(directory=tmp_path / "none-0")
    for mark in names.MARKED_DIRS:
        path = broker.data_dir / names.marked_dir(topic.name, 0, mark)
        os.symlink(topic.directory, path)
        assert not topic.usable(directory=path)
        path.unlink()


@contextmanager
def copied(topic: Local, folder: Path) -> Iterator[Path]:
    """Copy the topic's directory to another log directory, locked as a broker locks it."""
    log_dir = folder / "copy"
    shutil.copytree(topic.directory, log_dir / f"{topic.name}-0")
    shutil.copy(topic.broker.data_dir / checkpoints.META_PROPERTIES, log_dir)
    lock = logdirs.lock_dir(log_dir)
    yield log_dir / f"{topic.name}-0"
    os.close(lock)


def test_a_copy_of_a_brokers_data_is_not_usable(broker: Any, tmp_path: Path) -> None:
    topic = Local(broker)
    with copied(topic, tmp_path) as directory:
        assert topic.usable(directory=directory)
    assert not topic.usable(directory=directory), "a directory without a lock is usable"


@pytest.mark.parametrize("damage", ["gone", "loop", "noise"])
@pytest.mark.parametrize("what", ["../meta.properties", "partition.metadata", "../.lock", f"{0:020}.log", "."])
def test_directory_with_an_unreadable_file_is_not_usable(broker: Any, tmp_path: Path, what: str, damage: str) -> None:
    topic = Local(broker)
    with copied(topic, tmp_path) as directory:
        path = (directory / what).resolve()
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        if damage == "loop":  # not even root can open such a link
            path.symlink_to(path)
        if damage == "noise":
            path.write_bytes(b"\xff\x00\n" * 9)
        assert not topic.usable(directory=directory) or (damage, path.suffix) == ("noise", names.LOG)


def delete_topic(topic: Local) -> None:
    from kafka.admin import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=topic.broker.bootstrap)
    admin.delete_topics([topic.name])
    admin.close()
    wait_until(lambda: not os.path.exists(topic.directory), what="the topic's directory is gone")


@pytest.mark.parametrize("recreated", [False, True])
def test_topic_deleted_during_a_read_is_not_local(broker: Any, recreated: bool) -> None:
    topic = Local(broker, **SMALL)
    topic.put(batches(60))
    former = topic.id
    going = topic.chunks()
    found = rows([next(going)], topic.range())
    delete_topic(topic)
    if recreated:
        with broker.wire() as wire:
            create_named(wire, topic.name, **SMALL)
        topic.put([b"other"] for _ in range(180))
        assert topic.usable() and not topic.usable(topic_id=former)
    else:
        assert not topic.usable(topic_id=former)
    with pytest.raises(NotLocal) as told:
        next(going)
    assert told.value.offset == len(found) and found == all_rows(len(found))


def test_replica_moved_to_another_log_directory_is_read_there(fresh_broker: Fresh) -> None:
    broker = fresh_broker()
    topic, second = Local(broker, **SMALL), broker.folder / "second"
    topic.put(batches(60))
    going = topic.chunks()
    found = rows([next(going)], topic.range())
    broker.stop()
    second.mkdir()
    moved = shutil.move(topic.directory, second)
    broker.set(log_dirs=f"{broker.data_dir},{second}")
    broker.start()
    with pytest.raises(NotLocal) as told:
        next(going)
    assert topic.usable(directory=moved) and not topic.usable()
    rest = topic.range(told.value.offset, 180)
    assert found + rows(topic.read_range(rest, directory=moved), rest) == all_rows(180)
