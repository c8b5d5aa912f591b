"""Apache Kafka 3.9's record classes, asked over a pipe (java/RecordsOracle.java)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from odradek.protocol.records.batch_v2 import Record
from tests.harness import java

SOURCE = Path(__file__).with_name("java") / "RecordsOracle.java"


class Refused(Exception):
    """Kafka threw; `code` is the error number that a client would get, `indexes` the records at fault."""

    def __init__(self, line: str) -> None:
        super().__init__(line)
        _, code, indexes, *_ = line.split(" ")
        self.code = int(code)
        self.indexes = [] if indexes == "-" else [int(index) for index in indexes.split(",")]


class Oracle:
    """One JVM that answers any number of commands."""

    def __init__(self) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = java.spawn("3.9.1", str(SOURCE), **pipes)
        assert self.process.stdin is not None and self.process.stdout is not None
        self._to, self._from = self.process.stdin, self.process.stdout

    def close(self) -> None:
        self._to.close()
        self.process.wait(60)

    def ask(self, *words: object) -> str:
        """The answer to one command; Refused when Kafka throws."""
        self._to.write((" ".join(map(str, words)) + "\n").encode())
        self._to.flush()
        line = self._from.readline().decode().rstrip("\n")
        if not line.startswith("ok "):
            raise Refused(line) if line.startswith("error ") else AssertionError(f"the oracle said {line!r}")
        return line[3:]

    def data(self, *words: object) -> bytes:
        """As `ask`, for commands that answer with bytes."""
        return unhex(self.ask(*words)) or b""

    def records(self, data: bytes) -> list[Record]:
        """The records that Kafka reads from `data`; it checks CRCs."""
        text = self.ask("read", tohex(data))
        return [] if text == "-" else [_record(row) for row in text.split(";")]


def tohex(data: bytes | None) -> str:
    return "~" if data is None else data.hex() or "-"


def unhex(text: str) -> bytes | None:
    return None if text == "~" else b"" if text == "-" else bytes.fromhex(text)


def written(records: Iterable[Record]) -> str:
    """`records` in the oracle's notation."""
    return ";".join(
        f"{offset}:{time}:{tohex(key)}:{tohex(value)}:"
        + (",".join(f"{tohex(k)}={tohex(v)}" for k, v in headers) or "-")
        for offset, time, key, value, headers in records
    )


def _name(text: str) -> bytes:
    name = unhex(text)
    assert name is not None, "a header without a name"
    return name


def _record(row: str) -> Record:
    offset, time, key, value, headers = row.split(":")
    pairs = [] if headers == "-" else [part.split("=") for part in headers.split(",")]
    return int(offset), int(time), unhex(key), unhex(value), [(_name(k), unhex(v)) for k, v in pairs]
