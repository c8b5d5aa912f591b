"""The bench with real clients and a real broker; a failed load gives no figure."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from odradek.loadtest.harness import wire
from odradek.loadtest.harness.brokers import Broker as Measured
from odradek.loadtest.harness.load_clients import Call, LoadError, run
from odradek.loadtest.measurements.curves import drop_pages
from odradek.loadtest.measurements.rows import ROWS, Row, check_end, once
from tests.harness.broker import Broker

pytestmark = [pytest.mark.live, pytest.mark.needs("librdkafka-dev")]


class Seen:
    """The part of a running broker that a load uses."""

    name, key, speaks = "somebody", "odradek", "kafka"

    def __init__(self, port: int) -> None:
        self.port, self.bootstrap = port, f"127.0.0.1:{port}"
        self.filled: dict[str, str] = {}

    def cpu(self) -> float:
        return 0.0

    def log_tail(self) -> str:
        return "its last words"

    def create(self, topic: str, partitions: int = 1) -> None:
        wire.create(self.port, topic, partitions)

    def delete(self, topic: str) -> None:
        wire.delete(self.port, topic)


def row(key: str) -> Row:
    return next(one for one in ROWS if one.key == key)


@pytest.fixture
def measured(broker: Broker) -> Measured:
    return seen(broker)


def seen(broker: Broker) -> Measured:
    return cast(Measured, Seen(int(broker.bootstrap.rpartition(":")[2])))


def test_two_runs_of_the_bench_write_one_report(tmp_path: Path) -> None:
    """The second run measures other rows and keeps those of the first."""
    words = ["--quick", "--brokers", "odradek", "--folder", str(tmp_path), "--out", str(tmp_path / "kept"), "--rows"]
    for rows in ("batch50,consume", "tail1"):
        command = [sys.executable, "-m", "odradek.loadtest.bench", *words, rows]
        subprocess.run(command, cwd=tmp_path, check=True, timeout=240)
    kept = json.loads((tmp_path / "kept" / "results.json").read_text())["entries"]
    assert set(kept) == {"batch50", "consume", "tail1"}
    assert kept["batch50"]["data"]["Odradek"][0]["messages"] == 150_000
    found = kept["tail1"]["data"]["Odradek"][0]
    assert 0 < found["p50"] <= found["p99"] <= found["p999"]
    report = (tmp_path / "kept" / "RESULTS.md").read_text()
    assert "200 B, batch 50" in report
    assert "one tail consumer" in report
    assert list(tmp_path.iterdir()) == [tmp_path / "kept"]


@pytest.mark.parametrize(
    "key", ["one-20", "five-idem", "five-idem-raw", "one-20-raw", "full-lz4", "latency", "tail100"]
)
def test_each_client_runs_its_load(measured: Measured, key: str) -> None:
    cost = once(row(key), measured, 0.002)
    assert cost and cost.messages >= 500 and cost.seconds > 0


def test_unknown_rows_are_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "odradek.loadtest.bench", "--quick", "--rows", "batch1,btach50"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "unknown row btach50" in done.stderr


@pytest.mark.parametrize("mode", ["produce", "tail"])
def test_a_load_that_fails_gives_no_figure(mode: str) -> None:
    with pytest.raises(LoadError, match=r"somebody.*Connection refused\n.*last words"):
        run(Call("raw", mode), cast(Measured, Seen(1)), "topic")


def test_a_refused_batch_gives_no_figure(measured: Measured) -> None:
    with pytest.raises(LoadError, match="Produce was answered with error 3"):
        run(Call("raw", "produce", {"messages": 500}), measured, "nowhere")


def test_a_lost_message_gives_no_figure(measured: Measured) -> None:
    call = Call("client", "produce", {"messages": 500, "producers": 2})
    wire.create(measured.port, "short")
    run(call, measured, "short")
    check_end(measured, "short", call)
    with pytest.raises(LoadError, match="should end at 1202, but ends at 1002"):
        check_end(measured, "short", Call("client", "produce", {"messages": 600, "producers": 2}))


@pytest.mark.smoke
def test_topics_are_created_counted_and_deleted(fresh_broker: Callable[..., Broker]) -> None:
    broker = seen(fresh_broker())
    wire.create(broker.port, "here")
    assert wire.metadata(broker.port) == (1, 0)
    assert wire.end(broker.port, "here") == 0
    wire.delete(broker.port, "here")
    assert wire.metadata(broker.port) == (0, 0)
    with pytest.raises(wire.WireError):
        wire.end(broker.port, "here")


def test_dropping_the_page_cache_keeps_the_data(tmp_path: Path) -> None:
    log = tmp_path / "topic-0" / "0.log"
    log.parent.mkdir()
    log.write_bytes(b"x" * 100_000)
    drop_pages(tmp_path)
    assert log.read_bytes() == b"x" * 100_000
