"""A process without free file descriptors refuses requests, does not end, and recovers."""

from __future__ import annotations

import os
import resource
from typing import Any

import psutil
import pytest

from ..clients.admin import create_topic
from ..clients.raw.batches import batch, parse
from ..clients.raw.calls import fetch, produce
from ..harness.process import wait_until
from ..harness.wire import answers

pytestmark = pytest.mark.live

PARTITIONS = 8


def limit(pid: int, more: int | None) -> None:
    """Allow a process `more` descriptors than it has open; None: as many as the hard limit."""
    _, hard = psutil.Process(pid).rlimit(resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir(f"/proc/{pid}/fd")) + 1
    psutil.Process(pid).rlimit(resource.RLIMIT_NOFILE, (hard if more is None else used + more, hard))


@pytest.mark.timeout(90)
def test_worker_recovers_from_a_lack_of_descriptors(fresh_broker: Any) -> None:
    broker = fresh_broker(odradek_workers=1)
    topic = create_topic(broker, "t", PARTITIONS)
    (pid,) = broker.pids("worker")
    with broker.wire() as wire:
        assert produce(wire, topic, batch([b"x"]), partition=0).error_code == 0
        limit(pid, 2)
        codes = [produce(wire, topic, batch([b"x"]), partition=index).error_code for index in range(1, PARTITIONS)]
        assert 56 in codes, "the worker had enough descriptors: this test shows nothing"
        assert produce(wire, topic, batch([b"x"]), partition=0).error_code == 0
        limit(pid, None)
        for index, code in enumerate(codes, 1):
            wait_until(lambda: produce(wire, topic, batch([b"y"]), partition=index).error_code == 0, 60)  # noqa: B023
            kept = [row.value for row in parse(fetch(wire, topic, 0, partition=index).records)]
            assert kept == ([b"x", b"y"] if not code else [b"y"])
    assert broker.pids("worker") == [pid]


@pytest.mark.timeout(90)
@pytest.mark.parametrize("role", ["janitor", "controller", "coordinator", "acceptor"])
def test_other_processes_recover_from_a_lack_of_descriptors(fresh_broker: Any, role: str) -> None:
    """The process can open no file for some seconds; then the broker works, and no log directory is offline."""
    broker = fresh_broker(log_flush_offset_checkpoint_interval_ms=200)
    topic = create_topic(broker, "t", flush_ms=100)
    (pid,) = broker.pids(role)
    wire = broker.wire()
    assert produce(wire, topic, batch([b"x"])).error_code == 0  # the connection is accepted
    limit(pid, 0)
    for _ in range(19):
        assert produce(wire, topic, batch([b"x"])).error_code == 0
    wire.close()
    try:
        broker.wire(2).close()
    except OSError:
        assert role == "acceptor"
    limit(pid, None)
    wait_until(lambda: answers(broker.bootstrap, 2), 60, "connections are accepted again")
    other = create_topic(broker, "other")
    with broker.wire() as again:
        assert produce(again, other, batch([b"x"])).error_code == 0
        assert len(parse(fetch(again, topic, 0).records)) == 20
    assert broker.pids(role) == [pid]
    assert "is offline" not in broker.log
