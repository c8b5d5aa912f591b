"""Apache Kafka's tools and classes read our records of `__consumer_offsets`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..harness import java
from .world import World, drain

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]


def write_segment(world: World, folder: Path) -> Path:
    """The world's log as a segment file at Kafka's path."""
    partition = folder / "__consumer_offsets-0"
    partition.mkdir()
    segment = partition / f"{0:020}.log"
    segment.write_bytes(b"".join(world.log.batches[0]))
    return segment


def busy_world() -> World:
    """Static and dynamic members, commits with and without an expiry, tombstones of offsets and of a group."""
    world = World()
    token = world.join(instance_id="inst")
    other = world.join()
    world.wait(9_000)
    ids = [world.answer(token).member_id, world.answer(other).member_id]
    world.spread(ids, 1)
    world.commit(42, ("t", 3), member_id=ids[0], instance_id="inst", generation=1, metadata="märk")
    world.commit(7, ("gone", 0), group="simple", expire_ms=1_800_000_000_000)
    drain(world.groups.forgetting({"gone"}, world.now))
    world.settle()
    world.join(group="short")
    world.wait(9_000)
    world.wait(300_000)  # both groups' members time out
    for group in ("short", "g"):
        world.groups.delete_group(group, world.token(), world.now)
        world.settle()
    return world


def test_dump_log_segments_decodes_every_record(tmp_path: Path) -> None:
    segment = write_segment(busy_world(), tmp_path)
    words = ("--offsets-decoder", "--print-data-log", "--deep-iteration", "--files", str(segment))
    output = java.run("3.9.1", "kafka.tools.DumpLogSegments", *words).stdout.decode()
    lines = [line for line in output.splitlines() if "payload:" in line]
    assert "invalid" not in output.lower() and "corrupt" not in output.lower()
    payloads = [_parts(line) for line in lines]
    assert all(key.startswith("{") for key, _ in payloads), output
    commit = next(value for key, value in payloads if '"topic":"t"' in key and value != "<DELETE>")
    assert _data(commit) == {
        "offset": 42, "leaderEpoch": -1, "metadata": "märk", "commitTimestamp": _data(commit)["commitTimestamp"],
    }  # fmt: skip
    stable = next(_data(value) for _, value in payloads if '"generation":1' in value and '"inst"' in value)
    assert stable["protocolType"] == "consumer" and stable["protocol"] == "range"
    assert {member["groupInstanceId"] for member in stable["members"]} == {"inst", None}
    assert stable["members"][0]["clientHost"] == "/127.0.0.1"
    assert any('"expireTimestamp":1800000000000' in value for _, value in payloads)
    assert sum(value == "<DELETE>" for _, value in payloads) >= 3


def _parts(line: str) -> tuple[str, str]:
    key, value = line.split(" key: ", 1)[1].split(" payload: ", 1)
    return key, value


def _data(text: str) -> dict[str, Any]:
    return json.loads(text)["data"]
