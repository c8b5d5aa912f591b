"""A worker with client quotas: counted bytes and time, throttle times in answers, and the wait of throttled clients."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.ipc import latencies
from odradek.ipc.latencies import ROW, SUM, THROTTLE, WORDS
from odradek.protocol.library import message_class
from odradek.workers.net.connection_state import READY, THROTTLED
from odradek.workers.quotas import muting, request_quotas
from tests.clients.raw import batches, calls
from tests.workers.inprocess import Bench, Client
from tests.workers.inprocess import bench as make

PRODUCE_VERSIONS, FETCH_VERSIONS = range(3, 13), range(4, 13)
RECORDS = batches.batch([b"v" * 500] * 20)
PRODUCE, FETCH = 0, 1
WINDOW_S = 10  # before its first request, a client counts as idle for that long


class Clock:
    """The clock of quotas, which tests advance."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 1e6 + int(time.monotonic())  # no deadline of the worker itself may pass
        self.cpu_ns = 0
        played = SimpleNamespace(
            monotonic=lambda: self.seconds,
            monotonic_ns=lambda: int(self.seconds * 1e9),
            perf_counter_ns=self._perf_counter_ns,
        )
        monkeypatch.setattr(request_quotas, "time", played)
        monkeypatch.setattr(muting, "time", played)

    def _perf_counter_ns(self) -> int:
        """Each reading takes a millisecond."""
        self.cpu_ns += 1_000_000
        return self.cpu_ns


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with make(tmp_path) as made:
        yield made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def _pass(bench: Bench, clock: Clock, seconds: float) -> None:
    clock.seconds += seconds
    bench.worker.purgatory.expire(clock.seconds)


def _size(client: Client, request: Any) -> int:
    return len(client.frame(request)) - 4


def _too_much(size: int, throttle_ms: int) -> float:
    """The quota that one request of `size` bytes exceeds for `throttle_ms`."""
    return size / (WINDOW_S + throttle_ms / 1000)


def _ask(client: Client, request: Any) -> Any:
    client.send(client.frame(request))


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_over_quota_is_throttled(bench: Bench, client: Client, clock: Clock, version: int) -> None:
    request = calls.produce_request("t", RECORDS, version=version)
    bench.limit("clients/c", producer_byte_rate=_too_much(_size(client, request), 400))
    answer = client.call(request)
    assert answer.throttle_time_ms == 400
    assert answer.responses[0].partition_responses[0].error_code == 0
    _waits(bench, client, clock, calls.produce_request("t", RECORDS, version=version))


def _waits(bench: Bench, client: Client, clock: Clock, request: Any) -> None:
    """The client's next request is taken after 400 ms."""
    _ask(client, request)
    bench.turn(5)
    _pass(bench, clock, 0.399)
    bench.turn(5)
    assert bench.connection(client).state == THROTTLED
    assert client.frames() == []
    _pass(bench, clock, 0.001)
    client.answers()


def test_throttle_times_are_counted_by_api(bench: Bench, client: Client, clock: Clock) -> None:
    client.call(calls.produce_request("t", RECORDS))
    client.call(calls.fetch_request("t", 0))
    assert not _throttle_times(bench)
    bench.limit("clients/c", producer_byte_rate=1, consumer_byte_rate=1)
    produced = client.call(calls.produce_request("t", RECORDS)).throttle_time_ms
    _pass(bench, clock, produced / 1000)
    fetched = [client.call(calls.fetch_request("t", 0)).throttle_time_ms]
    _pass(bench, clock, fetched[0] / 1000)
    fetched.append(client.call(calls.fetch_request("t", 0)).throttle_time_ms)
    assert produced and any(fetched)
    assert _throttle_times(bench) == {PRODUCE: (1, produced), FETCH: (len(list(filter(None, fetched))), sum(fetched))}


def _throttle_times(bench: Bench) -> dict[int, tuple[int, int]]:
    """By API key, how many answers had a throttle time, and the sum of them in ms."""
    bench.worker.times.store()
    words, begin = latencies.read(bench.worker.shared.prefix, bench.worker.role), THROTTLE * WORDS
    rows = {key: words[key * ROW + begin : key * ROW + begin + WORDS].tolist() for key in range(latencies.KEYS)}
    return {key: (sum(row[:SUM]), row[SUM] // 10**6) for key, row in rows.items() if any(row)}


def test_other_clients_do_not_wait(bench: Bench, client: Client, clock: Clock) -> None:
    bench.limit("clients/c", producer_byte_rate=1)
    other = bench.connect()
    assert client.call(calls.produce_request("t", RECORDS)).throttle_time_ms > 0
    request = calls.produce_request("t", RECORDS)
    request.with_header(correlation_id=7, client_id="other")
    other.send(bytes(request.encode(header=True, framed=True)))
    other.answers()
    assert bench.connection(other).state == READY


def test_requests_in_flight_count_together(bench: Bench, client: Client, clock: Clock) -> None:
    frame = client.frame(calls.produce_request("t", RECORDS))
    bench.limit("clients/c", producer_byte_rate=_too_much(3 * (len(frame) - 4), 400))
    client.send(frame * 3)
    assert len(client.answers(3)) == 3
    _waits(bench, client, clock, calls.produce_request("t", RECORDS))


def test_acks_0_over_quota_delays_the_next_request(bench: Bench, client: Client, clock: Clock) -> None:
    request = calls.produce_request("t", RECORDS, acks=0)
    bench.limit("clients/c", producer_byte_rate=_too_much(_size(client, request), 400))
    _ask(client, request)
    bench.turn(5)
    _waits(bench, client, clock, calls.produce_request("t", RECORDS))


def test_produce_to_two_partitions_counts_once(bench: Bench, client: Client, clock: Clock) -> None:
    bench.topic("two", 2)
    kind = message_class("ProduceRequest")
    data = kind.TopicProduceData
    parts = [data.PartitionProduceData(index=index, records=RECORDS) for index in (0, 1)]
    request = kind[7](transactional_id=None, acks=-1, timeout_ms=1, topic_data=[data(name="two", partition_data=parts)])
    bench.limit("clients/c", producer_byte_rate=_too_much(_size(client, request), 400))
    assert client.call(request).throttle_time_ms == 400


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_over_quota_is_throttled(bench: Bench, client: Client, clock: Clock, version: int) -> None:
    """The throttled answer is empty and does not count; later the client gets its records."""
    client.call(calls.produce_request("t", RECORDS))
    request = calls.fetch_request("t", 0, version=version)
    _ask(client, request)
    (plain,) = client.answers()
    bench.limit("clients/c", consumer_byte_rate=len(plain) / 5)
    assert client.call(request).throttle_time_ms == 0
    answer = client.call(request)
    assert answer.throttle_time_ms > 0
    assert not answer.responses
    for _ in range(3):
        _pass(bench, clock, answer.throttle_time_ms / 1000)
        answer = client.call(request)
        if not answer.throttle_time_ms:
            break
    assert answer.responses[0].partitions[0].records


def test_size_of_a_fetch_is_limited_by_the_quota_window(bench: Bench, client: Client, clock: Clock) -> None:
    for _ in range(5):
        client.call(calls.produce_request("t", RECORDS))
    bench.limit("clients/c", consumer_byte_rate=2.5 * len(RECORDS) / WINDOW_S)
    answer = client.call(calls.fetch_request("t", 0))
    assert answer.throttle_time_ms == 0
    assert len(answer.responses[0].partitions[0].records) <= 2.5 * len(RECORDS)


def test_fetch_session_continues_after_a_throttled_fetch(bench: Bench, client: Client, clock: Clock) -> None:
    client.call(calls.produce_request("t", RECORDS))
    parts = [("t", [calls.part(0, 0)])]
    bench.limit("clients/c", consumer_byte_rate=len(RECORDS) / 8)
    answer = client.call(calls.session_request(parts, session=0, session_epoch=0, wait_ms=0))
    session = answer.session_id
    assert session and answer.responses
    for epoch in itertools.count(1):
        answer = client.call(calls.session_request(parts, session=session, session_epoch=epoch, wait_ms=0))
        assert (answer.error_code, answer.session_id) == (0, session)
        if answer.throttle_time_ms:
            break
    _pass(bench, clock, answer.throttle_time_ms / 1000 + 30)
    answer = client.call(calls.session_request(parts, session=session, session_epoch=epoch + 1, wait_ms=0))
    assert answer.error_code == 0 and answer.responses


def test_throttled_fetch_begins_no_session(bench: Bench, client: Client, clock: Clock) -> None:
    client.call(calls.produce_request("t", RECORDS))
    bench.limit("clients/c", consumer_byte_rate=len(RECORDS) / 8)
    parts = [("t", [calls.part(0, 0)])]
    answers = [client.call(calls.session_request(parts, session=0, session_epoch=0, wait_ms=0)) for _ in range(2)]
    assert [bool(answer.session_id) for answer in answers] == [True, False]
    assert answers[1].throttle_time_ms > 0 and not answers[1].responses
    assert len(bench.worker.sessions) == 1


@pytest.mark.parametrize("version", range(8))
def test_request_percentage_throttles_by_the_time_of_requests(
    bench: Bench, client: Client, clock: Clock, version: int
) -> None:
    """A throttle lasts at most one sample; clients of old versions are muted without a throttle time."""
    request = message_class("ListOffsetsRequest")
    part = request.ListOffsetsTopic.ListOffsetsPartition(partition_index=0, timestamp=-1, max_num_offsets=1)
    topics = [request.ListOffsetsTopic(name="t", partitions=[part])]
    bench.limit("clients/c", request_percentage=0.0001)
    answer = client.call(request[version](replica_id=-1, isolation_level=0, topics=topics))
    assert getattr(answer, "throttle_time_ms", 0) == (1000 if version >= 2 else 0)
    _pass(bench, clock, 0.6)
    _waits(bench, client, clock, calls.produce_request("t", RECORDS))


def test_removed_quotas_restore_the_handlers(bench: Bench, client: Client) -> None:
    worker = bench.worker
    plain = worker.loop.framing.pipelined
    assert worker.quotas is None and worker.take == worker.requests.take
    bench.limit("clients/c", producer_byte_rate=1)
    bench.turn()
    assert worker.quotas is not None and worker.loop.framing.pipelined != plain
    bench.limit("clients/c")
    bench.turn()
    assert worker.quotas is None and worker.take == worker.requests.take
    assert worker.loop.framing.pipelined == plain
    assert client.call(calls.produce_request("t", RECORDS)).throttle_time_ms == 0


def test_muted_client_that_disconnects_is_forgotten(bench: Bench, client: Client) -> None:
    bench.limit("clients/c", producer_byte_rate=1)
    client.call(calls.produce_request("t", RECORDS))
    connection = bench.connection(client)
    assert len(bench.worker.purgatory) == 1
    bench.worker.drop(connection, "test")
    assert len(bench.worker.purgatory) == 0
    bench.turn()


def test_a_muted_client_is_not_idle(bench: Bench, client: Client) -> None:
    bench.limit("clients/c", producer_byte_rate=1)
    client.call(calls.produce_request("t", RECORDS))
    connection = bench.connection(client)
    assert not connection.idle
    bench.worker._drop_idle(1 << 40)
    bench.worker._drop_idle(1 << 41)
    assert not connection.closed


def test_shutdown_of_a_worker_unmutes_clients(bench: Bench, client: Client) -> None:
    bench.limit("clients/c", producer_byte_rate=1)
    client.call(calls.produce_request("t", RECORDS))
    bench.worker.purgatory.answer_all()
    assert bench.connection(client).state == READY
