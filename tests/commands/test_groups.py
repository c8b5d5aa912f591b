"""`odradek groups`, compared with Kafka's tool."""

from __future__ import annotations

from typing import Any

import pytest

from ..harness import java
from .conftest import Run

pytestmark = pytest.mark.live


@pytest.fixture
def group(run: Run, topic: str) -> str:
    """A classic group whose name is wider than a column."""
    run("console-producer", "--topic", topic, stdin=b"a\n")
    run(
        "console-consumer",
        "--topic",
        topic,
        "--group",
        f"readers-of-{topic}",
        "--from-beginning",
        "--max-messages",
        "1",
    )
    return f"readers-of-{topic}"


@pytest.mark.needs("java-4.1.0")
@pytest.mark.parametrize("words", [(), ("--share",)])
def test_output_equals_apaches(run: Run, broker: Any, group: str, words: tuple[str, ...]) -> None:
    tool = "org.apache.kafka.tools.GroupsCommand"
    theirs = java.run("4.1.0", tool, "--bootstrap-server", broker.bootstrap, "--list", *words).stdout.decode()
    ours = run("groups", "--list", *words).stdout.decode()
    assert sorted(ours.splitlines()) == sorted(theirs.splitlines())
    assert (group in ours) == (not words)


def test_options_filter_the_groups(run: Run, group: str) -> None:
    def found(*words: str) -> bool:
        return group in run("groups", "--list", *words).stdout.decode()

    assert found("--consumer") and found("--protocol", "consumer") and found("--group-type", "Classic")
    assert not (found("--protocol", "share") or found("--group-type", "consumer") or found("--streams"))


def test_wrong_usage_exits_with_2(run: Run) -> None:
    assert b"exactly one action: --list" in run("groups", code=2).stderr
    assert (
        b"--share and --protocol cannot be given"
        in run("groups", "--list", "--share", "--protocol", "x", code=2).stderr
    )
    run("groups", "--list", "--group-type", "other", code=2)
