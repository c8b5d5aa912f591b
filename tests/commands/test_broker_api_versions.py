"""`odradek broker-api-versions`, compared with Kafka's tool."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ..harness import java
from .conftest import Run

pytestmark = pytest.mark.live

LINE = re.compile(r"\t\w+\(\d+\): (UNSUPPORTED|\d+( to \d+)?( \[(usable: \d+|unusable: node too (new|old))\])?),?")


def test_lines_have_the_format_of_kafka(run: Run, broker: Any) -> None:
    lines = run("broker-api-versions").stdout.decode().splitlines()
    assert lines[0] == f"{broker.bootstrap} (id: 0 rack: null) -> (" and lines[-1] == ")"
    assert all(LINE.fullmatch(line) for line in lines[1:-1])
    assert "\tProduce(0): 0 to 13 [usable: 13]," in lines


@pytest.mark.needs("java-4.1.0")
def test_output_equals_apaches(run: Run, broker: Any) -> None:
    """Except the usable version, which depends on the client."""
    ours = run("broker-api-versions").stdout.decode()
    tool = "org.apache.kafka.tools.BrokerApiVersionsCommand"
    theirs = java.run("4.1.0", tool, "--bootstrap-server", broker.bootstrap).stdout.decode()
    assert compared(ours) == compared(theirs)


def compared(printed: str) -> str:
    return re.sub(r" \[usable: \d+\]", "", printed.replace(" isFenced: false", ""))


def test_missing_command_config_exits_with_2(run: Run) -> None:
    assert b"no-such-file" in run("broker-api-versions", "--command-config", "no-such-file", code=2).stderr
