"""A clean stop keeps acknowledged records, writes the clean-shutdown marker, and leaves no shared memory."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from ..clients.admin import create_topic
from ..clients.raw.batches import batch, parse
from ..clients.raw.calls import fetch, fetch_request, produce
from ..harness.process import family, wait_dead, wait_until
from .acknowledged import Load

pytestmark = pytest.mark.live

MARKER = ".kafka_cleanshutdown"


def test_a_clean_stop_leaves_the_marker(fresh_broker: Any) -> None:
    broker = fresh_broker()
    topic = create_topic(broker)
    with broker.wire() as wire:
        for at in range(10):
            assert produce(wire, topic, batch([b"%d" % at])).error_code == 0
    assert not (broker.data_dir / MARKER).exists(), "a running broker has a clean-shutdown marker"
    broker.stop()
    marker = (broker.data_dir / MARKER).read_text()
    assert json.loads(marker)["version"] == 0
    checkpoint = (broker.data_dir / "recovery-point-offset-checkpoint").read_text().split("\n")
    assert f"{topic} 0 10" in checkpoint, "not all records are flushed"
    broker.start()
    assert not (broker.data_dir / MARKER).exists()
    with broker.wire() as wire:
        assert [r.value for r in parse(fetch(wire, topic, 0).records)] == [b"%d" % at for at in range(10)]


def test_a_kill_leaves_no_marker(fresh_broker: Any) -> None:
    broker = fresh_broker()
    create_topic(broker)
    broker.kill()
    assert not (broker.data_dir / MARKER).exists()


def test_no_record_is_lost_by_restarts_under_load(fresh_broker: Any) -> None:
    """A producer that retries only sees a broker that is unavailable for a moment."""
    broker = fresh_broker()
    load = Load(broker)
    for _ in range(3):
        load.await_more()
        broker.restart()
    load.await_more()
    load.verify()


def test_delayed_fetch_does_not_delay_the_stop(fresh_broker: Any) -> None:
    broker = fresh_broker()
    topic = create_topic(broker)
    wire = broker.wire(90)
    wire.put(fetch_request(topic, 0, wait_ms=300_000))
    broker.stop()
    assert wire.read_frame(), "the answer, without records"
    wire.close()


def test_interrupt_is_a_clean_stop(fresh_broker: Any) -> None:
    """Ctrl-C sends SIGINT to every process of the foreground group."""
    broker = fresh_broker()
    create_topic(broker)
    members = family(broker.process.pid)
    os.killpg(broker.process.pid, signal.SIGINT)
    assert not wait_dead(members)
    assert broker.process.wait(10) == 0, broker.log
    broker.process = None
    assert (broker.data_dir / MARKER).exists()
    assert not broker.shared_memory()


def test_stop_early_in_the_start_leaves_nothing_behind(fresh_broker: Any) -> None:
    broker = fresh_broker(start=False)
    for _ in range(3):
        broker.launch()
        while not broker.shared_memory():
            assert broker.process.poll() is None, broker.log
        broker.stop()


def test_a_second_broker_on_the_same_data_is_refused(fresh_broker: Any) -> None:
    broker = fresh_broker()
    done = broker.command("start", str(broker.properties_file))
    assert done.returncode not in (0, None)
    assert len((done.stdout + done.stderr).strip().splitlines()) <= 3, done.stderr
    with broker.wire() as wire:
        assert wire.api_versions(), "the first broker no longer answers"


def test_offsets_continue_over_stops_and_kills(fresh_broker: Any) -> None:
    broker = fresh_broker()
    topic = create_topic(broker, partitions=5)
    for at in range(4):
        with broker.wire() as wire:
            for partition in range(5):
                assert produce(wire, topic, batch([b"x"]), partition=partition).base_offset == at
        broker.restart(kill=at % 2 == 1)
    assert "Traceback" not in broker.log, broker.log[-4000:]


def test_all_partitions_are_recovered_after_a_kill(fresh_broker: Any) -> None:
    """Fetches return the same records as before the kill."""
    broker = fresh_broker()
    topic = create_topic(broker, partitions=20)
    with broker.wire() as wire:
        for partition in range(20):
            assert produce(wire, topic, batch([b"x"] * 5), partition=partition).error_code == 0
    broker.restart(kill=True)
    with broker.wire() as wire:
        for partition in range(20):
            wait_until(lambda: len(parse(fetch(wire, topic, 0, partition=partition).records)) == 5)  # noqa: B023
