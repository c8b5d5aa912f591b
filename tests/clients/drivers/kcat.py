"""kcat: one run for each stretch of records with the same headers and the same meaning of "empty"."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from ...harness.process import die_with_parent
from ..records import CHUNK, Record
from .base import WAIT_SECONDS, Make, Read
from .program import ProgramMember

END, KEY_END = b"\x1e", b"\x1f"
# Sizes precede the bytes, so that no byte of a record is taken for a delimiter.
FORMAT = "%o %K %S\n%k%s%h\x1e"


class Kcat:
    """See `base.Driver`."""

    name = "kcat"
    tool: str | None = "kcat"
    flavour = "text"

    def write(
        self,
        bootstrap: str,
        topic: str,
        partition: int,
        numbers: Iterable[int],
        make: Make,
        codec: str,
    ) -> None:
        """One `kcat -P` for each chunk, in order."""
        for _, chunk in itertools.groupby(numbers, lambda number: number // CHUNK):
            self._write_chunk(bootstrap, topic, partition, [make(number) for number in chunk], codec)

    def _write_chunk(self, bootstrap: str, topic: str, partition: int, records: list[Record], codec: str) -> None:
        command = ["kcat", "-P", "-b", bootstrap, "-t", topic, "-p", str(partition), "-z", codec]
        command += ["-D", END.decode(), "-K", KEY_END.decode(), "-X", "acks=all"]
        for name, value in records[0].headers:
            command += ["-H", f"{name}={(value or b'').decode()}"]
        if any(record.value is None for record in records):
            command.append("-Z")
        lines = END.join(_line(record) for record in records)
        _run(command, lines)

    def read(self, bootstrap: str, topic: str, partition: int, count: int) -> Iterator[Read]:
        """In order from the beginning."""
        command = ["kcat", "-C", "-q", "-b", bootstrap, "-t", topic, "-p", str(partition), "-o", "beginning"]
        command += ["-c", str(count), "-f", FORMAT]
        with subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=die_with_parent) as process:
            assert process.stdout is not None
            try:
                for _ in range(count):
                    line = process.stdout.readline()
                    assert line.endswith(b"\n"), f"kcat ended after {line!r}"
                    offset, key_size, size = (int(word) for word in line.split())
                    key = _take(process.stdout, key_size)
                    value = _take(process.stdout, size)
                    yield Read(offset, Record(key, value, _headers(process.stdout)))
            finally:
                process.kill()

    def member(self, bootstrap: str, topic: str, group: str, folder: Path) -> ProgramMember:
        """A `kcat -G`."""
        options = ["auto.offset.reset=earliest", "auto.commit.interval.ms=200"]
        options += ["session.timeout.ms=6000", "heartbeat.interval.ms=500"]
        words = [word for option in options for word in ("-X", option)]
        command = ["kcat", "-b", bootstrap, *words, "-q", "-u", "-f", "%s\\n", "-G", group, topic]
        return ProgramMember(command, folder)


def _line(record: Record) -> bytes:
    key = b"" if record.key is None else record.key + KEY_END
    return key + (record.value or b"")


def _take(stream: object, size: int) -> bytes | None:
    return None if size < 0 else stream.read(size)  # type: ignore[attr-defined]  # opened by Popen


def _headers(stream: object) -> tuple[tuple[str, bytes | None], ...]:
    text = bytearray()
    while (byte := stream.read(1)) != END:  # type: ignore[attr-defined]  # opened by Popen
        assert byte, "kcat ended within a record"
        text += byte
    pairs = [pair.split(b"=", 1) for pair in bytes(text).split(b",") if pair]
    return tuple((name.decode(), value) for name, value in pairs)


def _run(command: list[str], stdin: bytes) -> None:
    done = subprocess.run(
        command, input=stdin, capture_output=True, timeout=WAIT_SECONDS * 2, preexec_fn=die_with_parent
    )
    assert done.returncode == 0 and not done.stderr, done.stderr.decode(errors="replace")
