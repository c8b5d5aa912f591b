"""Commands print what the tools of Apache Kafka 3.9.1 print for the same broker, byte for byte."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..harness import java
from .conftest import Run, command_line

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

TOOLS = {
    "topics": "TopicCommand",
    "log-dirs": "LogDirsCommand",
    "leader-election": "LeaderElectionCommand",
    "reassign-partitions": "reassign.ReassignPartitionsCommand",
}
Both = Callable[..., str]


@pytest.fixture
def both(broker: Any) -> Both:
    """A function that runs a command and Apache's tool with the same options; the output of both."""

    def call(command: str, *words: str, code: int = 0) -> str:
        line = (command, "--bootstrap-server", broker.bootstrap, *words)
        ours = subprocess.run(command_line(*line), capture_output=True, text=True, timeout=120)
        theirs = java.run("3.9.1", f"org.apache.kafka.tools.{TOOLS[command]}", *line[1:], check=False)
        assert (ours.returncode, theirs.returncode) == (code, code), (ours, theirs)
        assert _sorted(ours.stdout) == _sorted(theirs.stdout.decode())
        return ours.stdout

    return call


def _sorted(printed: str) -> str:
    """Sort partitions in JSON, which Apache's tools print in hash order."""
    return re.sub(r'\[({"partition":"[^]]*)]', lambda found: ",".join(sorted(found[1][1:-1].split("},{"))), printed)


@pytest.fixture
def topic(run: Run, name: str) -> str:
    """A topic of two partitions with a config."""
    run("topics", "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=3600000")
    return name


@pytest.fixture
def moves(tmp_path: Path, topic: str) -> str:
    """A file that keeps the replicas of the topic's first partition."""
    rows = [{"topic": topic, "partition": 0, "replicas": [0], "log_dirs": ["any"]}]
    return written(tmp_path, {"version": 1, "partitions": rows})


def written(folder: Path, document: Any) -> str:
    file = folder / "file.json"
    file.write_text(json.dumps(document))
    return str(file)


def test_topics_output_equals_apaches(both: Both, topic: str) -> None:
    assert topic in both("topics", "--list")
    assert both("topics", "--describe", "--topic", topic).count("\n") == 3
    assert both("topics", "--describe", "--topic", topic, "--under-replicated-partitions") == ""
    assert both("topics", "--describe", "--topic", topic, "--unavailable-partitions") == ""
    assert both("topics", "--describe", "--topic", topic, "--under-min-isr-partitions") == ""
    assert both("topics", "--describe", "--topic", topic, "--at-min-isr-partitions").count("\n") == 2
    assert both("topics", "--describe", "--topics-with-overrides", "--exclude-internal").count(topic) == 1
    found = re.search(r"TopicId: (\S+)", both("topics", "--describe", "--topic", topic))
    assert found and topic in both("topics", "--describe", "--topic-id", found[1])


def test_log_dirs_output_equals_apaches(both: Both, run: Run, topic: str) -> None:
    run("console-producer", "--topic", topic, stdin=b"one\ntwo\n")
    lines = both("log-dirs", "--describe", "--topic-list", topic).splitlines()
    (folder,) = json.loads(lines[2])["brokers"][0]["logDirs"]
    assert {part["partition"] for part in folder["partitions"]} == {f"{topic}-0", f"{topic}-1"}
    assert sum(part["size"] for part in folder["partitions"]) > 0
    both("log-dirs", "--describe", "--broker-list", "0", "--topic-list", "nothing")


def test_leader_election_output_equals_apaches(both: Both, topic: str, tmp_path: Path) -> None:
    assert both("leader-election", "--election-type", "preferred", "--all-topic-partitions") == ""
    chosen = ("--topic", topic, "--partition", "1")
    assert both("leader-election", "--election-type", "preferred", *chosen).startswith("Valid replica already elected")
    rows = [{"topic": topic, "partition": 0}, {"topic": "nothing", "partition": 1}]
    words = ("--path-to-json-file", written(tmp_path, {"partitions": rows}))
    printed = both("leader-election", "--election-type", "unclean", *words, code=1)
    assert "partition: nothing-1: org.apache.kafka.common.errors.UnknownTopicOrPartitionException" in printed


def test_reassign_partitions_output_equals_apaches(both: Both, topic: str, moves: str, tmp_path: Path) -> None:
    assert both("reassign-partitions", "--list") == "No partition reassignments found.\n"
    file = ("--reassignment-json-file", moves)
    assert "is completed" in both("reassign-partitions", "--verify", *file)
    assert "Successfully started" in both("reassign-partitions", "--execute", *file)
    assert "B/s" in both("reassign-partitions", "--execute", *file, "--throttle", "100000")
    assert "None of" in both("reassign-partitions", "--cancel", *file, "--preserve-throttles")
    assert "Clearing" in both("reassign-partitions", "--cancel", *file)
    (tmp_path / "topics").mkdir()
    topics = written(tmp_path / "topics", {"topics": [{"topic": topic}], "version": 1})
    both("reassign-partitions", "--generate", "--topics-to-move-json-file", topics, "--broker-list", "0")
