"""The README's Python examples do what they say they do."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.broker import Broker, ExternalBroker

from .tree import ROOT

SECONDS = 180


def blocks(markdown: str, language: str = "python") -> list[str]:
    """The code blocks of that language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", markdown, re.MULTILINE | re.DOTALL)


def promised(code: str) -> list[str]:
    """What the comments say that `code` prints."""
    return re.findall(r"^# -> (.*)$", code, re.MULTILINE)


def run(code: str, folder: Path) -> list[str]:
    """Run an example as a program of its own; the lines it prints."""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr[-3000:]}"
    return done.stdout.splitlines()


@pytest.mark.needs("java")
def test_examples_print_what_they_promise(broker: Broker | ExternalBroker, tmp_path: Path) -> None:
    examples = blocks((ROOT / "README.md").read_text())
    assert len(examples) == 5
    for code in examples:
        assert promised(code), "an example that promises nothing is not checked"
        assert run(code.replace("localhost:9092", broker.bootstrap), tmp_path) == promised(code), code
