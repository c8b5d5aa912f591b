"""The two performance tests print the lines of Kafka's tools, which scripts parse."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import Run, command_line

pytestmark = pytest.mark.live

TOTAL = re.compile(
    r"(\d+) records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, "
    r"[\d.]+ ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\."
)


def test_perf_tests_print_the_lines_of_kafkas_tools(broker: Any, run: Run, topic: str) -> None:
    words = ("--topic", topic, "--num-records", "3000", "--record-size", "100", "--throughput", "-1")
    props = ("--producer-props", f"bootstrap.servers={broker.bootstrap}", "acks=1")
    sent = subprocess.run(command_line("producer-perf-test", *words, *props), capture_output=True, timeout=120)
    assert sent.returncode == 0, sent.stderr
    match = TOTAL.fullmatch(sent.stdout.decode().splitlines()[-1])
    assert match and match[1] == "3000"
    lines = (
        run("consumer-perf-test", *words[:2], "--messages", "3000", "--timeout", "60000").stdout.decode().splitlines()
    )
    assert lines[0].split(", ")[:3] == ["start.time", "end.time", "data.consumed.in.MB"]
    assert len(lines[0].split(", ")) == len(lines[1].split(", ")) == 10
    assert lines[1].split(", ")[4] == "3000" and float(lines[1].split(", ")[2]) == 0.2861


def test_payloads_are_monotonic_or_from_a_file(run: Run, topic: str, tmp_path: Path) -> None:
    words = ("--topic", topic, "--num-records", "5", "--throughput", "100")
    run("producer-perf-test", *words, "--payload-monotonic")
    (tmp_path / "payloads").write_text("one;two;")
    file = ("--payload-file", str(tmp_path / "payloads"), "--payload-delimiter", ";")
    assert b"Number of messages read: 2" in run("producer-perf-test", *words, *file).stdout
    limits = ("--from-beginning", "--max-messages", "10", "--timeout-ms", "30000")
    read = run("console-consumer", "--topic", topic, *limits).stdout.decode().split()
    assert read[:5] == ["0", "1", "2", "3", "4"] and set(read[5:]) <= {"one", "two"}


def test_too_few_messages_print_a_warning(run: Run, topic: str) -> None:
    words = ("--topic", topic, "--messages", "10", "--timeout", "500", "--hide-header")
    assert run("consumer-perf-test", *words).stdout.startswith(b"WARNING: ")


def test_wrong_usage_exits_with_2(run: Run, topic: str) -> None:
    run("consumer-perf-test", "--topic", topic, code=2)
    run("producer-perf-test", "--topic", topic, "--num-records", "1", "--throughput", "1", code=2)
