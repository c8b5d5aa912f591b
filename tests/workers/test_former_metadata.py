"""Idle clients keep no former metadata alive: a snapshot of a large cluster has many megabytes."""

from __future__ import annotations

import gc
import uuid
import weakref
from collections.abc import Callable

import pytest

from ..clients.raw import batches, calls
from .inprocess import Bench, Client
from .leading import lead, part, request

FOLLOWER = 1


def _produce(bench: Bench, client: Client) -> None:
    for _ in range(2):
        client.call(calls.produce_request("t", batches.batch([b"x"])))


def _fetch(bench: Bench, client: Client) -> None:
    for _ in range(2):
        client.call(calls.fetch_request("t", 0, wait_ms=0))


def _fetch_in_session(bench: Bench, client: Client) -> None:
    topic = uuid.UUID(bytes=bench.id_of("t"))
    parts = [(topic, [calls.part(0, 0)])]
    first = client.call(calls.session_request(parts, version=13, session_epoch=0, wait_ms=0))
    client.call(calls.session_request(parts, version=13, session=first.session_id, session_epoch=1, wait_ms=0))


def _follow(bench: Bench, client: Client) -> None:
    lead(bench, [FOLLOWER], [FOLLOWER])
    client.call(request(FOLLOWER, [part(0)], wait_ms=0))


@pytest.mark.parametrize("ask", [_produce, _fetch, _fetch_in_session, _follow])
def test_idle_connection_keeps_no_former_snapshot(bench: Bench, ask: Callable[[Bench, Client], None]) -> None:
    bench.topic("t")
    bench.turn()
    client = bench.connect()
    ask(bench, client)
    former = weakref.ref(bench.worker.snapshot)
    bench.topic("other")
    bench.connect().call(calls.fetch_request("other", 0, wait_ms=0))
    gc.collect()
    assert former() is None
