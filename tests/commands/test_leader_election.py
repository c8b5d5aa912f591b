"""`odradek leader-election` and `log-dirs` as scripts use them; test_as_apache.py compares their output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Run

pytestmark = pytest.mark.live

PREFERRED = ("--election-type", "preferred")


def test_partitions_may_be_in_a_file(run: Run, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "partitions.json"
    one = {"topic": topic, "partition": 0}
    file.write_text(json.dumps({"partitions": [one]}))
    done = run("leader-election", *PREFERRED, "--path-to-json-file", str(file))
    assert done.stdout == f"Valid replica already elected for partitions {topic}-0\n".encode()
    file.write_text(json.dumps({"partitions": [one, one]}))
    assert b"duplicate" in run("leader-election", *PREFERRED, "--path-to-json-file", str(file), code=1).stderr


def test_failed_election_exits_with_1(run: Run) -> None:
    done = run("leader-election", *PREFERRED, "--topic", "nothing", "--partition", "0", code=1)
    assert b"nothing-0" in done.stdout and b"could not be elected" in done.stderr


def test_wrong_usage_exits_with_2(run: Run) -> None:
    run("leader-election", *PREFERRED, code=2)
    run("leader-election", "--all-topic-partitions", code=2)
    run("leader-election", *PREFERRED, "--topic", "t", code=2)
    run("leader-election", *PREFERRED, "--all-topic-partitions", "--partition", "0", code=2)
    run("leader-election", *PREFERRED, "--all-topic-partitions", "--topic", "t", "--partition", "0", code=2)


def test_log_dirs_of_an_unknown_broker_is_an_error(run: Run) -> None:
    assert b"7" in run("log-dirs", "--describe", "--broker-list", "0,7", code=1).stderr
    run("log-dirs", "--describe", "--broker-list", "zero", code=2)
    run("log-dirs", code=2)
