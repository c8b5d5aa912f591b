"""Apache Kafka 3.9's quota classes, called over a pipe (java/QuotaOracle.java)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.harness import java

SOURCE = Path(__file__).with_name("java") / "QuotaOracle.java"
NO_LIMIT = float(2**63)


class Refused(Exception):
    """Kafka raised an exception; `code` is the error code that a client would get."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(answer["message"])
        self.code = answer["error"]


class Oracle:
    """One JVM for all commands."""

    def __init__(self) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = java.spawn("3.9.1", str(SOURCE), **pipes)

    def close(self) -> None:
        """End the JVM."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()

    def ask(self, *words: Any) -> Any:
        """The answer to one command; Refused if Kafka raises an exception."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(words).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the oracle ended"
        answer = json.loads(line)
        if isinstance(answer, dict) and "error" in answer:
            raise Refused(answer)
        return answer
