"""Splits the input of `odradek console-producer` into lines and parses them into records.

Lines end only at b"\\n": a CR, a NUL or a byte that is not UTF-8 is part of the message, an empty line is an empty
message, and a last line without newline counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import click

CHUNK = 1 << 20

Headers = list[tuple[str, bytes | None]]
Parsed = tuple[bytes | None, bytes | None, Headers]


class LineError(ValueError):
    """A line without one of its required parts."""


def lines(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Lists of whole lines without their newlines, as they arrive; does not wait for a full chunk."""
    read = getattr(stream, "read1", stream.read)
    rest: list[bytes] = []
    while chunk := read(CHUNK):
        first, newline, more = chunk.partition(b"\n")
        rest.append(first)
        if newline:
            whole = more.split(b"\n")
            last = whole.pop()
            yield [b"".join(rest), *whole]
            rest = [last]
    if tail := b"".join(rest):
        yield [tail]


@dataclass(frozen=True)
class LineMessageReader:
    """The layout of key, headers and value in a line; Kafka's LineMessageReader (KIP-798, KIP-810)."""

    parse_key: bool = False
    key_separator: bytes = b"\t"
    parse_headers: bool = False
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None
    ignore_error: bool = False

    @property
    def plain(self) -> bool:
        """Whether a line is only the value."""
        return not (self.parse_key or self.parse_headers or self.null_marker is not None)

    def parse(self, line: bytes, number: int) -> Parsed:
        """(key, value, headers) of one line. Raises LineError, which names the line by `number`."""
        headers, rest = self._cut(self.parse_headers, line, self.headers_delimiter, "headers delimiter", number)
        key, value = self._cut(self.parse_key, rest, self.key_separator, "key separator", number)
        return self._null(key), self._null(value), self._split_headers(headers, number)

    def _cut(self, parse: bool, text: bytes, separator: bytes, what: str, number: int) -> tuple[bytes | None, bytes]:
        if not parse:
            return None, text
        front, found, rest = text.partition(separator)
        if found:
            return front, rest
        if self.ignore_error:
            return None, text
        raise LineError(f"no {what} found on line {number}: {_shown(text)}")

    def _null(self, text: bytes | None) -> bytes | None:
        return None if self.null_marker is not None and text == self.null_marker else text

    def _split_headers(self, text: bytes | None, number: int) -> Headers:
        if text is None or self._null(text) is None or not text:
            return []
        return [self._header(pair, number) for pair in text.split(self.headers_separator)]

    def _header(self, pair: bytes, number: int) -> tuple[str, bytes | None]:
        key, found, value = pair.partition(self.headers_key_separator)
        if not found and not self.ignore_error:
            raise LineError(f"no header key separator found in {_shown(pair)} on line {number}")
        if self._null(key) is None:
            raise LineError(f"the key of a header is the null marker on line {number}")
        return key.decode("utf-8", "surrogateescape"), self._null(value) if found else None


def _shown(text: bytes) -> str:
    return repr(text[:80])[1:]


def reader(properties: Mapping[str, str]) -> LineMessageReader:
    """A LineMessageReader for `--property` settings. Raises UsageError when two separators are the same."""
    named: dict[str, Any] = {}
    for name, value in properties.items():
        field = name.replace(".", "_")
        if field not in LineMessageReader.__dataclass_fields__ or field == "plain":
            click.echo(f"WARN {name} is not a property of the line reader", err=True)
        elif field in ("parse_key", "parse_headers", "ignore_error"):
            named[field] = value.strip().lower() == "true"
        else:
            named[field] = value.encode()
    made = LineMessageReader(**named)
    _check_distinct(made)
    return made


def _check_distinct(made: LineMessageReader) -> None:
    names = ("headers_delimiter", "headers_separator", "headers_key_separator")
    parts = {name: getattr(made, name) for name in names}
    if len(set(parts.values())) < len(names):
        raise click.UsageError("headers.delimiter, headers.separator and headers.key.separator must differ")
    if made.null_marker is not None and made.null_marker in (*parts.values(), made.key_separator):
        raise click.UsageError("null.marker must differ from all separators")
