"""Frames, barriers, order and bounds of one worker's connections, over socket pairs."""

from __future__ import annotations

import os
import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.ipc import latencies, slots
from odradek.ipc.latencies import ROW, SEND, SUM, WORDS
from odradek.protocol import errors
from odradek.storage.files.openfile import FileSlice, OpenFile
from odradek.workers.fetch import fetching
from odradek.workers.net import connection_state, framing, sending
from odradek.workers.net.connection import Connection
from odradek.workers.produce.batching import ALONE

from ...clients.raw import batches, calls
from ...harness.wire import decode_response
from ..inprocess import Bench, Client, correlations, raw
from ..inprocess import bench as make


def produce(client: Client, values: list[bytes], topic: str = "t", **options: object) -> bytes:
    """A Produce frame."""
    fields = {name: options.pop(name) for name in ("producer", "epoch", "sequence") if name in options}
    return client.frame(calls.produce_request(topic, batches.batch(values, **fields), **options))  # type: ignore[arg-type]  # of several types


def values_in(client: Client, topic: str = "t", offset: int = 0, partition: int = 0) -> list[bytes | None]:
    """The values that a consumer reads."""
    answer = client.call(calls.fetch_request(topic, offset, wait_ms=0, partition=partition))
    part = answer.responses[0].partitions[0]
    assert part.error_code == 0
    return [record.value for record in batches.parse(part.records)]


def test_frames_that_arrive_byte_by_byte_are_answered(bench: Bench, client: Client) -> None:
    for byte in produce(client, [b"slow"]) + raw(18, 0, 7):
        client.send(bytes([byte]))
        bench.turn()
    assert correlations(client.answers(2)) == [1, 7]
    assert values_in(client) == [b"slow"]


def test_unsent_part_of_a_large_answer_is_not_copied() -> None:
    """A socket takes a small part each time; a copy of the rest after each part would be quadratic."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        connection = Connection(ours, "PLAINTEXT", "h", 1)
        answer, received = os.urandom(8 << 20), b""
        connection.queue_all([answer, b"end"])
        while connection.out:
            sending.flush(connection)
            if len(connection.out) == 2:
                (rest, _) = connection.out
                assert isinstance(rest, memoryview)
                assert rest.obj is answer
            received += theirs.recv(1 << 20)
        while len(received) < len(answer) + 3:
            received += theirs.recv(1 << 20)
        assert (received, connection.out_size) == (answer + b"end", 0)


def test_many_frames_at_once_are_answered_in_order(bench: Bench, client: Client) -> None:
    data, expected = b"", []
    for n in range(200):
        data += produce(client, [b"%d" % n])
        expected.append(client._correlation)
        if n % 7 == 0:
            data += raw(18, 0, 10_000 + n)
            expected.append(10_000 + n)
        if n % 11 == 0:
            data += client.frame(calls.fetch_request("t", 0, wait_ms=0))
            expected.append(client._correlation)
    client.send(data)
    assert correlations(client.answers(len(expected))) == expected
    assert len(values_in(client)) == 200


def test_fetch_after_a_produce_reads_its_records(bench: Bench, client: Client) -> None:
    fetch = calls.fetch_request("t", 0, wait_ms=0)
    client.send(produce(client, [b"a"]) + client.frame(fetch) + produce(client, [b"b"]))
    answers = client.answers(3)
    part = decode_response(fetch, answers[1]).responses[0].partitions[0]
    assert [record.value for record in batches.parse(part.records)] == [b"a"]


def test_acks_0_gets_no_answer_and_its_refusal_closes_the_connection(bench: Bench, client: Client) -> None:
    client.send(produce(client, [b"a"], acks=0) + raw(18, 0, 7))
    assert correlations(client.answers(1)) == [7]
    assert values_in(client) == [b"a"]
    client.send(produce(client, [b"a"], topic="unknown", acks=0))
    assert client.gone()


def test_request_after_a_produce_waits_for_its_contended_lock(bench: Bench, client: Client) -> None:
    other = bench.connect()
    with bench.held("t"):
        client.send(produce(client, [b"a"]) + produce(client, [b"b"]) + raw(18, 0, 7) + produce(client, [b"c"]))
        other.send(raw(18, 0, 8))
        bench.turn(5)
        assert client.frames() == []
        assert correlations(other.answers()) == [8]
        assert bench.slot("t").state().leo == 0
    assert correlations(client.answers(4)) == [1, 2, 7, 3]
    assert values_in(client) == [b"a", b"b", b"c"]


def test_batches_that_wait_for_a_lock_are_copied_once(bench: Bench, client: Client) -> None:
    with bench.held("t"):
        client.send(produce(client, [b"a"]))
        bench.turn(3)
        partition = bench.worker.partition_of(b"t", 0, False)
        assert partition is not None
        (view,) = [batch.view for batch in partition.pending]
        bench.turn(3)
        assert partition.pending[0].view is view
    assert correlations(client.answers()) == [1]


def test_other_partitions_are_served_while_one_is_locked(bench: Bench, client: Client) -> None:
    bench.topic("u")
    other = bench.connect()
    with bench.held("t"):
        client.send(produce(client, [b"a"]))
        other.send(produce(other, [b"b"], topic="u"))
        assert correlations(other.answers()) == [1]
        assert client.frames() == []
    assert correlations(client.answers()) == [1]


def test_size_of_batches_that_wait_for_a_lock_is_bounded(bench: Bench, client: Client) -> None:
    """While the lock's holder is stopped, a pipelining producer must not fill the worker's memory."""
    sent = 0
    with bench.held("t"):
        data = produce(client, [b"x" * 100_000], acks=1)
        for _ in range(300):
            try:
                sent += client.sock.send(data)
            except BlockingIOError:
                pass
            bench.turn()
        assert bench.connection(client).undecided < 3 * framing.MOST_IN_FLIGHT
    whole = -(-sent // len(data))
    client.send(data[sent % len(data) :] if sent % len(data) else b"")
    assert len(client.answers(whole)) == whole
    assert bench.slot("t").state().leo == whole


def test_large_frame_in_pieces_is_stored(bench: Bench, client: Client) -> None:
    bench.configure("t", max_message_bytes="10000000")
    value = os.urandom(5_000_000)
    client.send(produce(client, [value]) + produce(client, [b"after"]))
    assert correlations(client.answers(2)) == [1, 2]
    fetch = calls.fetch_request("t", 0, partition_bytes=10_000_000)
    part = client.call(fetch).responses[0].partitions[0]
    assert [record.value for record in batches.parse(part.records)] == [value, b"after"]


@pytest.mark.parametrize("sent", [0, 100, 100_000])
def test_announced_large_frame_takes_memory_only_as_it_arrives(bench: Bench, client: Client, sent: int) -> None:
    client.send(struct.pack(">i", 100_000_000) + b"\0" * sent)
    bench.turn(3)
    connection = bench.connection(client)
    assert len(connection.partial) + len(connection.big or b"") <= 2 * (4 + sent)


@pytest.mark.parametrize("size", [-1, -(1 << 31), 0, 9, 104_857_601, 0x7FFFFFFF, 0x16030100])
def test_invalid_frame_size_closes_the_connection(bench: Bench, client: Client, size: int) -> None:
    other = bench.connect()
    client.send(struct.pack(">i", size) + b"\0" * 20)
    assert client.gone()
    other.send(raw(18, 0, 1))
    assert correlations(other.answers()) == [1]


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">ihhih", 10, 0, 7, 1, 32000),  # a client id that is longer than the frame
        struct.pack(">ihhih", 10, 1, 11, 1, 32000),
        struct.pack(">ihhih", 10, 3, 1, 1, 32000),
        raw(0, 7, 1),  # no body
        raw(0, 9, 1, b"\0"),
        raw(1, 11, 1, b"\xff" * 40),
        raw(1, 12, 1, b"\0" + b"\xff" * 40),
        raw(3, 1, 1, b"\x7f\xff\xff\xff"),
        raw(0, 99, 1),  # an unknown version, an unknown API
        raw(4711, 0, 1),
        raw(-1, 0, 1),
    ],
)
def test_malformed_request_closes_only_its_connection(bench: Bench, client: Client, frame: bytes) -> None:
    other = bench.connect()
    client.send(frame + produce(client, [b"never"]))
    assert client.gone()
    assert correlations(other.frames()) == []
    assert values_in(other) == []


def test_produce_before_a_malformed_request_is_stored(bench: Bench, client: Client) -> None:
    client.send(produce(client, [b"a"]) + raw(4711, 0, 1))
    assert client.gone()
    assert values_in(bench.connect()) == [b"a"]


def test_produce_before_an_unsupported_version_is_answered(bench: Bench, client: Client) -> None:
    with bench.held("t"):
        client.send(produce(client, [b"a"]) + raw(0, 99, 7) + produce(client, [b"never"]))
        bench.turn(5)
        assert client.frames() == []
    assert correlations(client.answers(1)) == [1]
    assert client.gone()
    assert values_in(bench.connect()) == [b"a"]


def test_unsupported_api_versions_request_is_answered_in_version_0(bench: Bench, client: Client) -> None:
    client.send(raw(18, 99, 5) + raw(18, 0, 6))
    first, second = client.answers(2)
    assert struct.unpack_from(">ihi", first) == (5, errors.UNSUPPORTED_VERSION, 1)
    assert struct.unpack_from(">ih", second) == (6, 0)


def test_worker_does_not_read_from_a_client_that_does_not_read(bench: Bench, client: Client) -> None:
    """Unsent answers are bounded, other clients are served, and all answers arrive when the client reads."""
    put = produce(client, [b"x" * 200_000])
    client.send(put)
    client.answers()
    fetch = calls.fetch_request("t", 0, wait_ms=0)
    data, sent, frames = b"", 0, 0
    for _ in range(400):
        if not data:
            data, frames = client.frame(fetch), frames + 1
        try:
            count = client.sock.send(data)
            data, sent = data[count:], sent + count
        except BlockingIOError:
            break
        bench.turn()
    connection = bench.connection(client)
    assert connection.state == connection_state.FULL
    assert connection.out_size < sending.MOST_UNSENT + 500_000
    assert connection.backlog is None or len(connection.backlog[0]) <= framing.MOST_RECEIVED
    other = bench.connect()
    assert len(values_in(other)) == 1
    client.send(data)
    assert correlations(client.answers(frames)) == list(range(2, frames + 2))


def test_client_that_reads_slowly_is_not_idle(bench: Bench, client: Client) -> None:
    connection = bench.connection(client)
    connection.active = False
    client.send(produce(client, [b"x" * 900_000]))
    client.answers()
    client.send(client.frame(calls.fetch_request("t", 0, wait_ms=0)))
    bench.turn(3)
    assert connection.out
    connection.active = False
    client.read()
    bench.turn(2)
    assert connection.active


def test_time_to_send_is_counted_of_answers_that_are_not_sent_at_once(bench: Bench, client: Client) -> None:
    client.send(produce(client, [b"x" * 900_000]))
    client.answers()
    assert not _times_to_send(bench)
    client.send(client.frame(calls.fetch_request("t", 0, wait_ms=0)))
    bench.turn(3)
    assert bench.connection(client).out and not _times_to_send(bench)
    client.answers()
    assert _times_to_send(bench) == {1: 1}
    client.call(calls.fetch_request("t", 1, wait_ms=0))
    assert _times_to_send(bench) == {1: 1}


def _times_to_send(bench: Bench) -> dict[int, int]:
    """How many were counted, by API key."""
    bench.worker.times.store()
    words = latencies.read(bench.worker.shared.prefix, bench.worker.role)
    counts = {key: sum(words[key * ROW + SEND * WORDS :][:SUM]) for key in range(latencies.KEYS)}
    return {key: count for key, count in counts.items() if count}


def test_other_clients_are_answered_between_slices_of_a_large_answer(
    bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is sent in slices even if the reader's socket has room for all of it."""
    monkeypatch.setattr(sending, "SLICE", 4096)
    client.send(produce(client, [b"x" * 100_000]))
    client.answers()
    other = bench.connect()
    client.send(client.frame(calls.fetch_request("t", 0, wait_ms=0)))
    bench.turn()
    assert 0 < len(client.sock.recv(1 << 20, socket.MSG_PEEK)) < 3 * 4096
    other.send(raw(18, 0, 7))
    bench.turn(2)
    assert correlations(other.frames()) == [7]
    assert not client.frames()
    (answer,) = client.answers()
    assert len(answer) > 100_000


def test_pieces_of_many_partitions_are_sent_in_several_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece is smaller than a slice, but not all together; the socket would take all of them."""
    monkeypatch.setattr(sending, "SLICE", 4096)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        (tmp_path / "log").write_bytes(b"x" * 3000)
        file = OpenFile(str(tmp_path / "log"))
        answering = Connection(ours, "l", "h", 1)
        answering.queue_all([FileSlice(file, 0, 3000) for _ in range(5)])
        sent = [(sending.flush(answering), answering.full) for _ in range(3)]
        assert sent == [(6000, False), (6000, False), (3000, False)]
        assert not answering.out


def test_produce_to_known_and_unknown_partitions_is_answered_for_each(bench: Bench, client: Client) -> None:
    from kafka.protocol.producer import ProduceRequest as Request

    bench.topic("u", 3)
    asked = [("u", 2, b"a"), ("u", 0, b"b"), ("t", 0, b"c"), ("t", 9, b"d"), ("unknown", 0, b"e")]
    topics: dict[str, list[object]] = {}
    for topic, index, value in asked:
        part = Request.TopicProduceData.PartitionProduceData(index=index, records=batches.batch([value]))
        topics.setdefault(topic, []).append(part)
    data = [Request.TopicProduceData(name=name, partition_data=parts) for name, parts in topics.items()]
    request = Request[8](transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)
    with bench.held("u", 2):  # the answer waits for the slowest
        client.send(client.frame(request) + raw(18, 0, 9))
        bench.turn(5)
        assert client.frames() == []
    first, second = client.answers(2)
    answer = decode_response(request, first)
    found = [(t.name, p.index, p.error_code, p.base_offset) for t in answer.responses for p in t.partition_responses]
    assert found == [("u", 2, 0, 0), ("u", 0, 0, 0), ("t", 0, 0, 0), ("t", 9, 3, -1), ("unknown", 0, 3, -1)]
    assert correlations([second]) == [9]


def test_produce_without_partitions_is_answered(bench: Bench, client: Client) -> None:
    from kafka.protocol.producer import ProduceRequest as Request

    answer = client.call(Request[8](transactional_id=None, acks=1, timeout_ms=1000, topic_data=[]))
    assert answer.responses == []


def test_recreated_topic_gets_the_records(bench: Bench, client: Client) -> None:
    """The connection caches a request's prefix, and drops it when the metadata changes."""
    for _ in range(3):
        client.send(produce(client, [b"old"] * 5))
        client.answers()
    bench.topic("t")
    client.send(produce(client, [b"new"]))
    (answer,) = client.answers()
    assert struct.unpack_from(">q", answer, answer.index(b"t") + 1 + 4 + 4 + 2)[0] == 0
    assert values_in(client) == [b"new"]


def test_batches_that_wait_for_the_lock_of_a_deleted_topic_are_refused(bench: Bench, client: Client) -> None:
    request = calls.produce_request("t", batches.batch([b"a"]))
    with bench.held("t"):
        client.send(client.frame(request))
        bench.turn(3)
        bench.delete("t")
        bench.topic("t")
        bench.turn(2)
        # the other process still holds the old slot's lock
    part = decode_response(request, client.answers()[0]).responses[0].partition_responses[0]
    assert part.error_code == errors.UNKNOWN_TOPIC_OR_PARTITION
    assert values_in(client) == []


def test_added_partitions_and_changed_configs_apply_at_once(bench: Bench, client: Client) -> None:
    request = calls.produce_request("t", batches.batch([b"a" * 100]), partition=1)
    assert client.call(request).responses[0].partition_responses[0].error_code == 3
    bench.grow("t", 2)
    assert client.call(request).responses[0].partition_responses[0].error_code == 0
    bench.configure("t", max_message_bytes="120")
    assert client.call(request).responses[0].partition_responses[0].error_code == errors.MESSAGE_TOO_LARGE
    bench.configure("t", segment_bytes="120")
    assert client.call(request).responses[0].partition_responses[0].error_code == errors.RECORD_LIST_TOO_LARGE
    bench.configure("t", segment_bytes="170")
    assert client.call(request).responses[0].partition_responses[0].error_code == 0


def test_any_producer_id_in_a_batch_is_answered(bench: Bench, client: Client) -> None:
    for producer in (0, (1 << 63) - 1, -2, -(1 << 63)):
        client.send(produce(client, [b"a"], producer=producer, epoch=0, sequence=0))
        assert len(client.answers()) == 1
    client.send(produce(client, [b"b"]))
    client.answers()
    assert values_in(client)[-1] == b"b"
    assert not bench.slot("t").dirty


@pytest.mark.parametrize("version", range(14))
def test_requests_with_a_cached_prefix_are_stored(bench: Bench, client: Client, version: int) -> None:
    import uuid

    topic: str | uuid.UUID = uuid.UUID(bytes=bench.id_of("t")) if version >= 13 else "t"
    records = batches.batch([b"v"]) if version >= 3 else batches.message(b"v")
    request = calls.produce_request(topic, records, version=version)
    for n in range(3):
        part = client.call(request).responses[0].partition_responses[0]
        assert (part.index, part.error_code, part.base_offset) == (0, 0, n)


def _pipelined(client: Client) -> tuple[bytes, int]:
    frames = [
        produce(client, [b"a", b"b"]),
        produce(client, [b"c"], acks=0),
        raw(18, 0, 90),
        produce(client, [b"d" * 3000]),
        produce(client, [b"e"], topic="unknown"),
        client.frame(calls.fetch_request("t", 0, wait_ms=0)),
        raw(18, 1, 91),
        produce(client, [b"f"], version=9),
        raw(18, 0, 92),
    ]
    return b"".join(frames), len(frames) - 1


@given(st.lists(st.integers(1, 4500), max_size=12), st.booleans())
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_any_split_of_the_stream_gives_the_same_answers(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], held: bool
) -> None:
    def run(cuts: list[int], held: bool) -> list[bytes]:
        with make(tmp_path_factory.mktemp("split")) as bench:
            client = bench.connect()
            data, count = _pipelined(client)
            at = 0
            for number, cut in enumerate([*sorted(cuts), len(data)]):
                if held and number % 2:
                    with bench.held("t"):
                        client.send(data[at:cut])
                        bench.turn(2)
                else:
                    client.send(data[at:cut])
                    bench.turn()
                at = max(at, cut)
            answers = client.answers(count)
            assert bench.slot("t").read()[slots.F_LEO] == 5
            return answers

    assert run(cuts, held) == run([], False)


def test_exception_in_a_delayed_fetch_closes_only_its_connection(
    bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:

    client.send(client.frame(calls.fetch_request("t", 0, wait_ms=60_000)))
    bench.turn(3)
    other = bench.connect()
    with monkeypatch.context() as patch:
        patch.setattr(fetching.Fetch, "_part", lambda *_: 1 // 0)
        other.send(produce(other, [b"a"]))
        assert correlations(other.answers()) == [1]
        assert client.gone()
    assert values_in(other) == [b"a"]


def test_flush_messages_syncs_all_answered_records_in_order(tmp_path: Path) -> None:
    with make(tmp_path) as bench:
        bench.configure("t", flush_messages="1")
        client = bench.connect()
        client.send(b"".join(produce(client, [b"%d" % n]) for n in range(20)) + raw(18, 0, 99))
        assert correlations(client.answers(21)) == [*range(1, 21), 99]
        assert bench.slot("t").state().flushed == 20


def test_records_are_synced_after_a_thread_could_not_start(
    bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    bench.configure("t", flush_messages="1")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with suppress(RuntimeError):
            client.send(produce(client, [b"a"]))
            bench.turn(2)
    other = bench.connect()
    other.send(produce(other, [b"b"]))
    assert len(correlations(other.answers())) == 1
    assert bench.slot("t").state().flushed == 2


def test_worker_survives_a_topic_deleted_during_its_fsync(bench: Bench, client: Client) -> None:
    bench.configure("t", flush_messages="1")
    client.send(produce(client, [b"a"]))
    client.answers()
    partition = bench.worker.partition_of(b"t", 0, False)
    assert partition is not None
    bench.delete("t")
    partition.close_files()
    bench.worker.syncer.submit(
        partition, [], ALONE, bench.worker.times.wait()
    )  # as after an append just before the deletion
    bench.turn(5)
    other = bench.connect()
    other.send(raw(18, 0, 1))
    assert correlations(other.answers()) == [1]
