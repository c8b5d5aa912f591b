"""`odradek reassign-partitions` as scripts use it; test_as_apache.py compares its output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.commands.reassign_partitions.throttles import FOLLOWERS, LEADERS, Move, _replicas, moves
from odradek.broker.commands.reassign_partitions.under_reassignment import Reassignment

from .conftest import Run

pytestmark = pytest.mark.live


def moving(folder: Path, *rows: dict[str, Any], **more: Any) -> tuple[str, str]:
    """The option with a file of these partitions."""
    file = folder / "moves.json"
    file.write_text(json.dumps({"version": 1, "partitions": rows} | more))
    return "--reassignment-json-file", str(file)


def row(topic: str, *replicas: int, partition: int = 0, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "replicas": replicas} | more


def configs(run: Run, kind: str, name: str) -> dict[str, str]:
    words = ("--describe", "--entity-type", kind, "--entity-name", name, "--json")
    found = json.loads(run("configs", *words).stdout)[0]["configs"]
    return {config["name"]: config["value"] for config in found}


def test_replication_throttle_is_set_and_removed(run: Run, topic: str, tmp_path: Path) -> None:
    file = moving(tmp_path, row(topic, 0))
    run("reassign-partitions", "--execute", *file, "--throttle", "5000")
    assert configs(run, "topics", topic) == {LEADERS: "0:0", FOLLOWERS: ""}
    rates = {"leader.replication.throttled.rate", "follower.replication.throttled.rate"}
    assert rates <= configs(run, "brokers", "0").keys()
    run("reassign-partitions", "--verify", *file, "--preserve-throttles")
    assert rates <= configs(run, "brokers", "0").keys()
    run("reassign-partitions", "--verify", *file)
    assert not rates & configs(run, "brokers", "0").keys()
    assert configs(run, "topics", topic) == {}


def test_throttle_covers_the_replicas_of_a_running_reassignment() -> None:
    """A running reassignment copies from its first replicas, whatever is proposed."""
    under_way = {("a", 0): Reassignment([1, 2, 3, 4], [3, 4], [1, 2])}
    proposed = {("a", 0): [4, 5], ("b", 1): [2, 3], ("b", 10): [1]}
    found = moves(under_way, proposed, {("b", 1): [1, 2], ("b", 10): [1]})
    assert found[("a", 0)] == Move(frozenset({1, 2}), frozenset({4, 5}))
    assert _replicas("b", found) == {LEADERS: "10:1,1:1,1:2", FOLLOWERS: "1:3"}


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "list cannot be empty"),
        ([row("t")], "replica list cannot be empty"),
        ([row("t", 0), row("t", 0)], "duplicate topic partitions: t-0"),
        ([row("t", 0, 0)], "duplicate entries: t-0"),
        ([row("t", 7)], "Unknown broker id 7"),
        ([row("t", 0)], "Unable to find partition: t-0"),
        ([row("t", 0, log_dirs=["/elsewhere"])], "t-0: moving to a log directory is not supported"),
        ([{"topic": "t"}], "partition"),
        ([{"topic": "t", "partition": 0}], "a list of broker ids"),
    ],
)
def test_invalid_assignments_are_not_executed(run: Run, tmp_path: Path, rows: list[dict[str, Any]], says: str) -> None:
    refused = run("reassign-partitions", "--execute", *moving(tmp_path, *rows), code=1)
    assert says.encode() in refused.stderr and b"Traceback" not in refused.stderr


def test_invalid_reassignment_file_is_refused(run: Run, tmp_path: Path) -> None:
    assert b"version" in run("reassign-partitions", "--verify", *moving(tmp_path, version=2), code=1).stderr
    (tmp_path / "moves.json").write_text("no json")
    assert (
        b"JSON"
        in run(
            "reassign-partitions", "--verify", "--reassignment-json-file", str(tmp_path / "moves.json"), code=1
        ).stderr
    )


def test_brokers_error_is_printed(run: Run, topic: str, tmp_path: Path) -> None:
    refused = run("reassign-partitions", "--execute", *moving(tmp_path, row(topic, 0, partition=9)), code=1)
    assert f"{topic}-9".encode() in refused.stderr


def test_wrong_usage_exits_with_2(run: Run, tmp_path: Path) -> None:
    file = moving(tmp_path)
    for words in (
        (),
        ("--list", "--cancel"),
        ("--verify",),
        ("--list", *file),
        ("--verify", *file, "--throttle", "5"),
        ("--generate", "--broker-list", "0"),
    ):
        run("reassign-partitions", *words, code=2)
