"""`odradek consumer-groups` as scripts use it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kafka.structs import OffsetAndMetadata, TopicPartition

from odradek.broker.commands._shared.client import Cluster
from odradek.broker.commands.consumer_groups.describe_groups import committed

from ..harness.process import wait_until
from .conftest import Run

pytestmark = pytest.mark.live


@pytest.fixture
def group(run: Run, topic: str, name: str) -> str:
    """An empty group that has read 4 of the 10 messages of `topic`."""
    run("console-producer", "--topic", topic, stdin=b"".join(b"%d\n" % i for i in range(10)))
    limits = ("--from-beginning", "--max-messages", "4", "--timeout-ms", "30000")
    run("console-consumer", "--topic", topic, "--group", f"g-{name}", *limits)
    return f"g-{name}"


def _describe(run: Run, group: str, *words: str) -> Any:
    return json.loads(run("consumer-groups", "--describe", "--group", group, "--json", *words).stdout)


def _offset(run: Run, group: str) -> int | None:
    rows = _describe(run, group)
    return rows[0]["currentOffset"] if rows else None


def test_describe_shows_offsets_and_lag(run: Run, topic: str, group: str) -> None:
    (row,) = _describe(run, group)
    assert (row["topic"], row["currentOffset"], row["logEndOffset"], row["lag"]) == (topic, 4, 10, 6)
    lines = run("consumer-groups", "--describe", "--group", group).stdout.decode().split("\n")
    header = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
    assert lines[0] == "" and lines[1].split() == header.split()
    assert lines[2].split() == [group, topic, "0", "4", "10", "6", "-", "-", "-"]
    run("consumer-groups", "--describe", "--group", "no-such-group", code=1)


@pytest.mark.long
def test_list_filters_by_state_and_type(run: Run, group: str) -> None:
    def groups(*words: str) -> list[str]:
        return [row["group"] for row in json.loads(run("consumer-groups", "--list", "--json", *words).stdout)]

    assert group in run("consumer-groups", "--list").stdout.decode().split()
    assert group in groups("--state") and group in groups("--state", "empty,stable")
    assert group not in groups("--state", "Stable") and group in groups("--type", "classic")
    run("consumer-groups", "--list", "--state", "sleepy", code=2)


def test_describe_shows_the_members_of_an_active_group(run: Run, start: Any, topic: str, name: str) -> None:
    words = ("--topic", topic, "--group", name, "--consumer-property", "client.id=reader")
    start("console-consumer", *words)
    wait_until(lambda: _state(run, name) == "Stable", 90, "the group is stable")
    # The consumer joins twice, first without the topic's partitions.
    assigned = lambda: sum(row["partitions"] for row in _describe(run, name, "--members", "--verbose"))  # noqa: E731
    wait_until(lambda: assigned() and _state(run, name) == "Stable", 90, "the member has its partition")
    (member,) = _describe(run, name, "--members", "--verbose")
    assert (member["clientId"], member["partitions"]) == ("reader", 1)
    assert member["assignment"] == [[topic, 0]]
    (state,) = _describe(run, name, "--state")
    assert (state["state"], state["members"]) == ("Stable", 1)
    reset = ("--reset-offsets", "--group", name, "--all-topics", "--to-earliest", "--execute")
    assert b"inactive" in run("consumer-groups", *reset, code=1).stderr
    assert b"could not be deleted" in run("consumer-groups", "--delete", "--group", name, code=1).stderr


def _state(run: Run, group: str) -> str | None:
    listed = json.loads(run("consumer-groups", "--list", "--state", "--json").stdout)
    return {row["group"]: row["state"] for row in listed}.get(group)


RESETS = [
    (["--to-earliest"], 0),
    (["--to-latest"], 10),
    (["--to-current"], 4),
    (["--to-offset", "7"], 7),
    (["--to-offset", "0"], 0),
    (["--to-offset", "99"], 10),
    (["--shift-by", "3"], 7),
    (["--shift-by", "-3"], 1),
    (["--shift-by", "-30"], 0),
    (["--to-datetime", "2020-01-01T00:00:00.000"], 0),
    (["--to-datetime", "2199-01-01T00:00:00.000+01:00"], 10),
    (["--by-duration", "P1DT1H"], 0),
    (["--by-duration", "PT0S"], 10),
]


def test_reset_offsets_computes_each_target(broker: Any, run: Run, topic: str, group: str) -> None:
    place = (topic, 0)
    scope = ("--reset-offsets", "--group", group, "--topic", f"{topic}:0")
    with Cluster(broker.bootstrap) as cluster:
        run("consumer-groups", *scope, "--to-latest")
        assert committed(cluster, group) == {place: 4}, "only --execute changes offsets"
        for words, want in RESETS:
            cluster.admin.alter_group_offsets(group, {TopicPartition(*place): OffsetAndMetadata(4, "", -1)})
            shown = run("consumer-groups", *scope, *words, "--execute").stdout.decode().split("\n")
            assert shown[1].split() == ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
            assert shown[2].split() == [group, topic, "0", str(want)], words
            assert committed(cluster, group) == {place: want}, words


@pytest.mark.long
def test_exported_offsets_can_be_applied_from_a_file(run: Run, topic: str, group: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    scope = ("--reset-offsets", "--group", group)
    exported = run("consumer-groups", *scope, "--topic", topic, "--to-offset", "6", "--export", "--dry-run")
    assert exported.stdout == f"{topic},0,6\n".encode()
    plan.write_bytes(exported.stdout)
    run("consumer-groups", *scope, "--from-file", str(plan), "--execute")
    assert _offset(run, group) == 6
    plan.write_text(f"{group},{topic},0,2\n")
    run("consumer-groups", *scope, "--from-file", str(plan), "--execute")
    assert _offset(run, group) == 2
    plan.write_text("not a plan\n")
    run("consumer-groups", *scope, "--from-file", str(plan), "--execute", code=1)


def test_delete_removes_the_group(run: Run, group: str) -> None:
    run("consumer-groups", "--delete", "--group", group)
    run("consumer-groups", "--delete", "--group", group, code=1)


def test_delete_offsets_removes_offsets_of_a_topic(run: Run, topic: str, group: str) -> None:
    deleted = run("consumer-groups", "--delete-offsets", "--group", group, "--topic", topic)
    assert deleted.stdout.decode().split()[-3:] == [topic, "0", "Successful"]
    missing = ("--delete-offsets", "--group", group, "--topic", "no-such-topic")
    assert b"Error" in run("consumer-groups", *missing, code=1).stdout


def test_wrong_usage_exits_with_2(run: Run) -> None:
    run("consumer-groups", code=2)
    run("consumer-groups", "--list", "--delete", code=2)
    run("consumer-groups", "--describe", code=2)
    reset = ("--reset-offsets", "--group", "g", "--all-topics")
    run("consumer-groups", *reset, code=2)
    run("consumer-groups", *reset, "--to-latest", "--to-earliest", code=2)
    run("consumer-groups", *reset, "--by-duration", "tomorrow", code=2)
    run("consumer-groups", "--reset-offsets", "--group", "g", "--to-latest", code=2)
