"""An unreadable partition gets an error and a log line; other partitions of the request are served."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from odradek.protocol import errors, interbroker
from odradek.storage.files import names
from odradek.storage.log import control_batch, read, reindex, roll, timestamp_queries
from odradek.storage.log.partition import Partition
from odradek.storage.log.sequences import Producers
from odradek.storage.segment import epochs
from odradek.workers.fetch import leader_epochs

from ..clients.raw import calls
from ..harness.wire import decode_response
from ..storage.compaction.compacting import keyed, put
from ..storage.live import NOW
from .inprocess import Bench, Client
from .leading import produce

READ_COMMITTED, MAX_TIMESTAMP = 1, -3


def _partition(bench: Bench, index: int = 0) -> Partition:
    found = bench.worker.partition_of(b"t", index, False)
    assert found is not None
    return found


def _fetch(client: Client, offset: int = 0, version: int = 11, committed: bool = True, both: bool = True) -> list[Any]:
    parts = [calls.part(0, offset), calls.part(1, 0)] if both else [calls.part(0, offset)]
    asked = calls.session_request([("t", parts)], version=version, wait_ms=0)
    asked.isolation_level = READ_COMMITTED if committed else 0
    client.send(client.frame(asked))
    (answer,) = client.answers(1)
    return list(decode_response(asked, answer).responses[0].partitions)


def _list_offsets(client: Client, version: int, timestamp: int) -> Any:
    from kafka.protocol.consumer import ListOffsetsRequest as Request

    asked = Request.ListOffsetsTopic.ListOffsetsPartition(
        partition_index=0, current_leader_epoch=-1, timestamp=timestamp, max_num_offsets=10
    )
    topics = [Request.ListOffsetsTopic(name="t", partitions=[asked])]
    request = Request[version](replica_id=-1, isolation_level=0, topics=topics)
    return client.call(request).topics[0].partitions[0]


@pytest.fixture
def two(bench: Bench, client: Client) -> Bench:
    """Two partitions with records; the first has a sealed segment with an aborted transaction."""
    bench.grow("t", 2)
    bench.turn()
    partition = _partition(bench)
    frames = b"".join(produce(client, [b"%d" % n * 40]) for n in range(4)) + produce(client, [b"other"], partition=1)
    client.send(frames)
    client.answers(5)
    put(partition, keyed([(b"a", b"aborted")], producer=7, sequence=0, transaction=True))
    assert control_batch.write_marker(partition, 7, 0, 1, False, NOW) == errors.NONE
    with partition.locked() as values:
        roll.roll(partition, values)
    return bench


def _spoil(partition: Partition, kind: str, at: int) -> None:
    path = names.segment_path(partition.directory, 0, kind)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_damaged_transaction_index_fails_only_its_partition(
    two: Bench, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    partition = _partition(two)
    _spoil(partition, names.TXN_INDEX, 1)
    with caplog.at_level(logging.INFO):
        bad, good = _fetch(client)
    assert (bad.error_code, good.error_code) == (errors.KAFKA_STORAGE_ERROR, errors.NONE)
    assert len(good.records) > 0
    (said,) = [one for one in caplog.records if "read failed" in one.getMessage()]
    assert said.levelno == logging.WARNING
    assert "t-0" in said.getMessage()
    assert partition.slot.damaged == 0
    assert _fetch(client, committed=False)[0].error_code == errors.NONE
    reindex.mend(partition)
    assert [part.error_code for part in _fetch(client)] == [errors.NONE, errors.NONE]


def _faulty_for_the_first(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> None:
    """Make the function `name` fail for partition 0 with an unexpected error."""
    whole = getattr(module, name)

    def faulty(partition: Partition, *rest: Any) -> Any:
        if partition.index == 0:
            raise ZeroDivisionError("of ours")
        return whole(partition, *rest)

    monkeypatch.setattr(module, name, faulty)


@pytest.mark.parametrize("both", [False, True])
def test_exception_in_a_read_fails_only_its_partition(
    two: Bench, client: Client, both: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _faulty_for_the_first(monkeypatch, read, "fetch")
    found = _fetch(client, both=both, committed=False)
    assert [one.error_code for one in found] == [errors.KAFKA_STORAGE_ERROR, errors.NONE][: len(found)]
    assert "t-0: read failed: of ours" in caplog.text
    assert any(record.exc_info for record in caplog.records), "the log has the traceback"


def test_missing_time_index_fails_only_its_partition(
    two: Bench, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    from kafka.protocol.consumer import ListOffsetsRequest as Request

    partition = _partition(two)
    names.segment_path(partition.directory, 0, names.TIME_INDEX).unlink()
    parts = [
        Request.ListOffsetsTopic.ListOffsetsPartition(
            partition_index=index, current_leader_epoch=-1, timestamp=MAX_TIMESTAMP
        )
        for index in range(2)
    ]
    asked = Request[7](replica_id=-1, isolation_level=0, topics=[Request.ListOffsetsTopic(name="t", partitions=parts)])
    client.send(client.frame(asked))
    bad, good = decode_response(asked, client.answers(1)[0]).topics[0].partitions
    assert (bad.error_code, good.error_code) == (errors.KAFKA_STORAGE_ERROR, errors.NONE)
    assert good.offset == 0
    assert "the .timeindex of segment 0 is missing" in caplog.text
    reindex.mend(partition)
    client.send(client.frame(asked))
    mended, _ = decode_response(asked, client.answers(1)[0]).topics[0].partitions
    assert mended.error_code == errors.NONE
    assert mended.offset >= 0


def _epoch_ends(client: Client) -> list[Any]:
    from kafka.protocol.consumer import OffsetForLeaderEpochRequest as Request

    row = Request.OffsetForLeaderTopic
    parts = [row.OffsetForLeaderPartition(partition=at, current_leader_epoch=-1, leader_epoch=0) for at in range(2)]
    return list(client.call(Request[3](replica_id=-1, topics=[row(topic="t", partitions=parts)])).topics[0].partitions)


def _diverged(client: Client) -> list[Any]:
    parts = [calls.part(0, 0), calls.part(1, 0)]
    for part in parts:
        part.last_fetched_epoch = 0
    return list(client.call(calls.session_request([("t", parts)], version=12, wait_ms=0)).responses[0].partitions)


@pytest.mark.parametrize("ask", [_epoch_ends, _diverged])
def test_damaged_epoch_file_fails_only_its_partition(
    two: Bench, client: Client, ask: Callable[[Client], list[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """The file is rebuilt from the batches, once the partition's lock is free."""
    Path(_partition(two).directory, epochs.FILE_NAME).write_text("0\n1\nno epoch\n")
    slot = _partition(two).slot.number
    assert two.locks.try_lock(slot)
    with caplog.at_level(logging.INFO):
        bad, good = ask(client)
    two.locks.unlock(slot)
    assert (bad.error_code, good.error_code) == (errors.KAFKA_STORAGE_ERROR, errors.NONE)
    (said,) = [one for one in caplog.records if "t-0: read failed" in one.getMessage()]
    assert (said.levelno, said.exc_info) == (logging.WARNING, None)
    assert [part.error_code for part in ask(client)] == [errors.NONE] * 2


@pytest.mark.parametrize("ask", [_epoch_ends, _diverged])
def test_exception_in_an_epoch_lookup_fails_only_its_partition(
    two: Bench, client: Client, ask: Callable[[Client], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _faulty_for_the_first(monkeypatch, leader_epochs, "of")
    assert [part.error_code for part in ask(client)] == [errors.KAFKA_STORAGE_ERROR, errors.NONE]


def _producers(client: Client) -> list[Any]:
    request = interbroker.message_class("DescribeProducersRequest")
    topics = [request.TopicRequest(name="t", partition_indexes=[0, 1])]
    return list(client.call(request[0](topics=topics)).topics[0].partitions)


@pytest.mark.parametrize("fault", [OSError, ZeroDivisionError])
def test_unreadable_producer_table_fails_only_its_partition(
    two: Bench,
    client: Client,
    fault: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    mine, table = _partition(two).producers, Producers.table

    def faulty(self: Producers, generation: int) -> Any:
        if self is mine:
            raise fault("nothing to be read")
        return table(self, generation)

    monkeypatch.setattr(Producers, "table", faulty)
    found = {part.partition_index: part.error_code for part in _producers(client)}
    assert found == {0: errors.KAFKA_STORAGE_ERROR, 1: errors.NONE}
    assert "t-0: read failed: nothing to be read" in caplog.text


@pytest.mark.parametrize(("version", "committed"), [(3, False), (11, False), (11, True)])
def test_files_replaced_faster_than_read_give_an_empty_answer(
    two: Bench, client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, version: int,
    committed: bool,
) -> None:  # fmt: skip
    """A compaction of many small segments replaces files so fast. The log is intact, so the answer has no error.

    As in Kafka, read_committed gets an empty list of aborted transactions, and read_uncommitted null.
    """
    partition = _partition(two)
    found = read.fetch

    def replaced(one: Partition, *wanted: Any) -> Any:
        if one is partition:
            state = one.state()
            one.slot.publish(state._replace(generation=state.generation + 1))
            raise FileNotFoundError("replaced meanwhile")
        return found(one, *wanted)

    monkeypatch.setattr(read, "fetch", replaced)
    first, second = _fetch(client, version=version, committed=committed)
    monkeypatch.undo()
    assert (first.error_code, second.error_code) == (errors.NONE, errors.NONE)
    if version >= 4:
        assert first.aborted_transactions == second.aborted_transactions == ([] if committed else None)
    assert not first.records and second.records and first.high_watermark == 6
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert _fetch(client, version=version, committed=committed)[0].records


@pytest.mark.parametrize(("version", "code"), [(4, errors.LEADER_NOT_AVAILABLE), (5, errors.OFFSET_NOT_AVAILABLE)])
def test_timestamp_query_is_repeated_in_replaced_files(
    two: Bench, client: Client, monkeypatch: pytest.MonkeyPatch, version: int, code: int
) -> None:
    partition, step, replacements = _partition(two), timestamp_queries.OffsetForTimestamp.step, 1

    def replaced(question: timestamp_queries.OffsetForTimestamp, one: Partition, *wanted: Any) -> Any:
        nonlocal replacements
        state, replacements = one.state(), replacements - 1
        if replacements < 0:
            return step(question, one, *wanted)
        one.slot.publish(state._replace(generation=state.generation + 1))
        raise FileNotFoundError("replaced meanwhile")

    monkeypatch.setattr(timestamp_queries.OffsetForTimestamp, "step", replaced)
    assert _list_offsets(client, version, 1).error_code == errors.NONE
    replacements = 100
    assert _list_offsets(client, version, 1).error_code == code
    assert partition.state().generation >= 3


def test_missing_files_are_an_error(
    two: Bench, client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: Any) -> Any:
        raise FileNotFoundError("somebody has removed it")

    monkeypatch.setattr(read, "fetch", missing)
    first, _ = _fetch(client)
    assert first.error_code == errors.KAFKA_STORAGE_ERROR
    assert "somebody has removed it" in caplog.text
