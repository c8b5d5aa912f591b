"""`run` and `topic`: commands as subprocesses against the broker of the module, and a topic for each test."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from ..harness.process import die_with_parent

SECONDS = 120

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]


def command_line(*words: str) -> list[str]:
    """The command line that runs `odradek WORDS…`."""
    return [sys.executable, "-m", "odradek.broker", *words]


@pytest.fixture
def run(broker: Any) -> Run:
    """`run("topics", "--list")` adds `--bootstrap-server` and asserts the exit code, by default 0."""

    def call(
        command: str, *words: str, stdin: bytes = b"", code: int = 0, **kwargs: Any
    ) -> subprocess.CompletedProcess[bytes]:
        result = subprocess.run(
            command_line(command, "--bootstrap-server", broker.bootstrap, *words),
            input=stdin,
            capture_output=True,
            timeout=SECONDS,
            **kwargs,
        )
        assert result.returncode == code, (words, result.stdout[-2000:], result.stderr[-2000:])
        return result

    return call


@pytest.fixture
def start(broker: Any) -> Any:
    """Like `run`, for a command that does not end by itself: returns the Popen, which the end of the test kills."""
    started: list[subprocess.Popen[bytes]] = []

    def call(command: str, *words: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command_line(command, "--bootstrap-server", broker.bootstrap, *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=die_with_parent,
        )
        started.append(process)
        return process

    yield call
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def name() -> str:
    """The name of a topic or group that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topic(run: Run, name: str) -> str:
    """A topic of one partition."""
    run("topics", "--create", "--topic", name, "--partitions", "1")
    return name
