"""`odradek delete-records`, compared with Kafka's tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..harness import java
from .conftest import Run

pytestmark = pytest.mark.live

Row = dict[str, Any]


@pytest.fixture
def filled(run: Run, topic: str) -> str:
    """Four messages in the only partition."""
    run("console-producer", "--topic", topic, stdin=b"a\nb\nc\nd\n")
    return topic


def written(folder: Path, *rows: Row, version: int = 1) -> str:
    file = folder / "offsets.json"
    file.write_text(json.dumps({"partitions": rows, "version": version}))
    return str(file)


def test_records_before_the_offset_are_deleted(run: Run, filled: str, tmp_path: Path) -> None:
    rows = [{"topic": filled, "partition": 0, "offset": 3}, {"topic": "no-such-topic", "partition": 0, "offset": 0}]
    lines = run("delete-records", "--offset-json-file", written(tmp_path, *rows)).stdout.decode().splitlines()
    assert lines[:2] == ["Executing records delete operation", "Records delete operation completed:"]
    assert lines[2].startswith("partition: no-such-topic-0\terror: org.apache.kafka.common.errors.UnknownTopicOr")
    assert lines[3:] == [f"partition: {filled}-0\tlow_watermark: 3"]
    assert run("get-offsets", "--topic", filled, "--time", "-2").stdout.decode() == f"{filled}:0:3\n"


@pytest.mark.needs("java-3.9.1")
def test_output_equals_apaches(run: Run, broker: Any, filled: str, tmp_path: Path) -> None:
    """The text of the exception differs between the clients."""
    run("topics", "--create", "--topic", f"{filled}-empty")
    rows = [{"topic": name, "partition": 0, "offset": 2} for name in (filled, f"{filled}-empty")]
    file = written(tmp_path, *rows)
    tool = "org.apache.kafka.tools.DeleteRecordsCommand"
    theirs = java.run("3.9.1", tool, "--bootstrap-server", broker.bootstrap, "--offset-json-file", file)
    ours = run("delete-records", "--offset-json-file", file)
    assert compared(ours.stdout) == compared(theirs.stdout)


def compared(printed: bytes) -> list[str]:
    return sorted(line.partition("Exception: ")[0] for line in printed.decode().splitlines())


def test_invalid_offset_file_is_refused(run: Run, filled: str, tmp_path: Path) -> None:
    def error(*rows: Row, version: int = 1) -> str:
        file = written(tmp_path, *rows, version=version)
        return run("delete-records", "--offset-json-file", file, code=1).stderr.decode()

    row = {"topic": filled, "partition": 0, "offset": 1}
    assert error(row, row) == f"odradek: Offset json file contains duplicate topic partitions: {filled}-0\n"
    assert 'each partition needs a number as "offset"' in error({"topic": filled, "partition": 0})
    for offset in (2**63, -(2**63) - 1, True, 1.0, "1", None, [1], float("nan")):
        assert f"{filled}-0 has {offset!r}\n" in error({"topic": filled, "partition": 0, "offset": offset})
    assert run("get-offsets", "--topic", filled, "--time", "-2").stdout.decode() == f"{filled}:0:0\n", "nothing deleted"
    assert "Not supported version field value 2" in error(row, version=2)
    assert b"no-such-file" in run("delete-records", "--offset-json-file", "no-such-file", code=1).stderr
    run("delete-records", code=2)
