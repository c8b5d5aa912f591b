"""Apache Kafka 3.9's own ACL classes, called over a pipe (KafkaAcls.java)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from odradek.security.acls.acl_types import AccessControlEntry, Acls, ResourcePattern

from ...harness import java

SOURCE = Path(__file__).with_name("KafkaAcls.java")


class KafkaAcls:
    """One JVM for all questions; each question and each answer is a line of JSON."""

    def __init__(self) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = java.spawn("3.9.1", str(SOURCE), **pipes)
        assert self.process.stdin is not None and self.process.stdout is not None
        self._questions, self._answers = self.process.stdin, self.process.stdout

    def close(self) -> None:
        self._questions.close()
        self.process.wait(60)
        self._answers.close()

    def ask(self, **question: Any) -> Any:
        """The answer to one question."""
        self._questions.write(json.dumps(question).encode() + b"\n")
        self._questions.flush()
        answer = json.loads(self._answers.readline())
        assert "threw" not in answer, answer
        return answer["answer"]


def bindings(acls: Acls) -> list[dict[str, Any]]:
    """All ACLs in the oracle's form."""
    return [binding(pattern, entry) for pattern, entries in acls.items() for entry in entries]


def binding(pattern: ResourcePattern, entry: AccessControlEntry) -> dict[str, Any]:
    return {
        "type": pattern.type.value,
        "name": pattern.name,
        "pattern": pattern.pattern.value,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation.value,
        "permission": entry.permission.value,
    }


def texts(entries: Iterable[AccessControlEntry]) -> list[str]:
    """Entries as Kafka's toString() writes them, sorted."""
    return sorted(map(str, entries))
