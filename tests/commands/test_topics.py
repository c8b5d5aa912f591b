"""`odradek topics` as scripts use it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from .conftest import Run

pytestmark = pytest.mark.live


def _described(run: Run, name: str) -> dict[str, Any]:
    return json.loads(run("topics", "--describe", "--topic", name, "--json").stdout)[0]


@pytest.mark.smoke
def test_create_describe_in_kafkas_layout(run: Run, name: str) -> None:
    words = ("--partitions", "2", "--replication-factor", "1", "--config", "retention.ms=3600000")
    assert run("topics", "--create", "--topic", name, *words).stdout == f"Created topic {name}.\n".encode()
    lines = run("topics", "--describe", "--topic", name).stdout.decode().splitlines()
    head = rf"Topic: {name}\tTopicId: [\w-]{{22}}\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: (.*)"
    match = re.fullmatch(head, lines[0])
    assert match and "retention.ms=3600000" in match[1].split(",")
    for index, line in enumerate(lines[1:]):
        row = rf"\tTopic: {name}\tPartition: {index}\tLeader: (\d+)\tReplicas: \1\tIsr: \1\tElr: .*"
        assert re.fullmatch(row, line)
    assert len(lines) == 3


def test_if_exists_and_if_not_exists_avoid_the_error(run: Run, name: str) -> None:
    run("topics", "--create", "--topic", name)
    again = run("topics", "--create", "--topic", name, code=1)
    assert b"already exists" in again.stderr and b"Traceback" not in again.stderr
    run("topics", "--create", "--topic", name, "--if-not-exists")
    run("topics", "--delete", "--topic", name)
    gone = run("topics", "--delete", "--topic", name, code=1)
    assert b"does not exist" in gone.stderr
    run("topics", "--delete", "--topic", name, "--if-exists")


def test_topic_is_a_regular_expression_except_for_create(run: Run, name: str) -> None:
    for suffix in ("a", "b", "other"):
        run("topics", "--create", "--topic", f"{name}-{suffix}")
    listed = run("topics", "--list", "--topic", f"{name}-[ab]").stdout.decode().split()
    assert listed == [f"{name}-a", f"{name}-b"]
    assert json.loads(run("topics", "--list", "--topic", f"{name}-a,{name}-b", "--json").stdout) == listed
    run("topics", "--delete", "--topic", f"{name}-.*")
    run("topics", "--create", "--topic", f"{name}-[a]", code=1)


def test_alter_adds_partitions_only(run: Run, topic: str) -> None:
    run("topics", "--alter", "--topic", topic, "--partitions", "3")
    assert _described(run, topic)["partitionCount"] == 3
    run("topics", "--alter", "--topic", topic, "--partitions", "2", code=1)


def test_topic_is_created_with_a_replica_assignment(run: Run, topic: str, name: str) -> None:
    broker = _described(run, topic)["partitions"][0]["leader"]
    run("topics", "--create", "--topic", f"{name}-by-hand", "--replica-assignment", f"{broker},{broker}")
    assert _described(run, f"{name}-by-hand")["partitionCount"] == 2


def test_reports_show_only_faulty_partitions(run: Run, topic: str) -> None:
    for report in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        assert run("topics", "--describe", "--topic", topic, report).stdout == b""
    at_minimum = run("topics", "--describe", "--topic", topic, "--at-min-isr-partitions").stdout
    assert at_minimum.startswith(f"\tTopic: {topic}\tPartition: 0".encode())


def test_replication_factor_above_the_number_of_brokers_is_refused(run: Run, name: str) -> None:
    refused = run("topics", "--create", "--topic", name, "--replication-factor", "9", code=1)
    assert b"eplication" in refused.stderr


def test_wrong_usage_exits_with_2(run: Run, name: str) -> None:
    run("topics", "--list", "--describe", code=2)
    run("topics", code=2)
    run("topics", "--create", code=2)
    run("topics", "--list", "--partitions", "3", code=2)
    run("topics", "--create", "--topic", name, "--config", "novalue", code=2)
