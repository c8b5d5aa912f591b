"""Apache Kafka's console producer and consumer, from jars."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from ...harness import java
from ..records import Record
from .base import WAIT_SECONDS, Make, Read
from .program import ProgramMember

PRODUCER = {"3.9.1": "kafka.tools.ConsoleProducer", "4.1.0": "org.apache.kafka.tools.ConsoleProducer"}
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
NULL = "␀"
NO_HEADERS = b"NO_HEADERS"


class Java:
    """See `base.Driver`; topics it writes have one partition, since its lines cannot name one."""

    flavour = "text"

    def __init__(self, version: str) -> None:
        self.version = version
        self.name = f"java-{version}"
        self.tool: str | None = self.name

    def write(
        self,
        bootstrap: str,
        topic: str,
        partition: int,
        numbers: Iterable[int],
        make: Make,
        codec: str,
    ) -> None:
        """One console producer with headers, key and value on each line."""
        assert partition == 0
        words = ["--bootstrap-server", bootstrap, "--topic", topic, "--compression-codec", codec]
        for setting in ("parse.headers=true", "parse.key=true", f"null.marker={NULL}"):
            words += ["--property", setting]
        for setting in ("acks=all", "linger.ms=5", "max.request.size=1000000", "buffer.memory=67108864"):
            words += ["--producer-property", setting]
        lines = b"".join(_line(make(number)) for number in numbers)
        done = java.run(self.version, PRODUCER[self.version], *words, input=lines, timeout=WAIT_SECONDS * 5)
        output = (done.stdout + done.stderr).decode(errors="replace")
        assert "ERROR" not in output and "Exception" not in output, output[-2000:]

    def read(self, bootstrap: str, topic: str, partition: int, count: int) -> Iterator[Read]:
        """In order from the beginning."""
        words = ["--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"]
        words += ["--partition", str(partition)] if partition else []
        words += ["--max-messages", str(count), "--timeout-ms", str(WAIT_SECONDS * 1000)]
        for setting in ("headers", "key", "offset"):
            words += ["--property", f"print.{setting}=true"]
        words += ["--property", f"null.literal={NULL}"]
        with java.spawn(self.version, CONSUMER, *words, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            try:
                for _ in range(count):
                    yield _parse(process.stdout.readline())
            finally:
                process.kill()

    def member(self, bootstrap: str, topic: str, group: str, folder: Path) -> ProgramMember:
        """A console consumer in a group."""
        words = ["--bootstrap-server", bootstrap, "--topic", topic, "--group", group, "--from-beginning"]
        for setting in ("auto.commit.interval.ms=200", "session.timeout.ms=6000", "heartbeat.interval.ms=500"):
            words += ["--consumer-property", setting]
        return ProgramMember(java.command(self.version, CONSUMER, *words), folder)


def _line(record: Record) -> bytes:
    headers = b",".join(name.encode() + b":" + _or_null(value) for name, value in record.headers)
    return b"\t".join([headers or NULL.encode(), _or_null(record.key), _or_null(record.value)]) + b"\n"


def _or_null(value: bytes | None) -> bytes:
    return NULL.encode() if value is None else value


def _parse(line: bytes) -> Read:
    assert line.endswith(b"\n"), f"the console consumer ended after {line!r}"
    offset, headers, key, value = line[:-1].split(b"\t", 3)
    pairs = [] if headers == NO_HEADERS else [pair.split(b":", 1) for pair in headers.split(b",")]
    return Read(
        int(offset.removeprefix(b"Offset:")),
        Record(_nullable(key), _nullable(value), tuple((n.decode(), _nullable(v)) for n, v in pairs)),
    )


def _nullable(value: bytes) -> bytes | None:
    return None if value == NULL.encode() else value
