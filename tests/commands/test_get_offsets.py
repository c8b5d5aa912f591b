"""`odradek get-offsets` as scripts use it."""

from __future__ import annotations

import json

import pytest

from .conftest import Run

pytestmark = pytest.mark.live


@pytest.fixture
def filled(run: Run, topic: str) -> str:
    """Three messages in partition 0, none in partition 1."""
    run("console-producer", "--topic", topic, stdin=b"a\nb\nc\n")
    run("topics", "--alter", "--topic", topic, "--partitions", "2")
    return topic


def _newest(run: Run, topic: str) -> int:
    """The first offset with the largest timestamp, since all may have been sent within one millisecond."""
    words = ("--from-beginning", "--max-messages", "3", "--property", "print.timestamp=true")
    lines = run("console-consumer", "--topic", topic, *words).stdout.decode().splitlines()
    stamps = [int(line.split()[0].removeprefix("CreateTime:")) for line in lines]
    return stamps.index(max(stamps))


def test_time_selects_the_offsets(run: Run, filled: str) -> None:
    def offsets(*words: str) -> list[str]:
        return run("get-offsets", "--topic", filled, *words).stdout.decode().split()

    assert offsets() == [f"{filled}:0:3", f"{filled}:1:0"]
    assert offsets("--time", "-1") == offsets("--time", "latest") == offsets()
    assert offsets("--time", "-2") == [f"{filled}:0:0", f"{filled}:1:0"]
    assert offsets("--time", "-3") == [f"{filled}:0:{_newest(run, filled)}"]
    assert offsets("--time", "0") == [f"{filled}:0:0"]
    assert offsets("--time", "99999999999999") == []
    assert offsets("--partitions", "1") == [f"{filled}:1:0"]


def test_topic_partition_patterns_select_the_offsets(run: Run, filled: str) -> None:
    def offsets(pattern: str) -> list[str]:
        return run("get-offsets", "--topic-partitions", pattern).stdout.decode().split()

    assert offsets(f"{filled}:1") == [f"{filled}:1:0"]
    assert offsets(f"{filled}:-1") == [f"{filled}:0:3"]
    assert offsets(f"{filled[:-1]}.:0-2") == [f"{filled}:0:3", f"{filled}:1:0"]
    run("get-offsets", "--topic-partitions", "no-such-topic-here", code=1)


def test_json_output_and_wrong_usage(run: Run, filled: str) -> None:
    document = json.loads(run("get-offsets", "--topic", filled, "--partitions", "0", "--json").stdout)
    assert document == [{"topic": filled, "partition": 0, "offset": 3}]
    run("get-offsets", "--time", "soon", code=2)
    run("get-offsets", "--topic", filled, "--topic-partitions", filled, code=2)
