"""`odradek cluster`, compared with Kafka's tool."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from ..harness import java
from .conftest import SECONDS, command_line

pytestmark = pytest.mark.live

TOOL = "org.apache.kafka.tools.ClusterTool"


def cluster(broker: Any, *words: str, code: int = 0) -> str:
    line = command_line("cluster", *words, "-b", broker.bootstrap)
    done = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == code, done
    return done.stdout or done.stderr


@pytest.mark.needs("java-3.9.1")
@pytest.mark.parametrize("words", [("cluster-id",), ("unregister", "--id", "3")])
def test_output_equals_apaches(broker: Any, words: tuple[str, ...]) -> None:
    theirs = java.run("3.9.1", TOOL, *words, "--bootstrap-server", broker.bootstrap)
    assert cluster(broker, *words) == theirs.stdout.decode()


def test_wrong_usage_exits_with_2(broker: Any) -> None:
    assert "Missing option '--id'" in cluster(broker, "unregister", code=2)
    assert "No such command" in cluster(broker, "cluster-name", code=2)
