"""Offsets without a batch: compacted away, lost, or hidden because the base offset of a batch is damaged."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.pipeline.errors import DataLoss, MissingOffsets, PipelineError
from odradek.pipeline.types import ReplicaPlace
from odradek.protocol.records import convert

from ..clients.admin import create_named, create_topic, unique
from ..clients.transactions import Confluent
from ..harness.broker import Broker
from .accounting import consumed
from .local import Local
from .reads import SHORT, planned, read, read_split
from .stand_in import CONFIGS, FETCH, StandIn
from .test_brokers import delete_records_before
from .test_fetching import fill
from .test_segments import CLEANER, COMPACTED, all_rows, batches, compacted, copied, delete_topic, keyed, logs

pytestmark = pytest.mark.live

Fresh = Callable[..., Broker]
OFF = {"odradek.local": "off"}
COUNT, SIZE = 20, 3
ALL = list(range(COUNT * SIZE))


def offsets(broker: Any, topic: str, start: int | None = None, end: int | None = None, /, **options: str) -> list[int]:
    return [one.offset for one in read(broker, topic, start, end, **options)]


@pytest.fixture(scope="module")
def topic(broker: Any) -> str:
    """Twenty batches of three records, in a log that is not compacted."""
    name = create_topic(broker)
    fill(broker, name, COUNT, SIZE)
    return name


# -- silence


def silent_from(offset: int) -> Callable[[Any, Any], Any]:
    """A fetch response without records from `offset` on, and without an error."""

    def lie(request: Any, true: Any) -> Any:
        if request.topics[0].partitions[0].fetch_offset >= offset:
            true.responses[0].partitions[0].records = None
        else:
            _keep(true, lambda data: _before(data, offset))
        return true

    return lie


def _keep(true: Any, what: Callable[[bytes], bytes]) -> None:
    row = true.responses[0].partitions[0]
    row.records = what(bytes(row.records or b""))


def _before(data: bytes, offset: int) -> bytes:
    return b"".join(piece for piece in convert.split(data) if int.from_bytes(piece[:8], "big") < offset)


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_empty_responses_are_not_the_end_of_the_log(broker: Any, topic: str, level: str) -> None:
    with StandIn(broker.bootstrap, {FETCH: silent_from(30)}) as stand_in:
        options = {**SHORT, **OFF, "kafka.isolation.level": level}
        why = rf"^{topic}-0: the leader sends no batch with offsets 30 to 59 or later.* not compacted"
        with pytest.raises(MissingOffsets, match=why):
            read(stand_in, topic, **options)
        assert offsets(stand_in, topic, 0, 30, **options) == list(range(30))


def test_offsets_without_a_response_are_logged_as_loss(
    broker: Any, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with StandIn(broker.bootstrap, {FETCH: silent_from(30)}) as stand_in, caplog.at_level(logging.WARNING):
        assert offsets(stand_in, topic, failOnDataLoss="false", **SHORT, **OFF) == list(range(30))
    assert "offsets 30 to 59" in caplog.text
    assert "up to 30 offsets are left out" in caplog.text


def test_temporary_empty_responses_lose_nothing(broker: Any, topic: str) -> None:
    """A leader responds like this while it fetches from remote storage."""
    left = [4]

    def lie(request: Any, true: Any) -> Any:
        left[0] -= 1
        return silent_from(30)(request, true) if left[0] >= 0 else true

    with StandIn(broker.bootstrap, {FETCH: lie}) as stand_in:
        assert offsets(stand_in, topic, **OFF) == ALL


def test_hole_before_an_open_transaction_is_accepted(fresh_broker: Fresh) -> None:
    """read_committed returns no records there; the batch of the open transaction proves the hole."""
    broker = fresh_broker()
    topic = Local(broker, cleanup_policy="compact")
    keyed(topic, [b"k"] * 6)
    producer = Confluent(broker, unique("id"))
    broker.stop()
    Path(topic.directory, f"{20:020}.log").touch()
    broker.start()
    producer.begin()
    producer.send(topic.name, b"open", key=b"k")
    producer.flush()
    assert topic.end(committed=True) == 20
    assert offsets(broker, topic.name, kafka_isolation_level="read_committed", **OFF) == list(range(6))
    producer.abort()
    producer.close()


# -- gaps and flipped bits in fetch responses


def dropping(*numbers: int) -> Callable[[Any, Any], Any]:
    """Remove the batches that begin at these offsets."""

    def lie(_: Any, true: Any) -> Any:
        def kept(data: bytes) -> bytes:
            return b"".join(one for one in convert.split(data) if int.from_bytes(one[:8], "big") not in numbers)

        _keep(true, kept)
        return true

    return lie


@pytest.mark.parametrize(("gone", "said"), [([0], "0 to 2"), ([27], "27 to 29"), ([57], "57 to 59")])
def test_missing_batch_is_an_error_that_names_its_offsets(broker: Any, topic: str, gone: list[int], said: str) -> None:
    with StandIn(broker.bootstrap, {FETCH: dropping(*gone)}) as stand_in:
        with pytest.raises(MissingOffsets, match=rf"^{topic}-0: .* offsets {said}\b.*not compacted"):
            read(stand_in, topic, **SHORT, **OFF)
        start, end = (gone[0], gone[0] + 3)
        with pytest.raises(MissingOffsets, match=rf"^{topic}-0: .* offsets {said}\b"):
            read(stand_in, topic, start, end, **SHORT, **OFF)
        rest = [one for one in ALL if one - one % 3 not in gone]
        assert offsets(stand_in, topic, failOnDataLoss="false", **SHORT, **OFF) == rest


def test_many_gaps_are_reported_once(broker: Any, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    with StandIn(broker.bootstrap, {FETCH: dropping(6, 12, 30)}) as stand_in, caplog.at_level(logging.WARNING):
        assert len(read(stand_in, topic, failOnDataLoss="false", **SHORT, **OFF)) == len(ALL) - 9
        [line] = [record.getMessage() for record in caplog.records if "no batch" in record.getMessage()]
        assert f"{topic}-0: no batch has offsets 6 to 8" in line
        assert "2 more gaps" in line
        assert "up to 9 offsets are left out" in line
        assert offsets(stand_in, topic, **SHORT, **OFF, **{"odradek.compacted": "true"})[:9] == [*range(6), 9, 10, 11]


def flipped(at: int, bit: int) -> Callable[[Any, Any], Any]:
    """Flip one bit of the base offset of the batch that begins at offset `at`."""

    def lie(_: Any, true: Any) -> Any:
        def wrong(data: bytes) -> bytes:
            return b"".join(map(one, convert.split(data)))

        def one(piece: Any) -> bytes:
            base = int.from_bytes(piece[:8], "big")
            return ((base ^ 1 << bit) if base == at else base).to_bytes(8, "big") + bytes(piece[8:])

        _keep(true, wrong)
        return true

    return lie


@pytest.mark.parametrize("at", [0, 27, 30, 57])
def test_flipped_bit_of_a_base_offset_is_found(broker: Any, topic: str, at: int) -> None:
    """In any range that contains the batch or is next to it; other ranges are not affected."""
    with StandIn(broker.bootstrap) as stand_in:
        for bit in (*range(9), 31, 32, 47, 62, 63):
            stand_in.lies[FETCH] = flipped(at, bit)
            for start, end in ((0, 60), (at, at + 3), (at + 1, at + 2), (max(0, at - 1), at + 1), (at + 2, 60)):
                with pytest.raises(PipelineError, match=f"{topic}-0"):
                    read(stand_in, topic, start, end, **SHORT, **OFF)
            if at:
                assert offsets(stand_in, topic, 0, at - 3, **SHORT, **OFF) == list(range(at - 3))


# -- damaged files


@contextmanager
def damaged(path: Path, position: int, bit: int) -> Iterator[None]:
    """Flip one bit of a file within the block."""
    with open(path, "r+b") as file:
        file.seek(position)
        [old] = file.read(1)
        file.seek(position)
        file.write(bytes([old ^ 1 << bit]))
        file.flush()
        yield
        file.seek(position)
        file.write(bytes([old]))


def starts(path: Path) -> list[int]:
    """The positions at which the batches of a segment begin."""
    found, at = [], 0
    for piece in convert.split(path.read_bytes()):
        found.append(at)
        at += len(piece)
    return found


def test_flipped_bits_outside_of_checksums_are_found_on_disk(broker: Any) -> None:
    """No checksum covers base offset, length and magic. The error names the file."""
    rnd = random.Random(5)
    topic = Local(broker, segment_bytes=2000)
    topic.put(batches(COUNT, SIZE))
    for name in logs(topic)[:-1]:
        path = Path(topic.directory, name)
        for position in (starts(path)[0], rnd.choice(starts(path)), starts(path)[-1]):
            for byte in (*range(12), 16):
                with damaged(path, position + byte, rnd.randrange(8)), pytest.raises(PipelineError) as told:
                    read(broker, topic.name, **SHORT)
                assert f"{topic.name}-0" in str(told.value)
                if isinstance(told.value, MissingOffsets):
                    assert str(path) in str(told.value)
    assert offsets(broker, topic.name) == ALL


@pytest.mark.long
def test_flipped_offset_bits_in_a_compacted_log_lose_no_record(fresh_broker: Fresh) -> None:
    """A damaged offset between those of its neighbours cannot be noticed; but no record is skipped."""
    rnd = random.Random(9)
    topic = Local(fresh_broker(**CLEANER), **COMPACTED)
    keyed(topic, [b"k%d" % rnd.randrange(30) for _ in range(300)])
    compacted(topic)
    whole, _ = consumed(topic.broker, topic.name, "read_uncommitted")
    assert len(whole) < 150
    assert read(topic.broker, topic.name) == whole
    refused = 0
    for name in logs(topic):
        path = Path(topic.directory, name)
        if not path.stat().st_size:
            continue
        for position in {starts(path)[0], rnd.choice(starts(path)), starts(path)[-1]}:
            for byte in range(8):
                with damaged(path, position + byte, rnd.randrange(8)):
                    try:
                        found = read(topic.broker, topic.name, **SHORT)
                    except PipelineError:
                        refused += 1
                    else:
                        assert [one.value for one in found] == [one.value for one in whole], (name, position, byte)
    assert refused > 50


# -- whether the topic is compacted


def test_refused_describe_configs_names_odradek_compacted(broker: Any, topic: str) -> None:
    def refuse(_: Any, true: Any) -> Any:
        true.results[0].error_code, true.results[0].configs = 29, []  # TOPIC_AUTHORIZATION_FAILED
        return true

    why = r"is unknown .*TopicAuthorizationFailed.*odradek.compacted=true"
    with (
        StandIn(broker.bootstrap, {FETCH: dropping(27), CONFIGS: refuse}) as stand_in,
        pytest.raises(MissingOffsets, match=why),
    ):
        read(stand_in, topic, **SHORT, **OFF)


def test_configs_are_requested_only_for_missing_offsets(broker: Any, topic: str) -> None:
    with StandIn(broker.bootstrap) as stand_in:
        assert offsets(stand_in, topic, **OFF) == ALL
        assert not [one for _, one in stand_in.asked if one.API_KEY == CONFIGS]


def test_setting_compacted_false_makes_holes_an_error(broker: Any) -> None:
    """With odradek.compacted=false every offset must have a record."""
    topic = Local(broker, cleanup_policy="compact")
    keyed(topic, [b"k%d" % at for at in range(60)])
    with StandIn(broker.bootstrap, {FETCH: dropping(27)}) as stand_in:
        assert len(read(stand_in, topic.name, **SHORT, **OFF)) == 59
        with pytest.raises(MissingOffsets, match=rf"^{topic.name}-0: .* offsets 27 to 27\b.*not compacted"):
            read(stand_in, topic.name, **SHORT, **OFF, **{"odradek.compacted": "false"})


# -- the log has changed since the plan


def test_topic_recreated_after_the_plan_is_data_loss(broker: Any) -> None:
    topic = Local(broker)
    topic.put(batches(COUNT, SIZE))
    reader, tasks = planned(broker, topic.name, **OFF)
    delete_topic(topic)
    with broker.wire() as wire:
        create_named(wire, topic.name)
    topic.put(batches(2 * COUNT, SIZE))
    with pytest.raises(DataLoss, match=rf"topic '{topic.name}' was recreated"):
        [row for task in tasks for row in read_split(reader, task)]


def test_records_missing_in_local_files_are_fetched_from_the_leader(broker: Any, tmp_path: Path) -> None:
    """As in tiered storage: the leader has the records of segments that are not local any more."""
    topic = Local(broker, segment_bytes=2000)
    topic.put(batches(COUNT, SIZE))
    reader, [task] = planned(broker, topic.name)
    assert task.location is not None
    with copied(topic, tmp_path) as directory:
        os.unlink(Path(directory, logs(topic)[0]))
        os.unlink(Path(directory, logs(topic)[0]).with_suffix(".index"))
        copy = task.location._replace(place=ReplicaPlace(0, str(directory)))
        found = read_split(reader, replace(task, location=copy))
    assert [(one.offset, one.value) for one in found] == all_rows(COUNT * SIZE)


def test_records_deleted_after_the_plan_are_data_loss(broker: Any) -> None:
    topic = Local(broker)
    topic.put(batches(COUNT, SIZE))
    reader, [task] = planned(broker, topic.name, **OFF)
    delete_records_before(broker, topic.name, 30)
    with pytest.raises(DataLoss, match=r"offset 0 of .* no longer exists: the log has 30 to 59"):
        read_split(reader, task)


# -- many faults at once


@pytest.mark.parametrize("seed", range(6))
def test_all_records_are_read_despite_faulty_fetch_responses(broker: Any, topic: str, seed: int) -> None:
    """Retriable errors, truncated and empty responses, other partitions, lost connections."""
    rnd = random.Random(seed)

    def lie(_: Any, true: Any) -> Any:
        row = true.responses[0].partitions[0]
        match rnd.randrange(9):
            case 0:
                row.error_code, row.records = rnd.choice([5, 6, 7, 9, 74, 75, 100]), None
            case 1:
                row.records = bytes(row.records or b"")[: rnd.randrange(1200)]
            case 2:
                row.records = None
            case 3:
                row.partition_index += 1
            case 4:
                true.responses, true.throttle_time_ms = [], 30
            case 5:
                return None
        return true

    options = {"kafka.max.partition.fetch.bytes": "900", "kafka.retry.backoff.ms": "10", **OFF}
    with StandIn(broker.bootstrap, {FETCH: lie}) as stand_in:
        assert offsets(stand_in, topic, **options) == ALL
        assert offsets(stand_in, topic, 7, 44, **options) == list(range(7, 44))
