"""`odradek verifiable-producer` and `verifiable-consumer`, compared with Kafka's tools."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from ..harness import java
from .conftest import SECONDS, Run

pytestmark = pytest.mark.live

Event = dict[str, Any]
SENT = ("--max-messages", "3", "--repeating-keys", "2", "--value-prefix", "7", "--acks", "-1")
READ = ("--max-messages", "3", "--verbose")
TWICE = ["partitions_assigned", "partitions_revoked", "partitions_assigned"]


def events(printed: bytes) -> list[Event]:
    return [json.loads(line) for line in printed.splitlines()]


def compared(printed: bytes) -> list[str]:
    """The events without fields that differ between runs, and without the rebalances before the last one: a member
    that is slow to hear of the topic's partitions joins twice. Java gives no order to the methods of a class, of which
    its tools make the fields, so their order differs too.
    """
    found: list[Event] = []
    for event in events(printed):
        assert event.pop("timestamp") > 0
        event.pop("avg_throughput", None)
        if [one["name"] for one in (*found[-2:], event)] == TWICE:
            del found[-2:]
        found.append(event)
    return [json.dumps(event, sort_keys=True) for event in found]


def test_events_of_producer_and_consumer(run: Run, topic: str) -> None:
    sent = events(run("verifiable-producer", "--topic", topic, *SENT).stdout)
    assert [event["name"] for event in sent[-2:]] == ["shutdown_complete", "tool_data"]
    assert sent[-1]["sent"] == sent[-1]["acked"] == 3
    successes = [event for event in sent if event["name"] == "producer_send_success"]
    assert [(event["key"], event["value"], event["offset"]) for event in successes] == [
        ("0", "7.0", 0),
        ("1", "7.1", 1),
        ("0", "7.2", 2),
    ]
    read = events(run("verifiable-consumer", "--topic", topic, "--group-id", topic, *READ).stdout)
    names = [event["name"] for event in read]
    assert names[:2] == ["startup_complete", "partitions_assigned"] and names[-1] == "shutdown_complete"
    assert [event["value"] for event in read if event["name"] == "record_data"] == ["7.0", "7.1", "7.2"]
    place = {"topic": topic, "partition": 0}
    assert [event["offsets"] for event in read if event["name"] == "offsets_committed"][-1] == [place | {"offset": 3}]


@pytest.mark.needs("java-3.9.1")
def test_events_equal_apaches(run: Run, broker: Any, name: str) -> None:
    """Each tool writes to and reads from its own topic; the names have the same length."""
    printed = []
    for topic in (f"{name}a", f"{name}b"):
        run("topics", "--create", "--topic", topic)
        where = ("--bootstrap-server", broker.bootstrap, "--topic", topic)
        produce, consume = (*where, *SENT), (*where, "--group-id", topic, *READ)
        if topic.endswith("a"):
            done = [run("verifiable-producer", *produce[2:]).stdout, run("verifiable-consumer", *consume[2:]).stdout]
        else:
            tools = {"VerifiableProducer": produce, "VerifiableConsumer": consume}
            done = [java.run("3.9.1", f"org.apache.kafka.tools.{tool}", *words).stdout for tool, words in tools.items()]
        printed.append([line.replace(topic, name) for output in done for line in compared(output)])
    assert printed[0] == printed[1]


def test_failed_send_and_sigterm_are_events(run: Run, start: Any, topic: str) -> None:
    failed = events(run("verifiable-producer", "--topic", "a/b", "--max-messages", "1").stdout)[1]
    assert failed["name"] == "producer_send_error"
    assert failed["exception"] == "class org.apache.kafka.common.errors.InvalidTopicException"
    process = start("verifiable-producer", "--topic", topic, "--throughput", "50")
    assert json.loads(process.stdout.readline())["name"] == "startup_complete"
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    last = events(process.communicate(timeout=SECONDS)[0])[-1]
    assert process.returncode == 128 + signal.SIGTERM
    assert last["name"] == "tool_data" and last["sent"] == last["acked"] > 0 and last["target_throughput"] == 50


def test_wrong_usage_exits_with_2(run: Run, topic: str) -> None:
    def error(*words: str) -> bytes:
        return run("verifiable-consumer", "--topic", topic, *words, code=2).stderr

    assert b"Missing option '--group-id'" in error()
    assert b"--group-protocol must be classic" in error("--group-id", "g", "--group-protocol", "CONSUMER")
    assert b"--assignment-strategy must be one of range" in error("--group-id", "g", "--assignment-strategy", "x")
    run("verifiable-producer", "--topic", topic, "--acks", "2", code=2)
