"""A follower from an unknown address is refused and named in the log, and the controller looks it up."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.consumer import ListOffsetsRequest

from odradek.cluster import internal
from odradek.cluster.configs.admitted import ALLOWED
from odradek.ipc import forward
from odradek.ipc.channel import Channel, Listener
from odradek.protocol import errors
from odradek.workers.dispatch import unregistered_brokers

from ..inprocess import Bench
from ..leading import part, request

HOST = "10.0.0.9"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = SimpleNamespace(now=100.0)
    monkeypatch.setattr(unregistered_brokers, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def fetch(bench: Bench) -> int:
    client = bench.connect(HOST)
    return int(client.call(request(1, [part(0)])).responses[0].partitions[0].error_code)


def looked_for(link: Channel) -> list[forward.Forwarded]:
    return [one for one in map(forward.decode, link.receive()) if one.api_key == internal.LOOK_FOR_BROKERS]


def test_controller_looks_for_brokers_at_most_once_a_second(
    bench: Bench, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    listener = Listener(bench.worker.process.run_dir / "controller.sock")
    bench.worker._next_tick = 0.0
    bench.turn(2)
    link = listener.accept()
    assert link is not None
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert fetch(bench) == errors.TOPIC_AUTHORIZATION_FAILED
        (asked,) = looked_for(link)
        link.send(forward.encode_reply(asked.token, internal.encode({})))
        bench.turn(5)
        fetch(bench)
        assert looked_for(link) == [], "the last lookup was in the same second"
        clock.now += unregistered_brokers._PAUSE_S
        fetch(bench)
        assert len(looked_for(link)) == 1
        clock.now += unregistered_brokers._PAUSE_S
        fetch(bench)
        assert looked_for(link) == [], "the controller has not answered yet"
    (line,) = [record.getMessage() for record in caplog.records if HOST in record.getMessage()]
    assert ALLOWED in line


def test_list_offsets_of_an_unregistered_broker_is_refused(bench: Bench, clock: Any) -> None:
    topic = ListOffsetsRequest.ListOffsetsTopic
    parts = [topic.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)]
    question = ListOffsetsRequest[7](replica_id=1, isolation_level=0, topics=[topic(name="t", partitions=parts)])
    answer = bench.connect(HOST).call(question)
    assert answer.topics[0].partitions[0].error_code == errors.TOPIC_AUTHORIZATION_FAILED
    assert bench.worker.unregistered._lookups._in_flight
