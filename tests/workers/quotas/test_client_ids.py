"""A client that changes its client id from request to request of one connection: each counts for its own, as in Kafka.

A connection without a change is in test_request_quotas.
"""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.ipc import forward
from odradek.protocol.library import message_class
from odradek.security.quotas.entities import Entity
from odradek.security.quotas.keys import PRODUCER_BYTE_RATE
from odradek.security.quotas.rates import Window
from odradek.workers.net import client_ids
from odradek.workers.net.connection import NO_CLIENT_ID
from odradek.workers.quotas import quota_manager
from odradek.workers.quotas.quota_manager import PRODUCE, QuotaManager
from tests.clients.raw import batches, calls
from tests.harness.wire import decode_response, header
from tests.workers.inprocess import Bench, Client

RECORDS = batches.batch([b"v" * 500] * 20)
FIND_COORDINATOR = 10


def frame(request: Any, client_id: str | None, correlation: int = 1) -> bytes:
    request.with_header(correlation_id=correlation, client_id=client_id)
    return bytes(request.encode(header=True, framed=True))


def throttle_ms(client: Client, request: Any, client_id: str | None) -> int:
    client.send(frame(request, client_id))
    (answer,) = client.answers()
    found: int = decode_response(request, answer).throttle_time_ms
    return found


def wait_over(bench: Bench) -> None:
    """The throttle time of each connection is over."""
    bench.worker.purgatory.expire(float("inf"))


def offsets() -> Any:
    request = message_class("ListOffsetsRequest")
    part = request.ListOffsetsTopic.ListOffsetsPartition(partition_index=0, timestamp=-1)
    return request[5](
        replica_id=-1, isolation_level=0, topics=[request.ListOffsetsTopic(name="t", partitions=[part])]
    )  # fmt: skip


def test_each_produce_request_counts_for_its_own_client_id(bench: Bench, client: Client) -> None:
    bench.limit("clients/slow", producer_byte_rate=1)
    assert throttle_ms(client, calls.produce_request("t", RECORDS), "other") == 0
    assert throttle_ms(client, calls.produce_request("t", RECORDS), "slow") > 0
    wait_over(bench)
    assert throttle_ms(client, calls.produce_request("t", RECORDS), "other") == 0
    assert throttle_ms(client, calls.produce_request("t", RECORDS), None) == 0


def test_requests_in_flight_count_for_the_id_of_each(bench: Bench, client: Client) -> None:
    """The ids have limits that just hold one request in a window of ten seconds, not two."""
    one = calls.produce_request("t", RECORDS)
    size = len(frame(one, "a")) - 4
    for name in ("a", "b"):
        bench.limit(f"clients/{name}", producer_byte_rate=size / 10 * 1.5)
    client.send(b"".join(frame(one, name, number) for number, name in enumerate("ab")))
    answers = [decode_response(one, answer) for answer in client.answers(2)]
    assert [answer.throttle_time_ms for answer in answers] == [0, 0]
    assert throttle_ms(client, one, "b") > 0


def test_former_id_over_its_quota_holds_up_the_connection(bench: Bench, client: Client) -> None:
    bench.limit("clients/slow", producer_byte_rate=1)
    one = calls.produce_request("t", RECORDS)
    client.send(frame(one, "slow", 1) + frame(one, "other", 2))
    assert decode_response(one, client.answers(1)[0]).throttle_time_ms > 0
    assert bench.connection(client).throttled
    wait_over(bench)
    assert decode_response(one, client.answers(1)[0]).throttle_time_ms == 0


def test_repeated_fetch_counts_for_its_own_client_id(bench: Bench, client: Client) -> None:
    throttle_ms(client, calls.produce_request("t", RECORDS), "other")
    fetch = calls.fetch_request("t", 0)
    for _ in range(2):  # the second one repeats the first one
        assert throttle_ms(client, fetch, "slow") == 0
    throttle_ms(client, offsets(), "other")
    bench.limit("clients/slow", consumer_byte_rate=1)
    assert throttle_ms(client, fetch, "slow") > 0
    wait_over(bench)
    throttle_ms(client, offsets(), "other")
    assert throttle_ms(client, fetch, "other") == 0


def test_forwarded_requests_carry_their_own_client_id(
    bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client id of a controller's request has its number. The broker refuses a request with a lower number."""
    seen = []

    def answered(_channel: Any, request: Any, answer: Any) -> None:
        seen.append(request.client_id)
        answer(forward.OK, b"")

    monkeypatch.setattr(bench.worker, "send_to", answered)
    names = ["odradek-controller-1", "odradek-controller-2", "odradek-controller-2", None, "", "x"]
    body = struct.pack(">h1s", 1, b"g")
    for number, name in enumerate(names):
        data = header(FIND_COORDINATOR, 0, number, client=name) + body
        client.send(struct.pack(">i", len(data)) + data)
        client.answers()
    assert seen == [name or None for name in names]


@pytest.mark.parametrize("head", [b"\x00\x05abc", b"\x7f\xffa"])
def test_client_id_that_runs_past_its_frame_is_malformed(head: bytes) -> None:
    """Also where the bytes behind the frame continue it."""
    data = head + b"de" + bytes(20)
    for known in (NO_CLIENT_ID, b"\x00\x05abcde"):
        connection: Any = SimpleNamespace(client_head=known, client_id=None, repeated=None)
        with pytest.raises(ValueError, match="client id"):
            client_ids.read(connection, memoryview(data), 0, len(head))


def test_long_client_ids_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_manager, "_MOST_CHARACTERS", 100_000)
    entity: Entity = (("client-id", None),)
    manager = QuotaManager({entity: {PRODUCER_BYTE_RATE: 1e9}}, None, Window(11, 1000))
    for number in range(20):
        manager.record(PRODUCE, "", f"{number:032000}", 1, 0)
    assert len(manager._limits) <= 4 and len(manager._shared) <= 4
