"""Kafka 3.9's SASL classes, called over a pipe (java/SaslOracle.java)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.harness import java

SOURCE = Path(__file__).with_name("java") / "SaslOracle.java"


class Refused(Exception):
    """Kafka raised an exception."""


class Oracle:
    """One JVM for all questions."""

    def __init__(self, source: Path = SOURCE) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = java.spawn("3.9.1", str(source), **pipes)
        assert self._process.stdin and self._process.stdout
        self._questions, self._answers = self._process.stdin, self._process.stdout

    def ask(self, name: str, *words: str | bytes) -> list[str]:
        """The words of the answer; Refused if Kafka raises an exception. Bytes are sent as hex."""
        sent = [word if isinstance(word, str) else word.hex() for word in words]
        self._questions.write((" ".join([name, *sent]) + "\n").encode())
        self._questions.flush()
        line = self._answers.readline().decode().rstrip("\n")
        if not line.startswith("ok "):
            raise Refused(line) if line.startswith("error ") else AssertionError(f"the oracle said {line!r}")
        return line[3:].split(" ")

    def close(self) -> None:
        self._questions.close()
        self._answers.read()
        self._answers.close()
        self._process.wait(60)


def unhex(text: str) -> str:
    return bytes.fromhex(text).decode()
