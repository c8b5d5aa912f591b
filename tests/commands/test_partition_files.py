"""The JSON files with partitions: what is refused, in one line, and that Kafka's own tools refuse it too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.broker.commands._shared.partitions import from_file, is_int32
from odradek.broker.commands.reassign_partitions.moves import _topics, targets
from odradek.broker.errors import OdradekError

from ..harness import java
from .conftest import Run

NO_NUMBERS: list[Any] = [True, False, "1", 1.0, 1e3, None, [], {}, 1 << 31]
NO_ROWS: list[Any] = [None, 1, "x", {}, [1], [[]], ["partitions"], [None]]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda some: st.lists(some) | st.dictionaries(st.sampled_from(["topic", "partition", "x"]), some),
)


def written(folder: Path, document: Any) -> str:
    file = folder / "partitions.json"
    file.write_text(json.dumps(document))
    return str(file)


def refused(read: Any, folder: Path, document: Any) -> str:
    """The error for a document, one line that names the file."""
    path = written(folder, document)
    with pytest.raises(OdradekError) as caught:
        read(path)
    assert str(caught.value).startswith(path) and "\n" not in str(caught.value)
    return str(caught.value)


def row(**fields: Any) -> dict[str, Any]:
    """A partition that all tools take, with changes."""
    return {"topic": "t", "partition": 0, "offset": 0, "replicas": [0]} | fields


@pytest.mark.parametrize("index", NO_NUMBERS)
def test_no_number_for_a_partition(tmp_path: Path, index: Any) -> None:
    error = refused(from_file, tmp_path, {"partitions": [row(), row(partition=index)]})
    assert '"partition", a whole number of 32 bits' in error and f'"partition": {json.dumps(index)}' in error


@pytest.mark.parametrize("topic", [1, True, None, ["t"]])
def test_no_name_for_a_topic(tmp_path: Path, topic: Any) -> None:
    assert '"topic", a string' in refused(from_file, tmp_path, {"partitions": [row(topic=topic)]})
    assert '"topic", a string' in refused(_topics, tmp_path, {"topics": [{"topic": topic}]})


@pytest.mark.parametrize("rows", NO_ROWS)
def test_no_list_of_objects(tmp_path: Path, rows: Any) -> None:
    assert '"partitions" must be a list of objects' in refused(from_file, tmp_path, {"partitions": rows})


@pytest.mark.parametrize("version", [True, 1.0, "1", None, 2])
def test_versions(tmp_path: Path, version: Any) -> None:
    error = refused(from_file, tmp_path, {"partitions": [row()], "version": version})
    assert error.endswith(f"Not supported version field value {json.dumps(version)}")


@pytest.mark.parametrize("replicas", [None, 0, "0", [True], ["0"], [1.0], [1 << 31], [None]])
def test_no_replicas(tmp_path: Path, replicas: Any) -> None:
    assert '"replicas", a list of broker ids' in refused(targets, tmp_path, {"partitions": [row(replicas=replicas)]})


@pytest.mark.parametrize("log_dirs", [None, "any", 1, [], ["any", "any"], ["/data"], [None]])
def test_log_dirs(tmp_path: Path, log_dirs: Any) -> None:
    assert "log_dirs" in refused(targets, tmp_path, {"partitions": [row(log_dirs=log_dirs)]})


def test_long_row_is_cut(tmp_path: Path) -> None:
    error = refused(from_file, tmp_path, {"partitions": [row(partition="x" * 10_000)]})
    assert len(error) < 500 + len(str(tmp_path)) and error.endswith("…")


@given(document=JSON)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_json_is_read_or_refused(tmp_path: Path, document: Any) -> None:
    for whole in (document, {"partitions": document}, {"partitions": [document]}):
        try:
            found = from_file(written(tmp_path, whole))
        except OdradekError as error:
            assert "\n" not in str(error)
        else:
            assert all(isinstance(topic, str) and is_int32(index) for topic, index, _ in found)


COMMANDS = {
    "delete-records": ("DeleteRecordsCommand", ["--offset-json-file", "FILE"]),
    "leader-election": ("LeaderElectionCommand", ["--election-type", "preferred", "--path-to-json-file", "FILE"]),
    "reassign-partitions": (
        "reassign.ReassignPartitionsCommand",
        ["--verify", "--reassignment-json-file", "FILE"],
    ),
}


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
@pytest.mark.parametrize(
    ("command", "changes"),
    [
        *(pytest.param("delete-records", {"partition": index}, marks=pytest.mark.long) for index in NO_NUMBERS),
        ("delete-records", {"topic": 1}),
        ("leader-election", {"partition": "1"}),
        pytest.param("reassign-partitions", {"partition": True}, marks=pytest.mark.long),
        ("reassign-partitions", {"replicas": [True]}),
        ("reassign-partitions", {"log_dirs": []}),
        ("reassign-partitions", {"log_dirs": "any"}),
    ],
)
def test_refused_by_apache_too(run: Run, broker: Any, tmp_path: Path, command: str, changes: dict[str, Any]) -> None:
    tool, words = COMMANDS[command]
    file = written(tmp_path, {"partitions": [row(**changes)], "version": 1})
    line = [word.replace("FILE", file) for word in words]
    theirs = java.run(
        "3.9.1", f"org.apache.kafka.tools.{tool}", "--bootstrap-server", broker.bootstrap, *line, check=False
    )
    assert theirs.returncode == 1, theirs
    assert run(command, *line, code=1).stderr.count(b"\n") == 1
